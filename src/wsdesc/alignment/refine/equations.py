"""The Gauss-Newton step of a pose from its summed equations, with NumPy.

Calls of NumPy are few: while one thread solves equations, others wait for Python.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from wsdesc.alignment.information.matrix import MIN_PAIRS, minus_cross
from wsdesc.core.geometry import Floats, motion_about
from wsdesc.core.rotations import rotation_matrix


class Step(NamedTuple):
    """A Gauss-Newton step of one pose."""

    T: Floats  # (4, 4) in the target's frame
    moved: float  # how far the overlap moves


def solve_step(sums: Floats, isotropic: float, weak: float) -> Step | None:
    """Solve the equations of a pose; None if there are too few contact pairs.

    Args:
        sums: (99,), see `gauss_newton.SUMS`.
        isotropic: Weight of distances in all directions, beside those along normals.
        weak: Eigenvalues below this share of the largest leave their motion as it is; noise would move it.
    """
    total, count = sums[49], sums[98]  # products (7, 7) of (1, point, gap) begin at 49
    if count < MIN_PAIRS or not total > 0:
        return None
    mean = sums / total
    x, y, z = centre = mean[50:53]
    variance = mean[57] + mean[65] + mean[73] - (x * x + y * y + z * z)  # from squares of coordinates
    if not variance > 0:
        return None
    extent = math.sqrt(variance)
    equations = mean[:42].reshape(6, 7)  # matrix and right side: responses times responses and gap
    if isotropic:
        equations = equations + isotropic * (mean[49:98] @ _ISOTROPIC).reshape(6, 7)
    r = 1 / extent  # rotations are about the centre, in units of the extent
    change = np.array(
        [
            [1.0, 0.0, 0.0, 0.0, 0.0, 0.0],
            [0.0, 1.0, 0.0, 0.0, 0.0, 0.0],
            [0.0, 0.0, 1.0, 0.0, 0.0, 0.0],
            [0.0, r * z, -r * y, r, 0.0, 0.0],
            [-r * z, 0.0, r * x, 0.0, r, 0.0],
            [r * y, -r * x, 0.0, 0.0, 0.0, r],
        ]
    )
    changed = change @ equations  # (6, 7)
    values, vectors = np.linalg.eigh(changed[:, :6] @ change.T)
    shares = np.where(values > weak * values[-1], (changed[:, 6] @ vectors) / values, 0.0)
    twist = vectors @ shares
    T = motion_about(centre, rotation_matrix(r * twist[3:]), twist[:3])
    return Step(T, math.sqrt(twist @ twist))


def _isotropic_equations(mean: Floats) -> Floats:
    """Build matrix and right side (H, 6, 7) of point distances.

    `mean` (H, 7, 7) are mean products of (1, point, gap).
    """
    second, across = mean[:, 1:4, 1:4], mean[:, 1:4, 4:]
    result = np.zeros((len(mean), 6, 7))
    result[:, :3, :3] = mean[:, :1, :1] * np.eye(3)
    result[:, 3:, :3] = -minus_cross(mean[:, 0, 1:4])
    result[:, :3, 3:6] = result[:, 3:, :3].transpose(0, 2, 1)
    result[:, 3:, 3:6] = np.trace(second, axis1=1, axis2=2)[:, None, None] * np.eye(3) - second
    result[:, :3, 6] = mean[:, 0, 4:]
    result[:, 3:, 6] = (across - across.transpose(0, 2, 1))[:, (1, 2, 0), (2, 0, 1)]
    return result


_ISOTROPIC = _isotropic_equations(np.eye(49).reshape(49, 7, 7)).reshape(49, 42)  # they are linear
