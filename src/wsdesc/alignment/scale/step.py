"""One Gauss-Newton step of a similarity transformation, from the equations of either backend."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from wsdesc.alignment.information.matrix import MIN_PAIRS, centre_moments
from wsdesc.alignment.refine.result import WEAK
from wsdesc.core.geometry import Floats, motion_about
from wsdesc.core.rotations import rotation_matrix

SUMS = 130  # 8 × 8 products of responses and gap, 4 × 4 of (1, point), 7 × 7 of both normals; number of pairs
MAX_STEP = 0.1  # largest change of the logarithm of the scale in one step


class Stage(NamedTuple):
    """Gauss-Newton steps of one kind."""

    distance: float  # within which partners are searched, in resolutions
    steps: int
    coarse: bool  # on the coarse samples of the surfaces


Stages = Sequence[Stage]


class Equations(NamedTuple):
    """Weighted means over contact pairs, in the target's frame.

    The responses of a pair (7,) are how far its source point moves along a normal by three shifts, three
    rotations about the centre and growth from it. Rotations and growth are in units of the extent.
    """

    centre: Floats  # (3,) of the source's points
    extent: float  # root mean square distance from the centre, > 0
    matrix: Floats  # (7, 7) products of the responses along the mean normals
    slope: Floats  # (7,) these responses times the gaps along the mean normals
    gap_square: float  # mean square of these gaps
    product: Floats  # (7, 7) responses along the source's normals times those along the target's


class Iterated(NamedTuple):
    """A similarity before its last step."""

    S_target_source: Floats  # (4, 4) the rotation times exp(log_scale), and the translation
    log_scale: float  # since the first step
    equations: Equations | None  # of the last step; None if the surfaces overlap too little


class Step(NamedTuple):
    """Change of the similarity."""

    S_target_target: Floats  # (4, 4) similarity
    log_scale: float
    residual: float  # root mean square of the gaps that remain
    deviation: float  # of the logarithm, if one pair alone determined it
    determinacy: float  # as in `SimilarityFit`


def equations_of(sums: Floats) -> Equations | None:
    """Move the sums (130,) to the centre of the overlap; None if there are too few pairs."""
    along, points = sums[:64].reshape(8, 8), sums[64:80].reshape(4, 4)
    total = points[0, 0]
    if sums[129] < MIN_PAIRS or not total > 0:
        return None
    moments = centre_moments(points[0, 1:] / total, points[1:, 1:] / total)
    if not moments.extent > 0:
        return None
    change = np.zeros((7, 7))  # to rotations about the centre and growth from it, in units of the extent
    change[:6, :6] = moments.change
    change[6, :3], change[6, 6] = -moments.centre / moments.extent, 1 / moments.extent
    along = along / total
    return Equations(
        moments.centre,
        moments.extent,
        change @ along[:7, :7] @ change.T,
        change @ along[:7, 7],
        float(along[7, 7]),
        change @ (sums[80:129].reshape(7, 7) / total) @ change.T,
    )


def solve_step(equations: Equations) -> Step:
    """Solve the equations; motions that the overlap does not determine stay as they are."""
    centre, extent, matrix, slope, gap_square, product = equations
    values, vectors = np.linalg.eigh(matrix)
    x = vectors @ (weak_inverse(values) * (slope @ vectors))
    variance = max(float(gap_square - 2 * x @ slope + x @ matrix @ x), 0.0)
    spread = float((np.square(vectors[6]) / np.maximum(values, 1e-9)).sum())
    log_scale = float(np.clip(x[6] / extent, -MAX_STEP, MAX_STEP))
    S = motion_about(centre, math.exp(log_scale) * rotation_matrix(x[3:6] / extent), x[:3])
    deviation = math.sqrt(variance * spread) / extent
    return Step(S, log_scale, math.sqrt(variance), deviation, _determinacy(product))


def weak_inverse(values: Floats) -> Floats:
    """Invert ascending eigenvalues (…, K); those of motions that the overlap does not determine become 0."""
    return np.where(values > WEAK * values[..., -1:], 1 / np.maximum(values, 1e-300), 0.0)


def _determinacy(product: Floats) -> float:
    """Return the share of growth that no rigid motion imitates, from the products (7, 7) of both scans.

    The noise of their normals is independent, so it averages out in the product.
    """
    product = (product + product.T) / 2
    values, vectors = np.linalg.eigh(product[:6, :6])
    imitated = float((weak_inverse(values) * np.square(product[6, :6] @ vectors)).sum())
    return max(float(product[6, 6]) - imitated, 0.0)
