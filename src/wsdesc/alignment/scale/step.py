"""One Gauss-Newton step of a similarity transformation, from the equations of either backend."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.spatial.transform import Rotation

from wsdesc.alignment.refine.result import WEAK
from wsdesc.core.geometry import Floats

MAX_STEP = 0.1  # largest change of the logarithm of the scale in one step


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


class Step(NamedTuple):
    """Change of the similarity."""

    S_target_target: Floats  # (4, 4) similarity
    log_scale: float
    deviation: float  # of the logarithm, if one pair alone determined it
    determinacy: float  # as in `SimilarityFit`


def solve_step(equations: Equations) -> Step:
    """Solve the equations; motions that the overlap does not determine stay as they are."""
    centre, extent, matrix, slope, gap_square, product = equations
    values, vectors = np.linalg.eigh(matrix)
    inverse = np.where(values > WEAK * values[-1], 1 / np.maximum(values, 1e-300), 0.0)
    x = vectors @ (inverse * (slope @ vectors))
    variance = max(float(gap_square - 2 * x @ slope + x @ matrix @ x), 0.0)
    spread = float((np.square(vectors[6]) / np.maximum(values, 1e-9)).sum())
    log_scale = float(np.clip(x[6] / extent, -MAX_STEP, MAX_STEP))
    S = np.eye(4)
    S[:3, :3] = math.exp(log_scale) * Rotation.from_rotvec(x[3:6] / extent).as_matrix()
    S[:3, 3] = centre + x[:3] - S[:3, :3] @ centre
    return Step(S, log_scale, math.sqrt(variance * spread) / extent, _determinacy(product))


def _determinacy(product: Floats) -> float:
    """Return the share of growth that no rigid motion imitates, from the products (7, 7) of both scans.

    The noise of their normals is independent, so it averages out in the product.
    """
    product = (product + product.T) / 2
    values, vectors = np.linalg.eigh(product[:6, :6])
    inverse = np.where(values > WEAK * values[-1], 1 / np.maximum(values, 1e-300), 0.0)
    imitated = float((inverse * np.square(product[6, :6] @ vectors)).sum())
    return max(float(product[6, 6]) - imitated, 0.0)
