"""Gauss-Newton steps of many poses from their summed equations, with NumPy."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from wsdesc.alignment.information.matrix import MIN_PAIRS, minus_cross, twists_about
from wsdesc.core.geometry import Floats
from wsdesc.core.rotations import rotation_matrix


class Steps(NamedTuple):
    """Gauss-Newton steps of H poses."""

    T_step: Floats  # (H, 4, 4) in the target's frame; the identity where nothing is determined
    moved: Floats  # (H,) how far the overlap moves
    determined: NDArray[np.bool_]  # (H,) False if there are too few contact pairs


def solve_steps(sums: Floats, isotropic: float, weak: float) -> Steps:
    """Solve the equations of all poses.

    Args:
        sums: (H, 99), see `gauss_newton.Backend`.
        isotropic: weight of distances in all directions, beside those along normals.
        weak: eigenvalues below this share of the largest leave their motion as it is; noise would move it.
    """
    along, points, count = sums[:, :49].reshape(-1, 7, 7), sums[:, 49:98].reshape(-1, 7, 7), sums[:, 98]
    total = points[:, 0, 0]
    determined = (count >= MIN_PAIRS) & (total > 0)
    total = np.where(determined, total, 1.0)[:, None, None]
    along, points = along / total, points / total
    centre = points[:, 0, 1:4]
    variance = np.trace(points[:, 1:4, 1:4], axis1=1, axis2=2) - np.square(centre).sum(1)
    determined &= variance > 0
    extent = np.sqrt(np.where(determined, variance, 1.0))
    change = twists_about(centre, extent)
    matrix, slope = along[:, :6, :6], along[:, :6, 6:]
    if isotropic:
        equations = _isotropic_equations(points)
        matrix = matrix + isotropic * equations[:, :, :6]
        slope = slope + isotropic * equations[:, :, 6:]
    values, vectors = np.linalg.eigh(change @ matrix @ change.transpose(0, 2, 1))  # (H, 6), (H, 6, 6)
    certain = (values > weak * values[:, -1:]) & determined[:, None]
    along_vectors = (vectors.transpose(0, 2, 1) @ (change @ slope))[..., 0] / np.where(certain, values, 1.0)
    twist = (vectors @ np.where(certain, along_vectors, 0.0)[..., None])[..., 0]  # (H, 6)
    T = np.tile(np.eye(4), (len(sums), 1, 1))
    T[:, :3, :3] = rotation_matrix(twist[:, 3:] / extent[:, None])
    T[:, :3, 3] = centre + twist[:, :3] - (T[:, :3, :3] @ centre[..., None])[..., 0]
    T[~determined] = np.eye(4)
    return Steps(T, np.linalg.norm(twist, axis=1), determined)


def _isotropic_equations(mean: Floats) -> Floats:
    """Build matrix and right side (H, 6, 7) of point distances from mean products (H, 7, 7) of (1, point,
    gap).
    """
    second, across = mean[:, 1:4, 1:4], mean[:, 1:4, 4:]
    result = np.zeros((len(mean), 6, 7))
    result[:, :3, :3] = np.eye(3)
    result[:, 3:, :3] = -minus_cross(mean[:, 0, 1:4])
    result[:, :3, 3:6] = result[:, 3:, :3].transpose(0, 2, 1)
    result[:, 3:, 3:6] = np.trace(second, axis1=1, axis2=2)[:, None, None] * np.eye(3) - second
    result[:, :3, 6] = mean[:, 0, 4:]
    result[:, 3:, 6] = (across - across.transpose(0, 2, 1))[:, (1, 2, 0), (2, 0, 1)]
    return result
