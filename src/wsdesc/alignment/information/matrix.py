"""The information matrix of a pose: how strongly the overlap determines each small motion.

A small motion is a twist (v, ω): a shift v and a rotation ω about the centre of the overlap. ω is scaled so
that a point at the typical distance from the centre moves by 1. A point p with normal n moves by n·v + (p ×
n)·ω along its normal. Two scans measure the same place with independent noise, so the product of their
normals has the noise averaged out: a plane remains a plane, however noisy the scanner.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from wsdesc.core.geometry import Floats

SAME_SIDE = np.cos(np.radians(45))  # normals further apart belong to different surfaces
MIN_PAIRS = 30  # contact pairs below which the overlap determines nothing


class Information(NamedTuple):
    """Hessian of the point-to-plane problem, as the mean over its contact pairs.

    It is for twists (v, ω) in the target's frame. The rotation ω is about `centre`, in radians times
    `extent`, which makes all six entries comparable: the trace of the first block is 1 if the normals of both
    scans agree. For radians, multiply the rows and columns of ω by `extent`. For the sum over all pairs,
    multiply by `pairs`.
    """

    matrix: Floats  # (6, 6) symmetric, positive semidefinite
    centre: Floats  # (3,) of the overlap
    extent: float  # root mean square distance of the overlap from its centre
    height: float  # root mean square distance from the plane through the centre that fits the overlap best
    pairs: int  # number of contact pairs

    def seen_from_source(self, T_target_source: Floats) -> Information:
        """Return the information of the inverse pose, for twists in the frame of the source."""
        R, t = T_target_source[:3, :3], T_target_source[:3, 3]
        blocks = np.kron(np.eye(2), R)  # rotates the translation and the rotation part
        return self._replace(matrix=blocks.T @ self.matrix @ blocks, centre=(self.centre - t) @ R)


def no_information(centre: Floats | None = None, pairs: int = 0) -> Information:
    """Return the information of an overlap that determines nothing."""
    return Information(np.zeros((6, 6)), np.zeros(3) if centre is None else centre, 0.0, 0.0, pairs)


def information_from_product(
    product: Floats, centre: Floats, extent: float, least_variance: float, pairs: int
) -> Information:
    """Build the information from the mean product (6, 6) of both scans' responses to twists."""
    values, vectors = np.linalg.eigh((product + product.T) / 2)
    matrix = np.einsum("ik,k,jk->ij", vectors, np.maximum(values, 0.0), vectors)
    return Information(matrix, centre, extent, float(np.sqrt(max(least_variance, 0.0))), pairs)


class CentredMoments(NamedTuple):
    """Centre and spread of an overlap, and the change of twists to its centre."""

    centre: Floats  # (3,)
    extent: float  # root mean square distance from the centre
    covariance: Floats  # (3, 3)
    change: Floats  # (6, 6) from twists about the origin to twists about the centre in units of the extent


def centre_moments(first: Floats, second: Floats) -> CentredMoments:
    """Centre moments of points: the mean (3,) and the mean outer product (3, 3)."""
    covariance = second - np.outer(first, first)
    extent = float(np.sqrt(max(np.trace(covariance), 0.0)))
    change = _twists_about(first, extent or 1.0)
    return CentredMoments(first, extent, covariance, change)


def _twists_about(centre: Floats, extent: float) -> Floats:
    """Return the matrix (6, 6) from twists about the origin to twists about a centre (3,).

    Rotations about the centre are in units of the extent.
    """
    change = np.eye(6)
    change[3:, :3] = minus_cross(centre[None])[0]
    change[3:] /= extent
    return change


def minus_cross(vectors: Floats) -> Floats:
    """Return the matrices (H, 3, 3) of − v × for vectors v (H, 3)."""
    x, y, z = vectors.T
    matrices = np.zeros((len(vectors), 3, 3))
    matrices[:, (0, 1, 2), (1, 2, 0)] = np.stack([z, x, y], 1)
    matrices[:, (0, 1, 2), (2, 0, 1)] = -np.stack([y, z, x], 1)
    return matrices
