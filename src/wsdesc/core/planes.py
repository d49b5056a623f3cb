"""Planes through the neighbours of points: normals and curvature, by compiled kernels."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from wsdesc.core.cells import nearest_neighbours
from wsdesc.core.geometry import Floats
from wsdesc.core.kernels import inline, kernel, run_in_chunks

NEIGHBOURS = 20  # points of a plane: a disc of radius 2.5 voxels on a downsampled surface
LINE_RATIO = 1e-6  # middle over largest variance below which neighbours form a line, not a surface

_POINTS_AT_ONCE = 2048


class LocalPlanes(NamedTuple):
    """Planes fitted to the neighbours of each point."""

    normals: Floats  # (N, 3) unit vectors of arbitrary sign; zero where the neighbours form no surface
    curvature: Floats  # (N,) from 0 on a plane to 1 where neighbours spread equally in all directions
    near: NDArray[np.int64]  # (N, K) indices of the nearest points, the point itself first


def local_planes(points: Floats, tree: Any = None, neighbours: int = NEIGHBOURS) -> LocalPlanes:
    """Fit a plane to the nearest neighbours of each point.

    Args:
        points: (N, 3) float64.
        tree: A `scipy.spatial.cKDTree` of the points, if there is one.
        neighbours: Number of nearest points of each plane, the point itself included.
    """
    count = min(neighbours, len(points))
    if count < 3:
        itself = np.arange(len(points))[:, None]
        return LocalPlanes(np.zeros(points.shape), np.zeros(len(points)), itself)
    near = nearest_neighbours(points, count) if tree is None else tree.query(points, count)[1]  # (N, count)
    planes = LocalPlanes(np.zeros(points.shape), np.zeros(len(points)), near)
    points = np.ascontiguousarray(points)
    run_in_chunks(_fit, len(points), points, near, planes.normals, planes.curvature, chunk=_POINTS_AT_ONCE)
    return planes


def normals(points: Floats, tree: Any = None, neighbours: int = NEIGHBOURS) -> Floats:
    """Estimate surface normals (N, 3) from nearest neighbours; arguments as in `local_planes`."""
    return local_planes(points, tree, neighbours).normals


@kernel(types="int64, int64, float64[:, ::1], int64[:, ::1], float64[:, ::1], float64[::1]")
def _fit(start, stop, points, near, normals, curvature):
    cov, vec, mean = np.empty((3, 3)), np.empty((3, 3)), np.empty(3)
    for n in range(start, stop):
        for axis in range(3):
            mean[axis] = 0.0
            for other in range(3):
                cov[axis, other] = 0.0
        for item in range(near.shape[1]):
            k = np.uint64(near[n, item])  # an index that cannot be negative needs no check
            for axis in range(3):
                mean[axis] += points[k, axis]
        for axis in range(3):
            mean[axis] /= near.shape[1]
        for item in range(near.shape[1]):
            k = np.uint64(near[n, item])
            x, y, z = points[k, 0] - mean[0], points[k, 1] - mean[1], points[k, 2] - mean[2]
            cov[0, 0] += x * x
            cov[0, 1] += x * y
            cov[0, 2] += x * z
            cov[1, 1] += y * y
            cov[1, 2] += y * z
            cov[2, 2] += z * z
        low, middle, high = diagonalise(cov, vec)
        low, middle = max(low, 0.0), max(middle, 0.0)
        if middle > LINE_RATIO * high:
            normals[n, 0], normals[n, 1], normals[n, 2] = vec[0, 0], vec[0, 1], vec[0, 2]
            curvature[n] = 3 * low / (low + middle + high)


@inline
def diagonalise(cov, vec):
    """Compute the eigenvalues of a symmetric matrix (3, 3), ascending, by Jacobi rotations.

    `cov` needs its upper half only, and is overwritten. The eigenvector of the smallest one is written to
    vec[0].
    """
    for m in range(9):
        vec[m // 3, m % 3] = m % 4 == 0
    for _ in range(12):
        off = cov[0, 1] ** 2 + cov[0, 2] ** 2 + cov[1, 2] ** 2
        if off <= 1e-30 * (cov[0, 0] + cov[1, 1] + cov[2, 2]) ** 2:
            break
        for k in range(3):
            i, j = int(k == 0), 2 - (k == 2)  # the rotation in the plane of i < j does not change k
            if cov[i, j] == 0:
                continue
            theta = (cov[j, j] - cov[i, i]) / (2 * cov[i, j])
            t = math.copysign(1.0, theta) / (abs(theta) + math.sqrt(theta * theta + 1))
            c = 1 / math.sqrt(t * t + 1)
            s = t * c
            cov[i, i] -= t * cov[i, j]
            cov[j, j] += t * cov[i, j]
            cov[i, j] = 0.0
            i0, i1, j0, j1 = min(i, k), max(i, k), min(j, k), max(j, k)
            a, b = cov[i0, i1], cov[j0, j1]
            cov[i0, i1] = c * a - s * b
            cov[j0, j1] = s * a + c * b
            for m in range(3):  # rows of vec are the eigenvectors
                a, b = vec[i, m], vec[j, m]
                vec[i, m] = c * a - s * b
                vec[j, m] = s * a + c * b
    smallest = 0
    for m in range(1, 3):
        if cov[m, m] < cov[smallest, smallest]:
            smallest = m
    for m in range(3):
        vec[0, m], vec[smallest, m] = vec[smallest, m], vec[0, m]
    low = cov[smallest, smallest]
    high = max(cov[0, 0], cov[1, 1], cov[2, 2])
    return low, cov[0, 0] + cov[1, 1] + cov[2, 2] - low - high, high
