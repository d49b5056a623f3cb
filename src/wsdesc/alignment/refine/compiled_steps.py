"""Gauss-Newton steps of many poses as in `equations`, in a compiled kernel; for the GPU backend.

On the CPU, NumPy is fast enough, and this kernel would take seconds to compile at the first start.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from wsdesc.alignment.information.matrix import MIN_PAIRS
from wsdesc.core.geometry import Floats
from wsdesc.core.kernels import inline, kernel

_SWEEPS = 20  # of Jacobi rotations at most; about six suffice


class Steps(NamedTuple):
    """Gauss-Newton steps of H poses."""

    T_step: Floats  # (H, 4, 4) in the target's frame; the identity where nothing is determined
    moved: Floats  # (H,) how far the overlap moves
    determined: NDArray[np.bool_]  # (H,) False if there are too few contact pairs


def solve_steps(sums: Floats, isotropic: float, weak: float) -> Steps:
    """Solve the equations (H, 99) of all poses; arguments as in `equations.solve_step`."""
    steps = Steps(np.zeros((len(sums), 4, 4)), np.zeros(len(sums)), np.zeros(len(sums), np.bool_))
    _solve(np.ascontiguousarray(sums), isotropic, weak, float(MIN_PAIRS), *steps)
    return steps


@kernel
def _solve(sums, isotropic, weak, min_pairs, T_step, moved, determined):  # type: ignore[no-untyped-def]
    matrix, change, work = np.empty((6, 6)), np.empty((6, 6)), np.empty((6, 6))
    slope, twist, centre, vectors = np.empty(6), np.empty(6), np.empty(3), np.empty((6, 6))
    for h in range(len(sums)):
        T = T_step[h]
        for i in range(4):
            T[i, i] = 1.0
        along, points = sums[h, :49].reshape(7, 7), sums[h, 49:98].reshape(7, 7)
        total = points[0, 0]
        if sums[h, 98] < min_pairs or not total > 0:
            continue
        variance = 0.0
        for i in range(3):
            centre[i] = points[0, 1 + i] / total
            variance += points[1 + i, 1 + i] / total - centre[i] * centre[i]
        if not variance > 0:
            continue
        determined[h] = True
        extent = math.sqrt(variance)
        for i in range(6):
            slope[i] = along[i, 6] / total
            for j in range(6):
                matrix[i, j] = along[i, j] / total
        if isotropic > 0:
            _add_isotropic(points, isotropic / total, matrix, slope)
        _twists_about(centre, extent, change)
        _multiply(change, matrix, work, False)
        _multiply(work, change, matrix, True)
        for i in range(6):
            twist[i] = 0.0
            for j in range(6):
                twist[i] += change[i, j] * slope[j]
        slope[:] = twist
        _diagonalise(matrix, vectors)
        largest = matrix[0, 0]
        for k in range(1, 6):
            largest = max(largest, matrix[k, k])
        twist[:] = 0.0
        for k in range(6):
            if matrix[k, k] > weak * largest:
                share = 0.0
                for i in range(6):
                    share += vectors[i, k] * slope[i]
                share /= matrix[k, k]
                for i in range(6):
                    twist[i] += share * vectors[i, k]
        _write_pose(twist, centre, extent, T)
        square = 0.0
        for i in range(6):
            square += twist[i] * twist[i]
        moved[h] = math.sqrt(square)


@inline
def _add_isotropic(points, weight, matrix, slope):  # type: ignore[no-untyped-def]
    """Add the equations of point distances, from the sums of products (7, 7) of (1, point, gap)."""
    trace = points[1, 1] + points[2, 2] + points[3, 3]
    for i in range(3):
        j, k = (i + 1) % 3, (i + 2) % 3
        matrix[i, i] += weight * points[0, 0]
        matrix[3 + i, 3 + i] += weight * trace
        matrix[3 + j, k] -= weight * points[0, 1 + i]  # the rows of ω: point × shift
        matrix[3 + k, j] += weight * points[0, 1 + i]
        matrix[k, 3 + j] -= weight * points[0, 1 + i]
        matrix[j, 3 + k] += weight * points[0, 1 + i]
        slope[i] += weight * points[0, 4 + i]
        slope[3 + i] += weight * (points[1 + j, 4 + k] - points[1 + k, 4 + j])
        for m in range(3):
            matrix[3 + i, 3 + m] -= weight * points[1 + i, 1 + m]


@inline
def _twists_about(centre, extent, change):  # type: ignore[no-untyped-def]
    """Write the change from twists about the origin to twists about the centre, see `CentredMoments`."""
    change[:] = 0.0
    for i in range(3):
        j, k = (i + 1) % 3, (i + 2) % 3
        change[i, i], change[3 + i, 3 + i] = 1.0, 1 / extent
        change[3 + j, k], change[3 + k, j] = centre[i] / extent, -centre[i] / extent


@inline
def _multiply(a, b, product, transposed):  # type: ignore[no-untyped-def]
    """Write a b, or a bᵀ, of matrices (6, 6)."""
    for i in range(6):
        for j in range(6):
            product[i, j] = 0.0
            for k in range(6):
                product[i, j] += a[i, k] * (b[j, k] if transposed else b[k, j])


@inline
def _diagonalise(matrix, vectors):  # type: ignore[no-untyped-def]
    """Make a symmetric matrix (6, 6) diagonal by Jacobi rotations; write its eigenvectors as columns."""
    for i in range(6):
        for j in range(6):
            vectors[i, j] = 1.0 if i == j else 0.0
    for _ in range(_SWEEPS):
        off, size = 0.0, 0.0
        for i in range(6):
            size += matrix[i, i] * matrix[i, i]
            for j in range(i):
                off += matrix[i, j] * matrix[i, j]
        if off <= 1e-32 * size:
            break
        for i in range(5):
            for j in range(i + 1, 6):
                if matrix[i, j] == 0:
                    continue
                theta = (matrix[j, j] - matrix[i, i]) / (2 * matrix[i, j])
                t = math.copysign(1.0, theta) / (abs(theta) + math.sqrt(theta * theta + 1))
                c = 1 / math.sqrt(t * t + 1)
                s = t * c
                for k in range(6):
                    a, b = matrix[i, k], matrix[j, k]
                    matrix[i, k], matrix[j, k] = c * a - s * b, s * a + c * b
                for k in range(6):
                    a, b = matrix[k, i], matrix[k, j]
                    matrix[k, i], matrix[k, j] = c * a - s * b, s * a + c * b
                    a, b = vectors[k, i], vectors[k, j]
                    vectors[k, i], vectors[k, j] = c * a - s * b, s * a + c * b
                matrix[i, j] = matrix[j, i] = 0.0


@inline
def _write_pose(twist, centre, extent, T):  # type: ignore[no-untyped-def]
    """Write the pose that shifts by the first half of a twist and rotates about the centre by the second."""
    x, y, z = twist[3] / extent, twist[4] / extent, twist[5] / extent
    angle = math.sqrt(x * x + y * y + z * z)
    a = math.sin(angle) / angle if angle > 0 else 1.0
    half = math.sin(angle / 2) / (angle / 2) if angle > 0 else 1.0
    b = half * half / 2
    T[0, 0], T[0, 1], T[0, 2] = 1 - b * (y * y + z * z), b * x * y - a * z, b * x * z + a * y
    T[1, 0], T[1, 1], T[1, 2] = b * x * y + a * z, 1 - b * (x * x + z * z), b * y * z - a * x
    T[2, 0], T[2, 1], T[2, 2] = b * x * z - a * y, b * y * z + a * x, 1 - b * (x * x + y * y)
    for i in range(3):
        T[i, 3] = centre[i] + twist[i]
        for j in range(3):
            T[i, 3] -= T[i, j] * centre[j]
