"""Improve poses of an object by point-to-plane steps, many poses at once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wsdesc.cloud.units import INDOOR_RESOLUTION
from wsdesc.core.geometry import Floats
from wsdesc.core.kernels import inline, kernel, run_in_chunks
from wsdesc.finding.prepare import SearchObject
from wsdesc.finding.surfels import Surfels, touched_surfel

_DAMPING = 0.01  # share of the largest diagonal entry: undetermined directions stay unchanged
_MIN_CONTACTS = 6


def improve(
    obj: SearchObject,
    surfels: Surfels,
    poses: Floats,
    sample: NDArray[np.int64],
    distances: Sequence[float] = (4, 3, 3, 2, 2, 2),
) -> Floats:
    """Move poses (H, 4, 4) by point-to-plane steps of the points in contact.

    Only contacts with similar normals count, and hidden parts of the object have none. Clutter beside the
    object therefore has little influence.

    Args:
        obj: The object.
        surfels: The scene.
        poses: T_scene_object of each pose.
        sample: Points of the object that are used.
        distances: Largest distance of a contact in each step, in resolutions.
    """
    improved = np.ascontiguousarray(poses, np.float64).copy()
    steps = INDOOR_RESOLUTION * np.asarray(distances, np.float64)
    run_in_chunks(
        _improve, len(improved), improved, obj.points[sample], obj.normals[sample], steps, surfels.points,
        surfels.normals, *surfels.lookup,
    )  # fmt: skip
    return improved


@kernel
def _improve(
    start: int, stop: int, poses: Any, points: Any, normals: Any, distances: Any, surfels: Any,
    surfel_normals: Any, low: Any, cell: float, keys: Any, items: Any,
) -> None:  # fmt: skip
    """Move the poses of a range, in place."""
    count = len(points)
    p, n, gaps = np.empty((count, 3)), np.empty((count, 3)), np.empty(count)
    A, b, row, centre = np.empty((6, 6)), np.empty(6), np.empty(6), np.empty(3)
    for h in range(start, stop):
        T = poses[h]
        for distance in distances:
            used = 0
            centre[:] = 0
            for k in range(count):
                x, y, z, i, _ = touched_surfel(
                    T, points[k], normals[k], distance, surfels, surfel_normals, low, cell, keys, items
                )
                if i < 0:
                    continue
                p[used, 0], p[used, 1], p[used, 2] = x, y, z
                gap = 0.0
                for m in range(3):
                    n[used, m] = surfel_normals[i, m]
                    gap += (surfels[i, m] - p[used, m]) * n[used, m]
                    centre[m] += p[used, m]
                gaps[used] = gap
                used += 1
            if used < _MIN_CONTACTS:
                break
            centre /= used
            extent = 1e-12
            for k in range(used):
                for m in range(3):
                    extent += (p[k, m] - centre[m]) ** 2
            extent = math.sqrt(extent / used)
            A[:], b[:] = 0, 0
            for k in range(used):
                x = (p[k, 0] - centre[0]) / extent
                y = (p[k, 1] - centre[1]) / extent
                z = (p[k, 2] - centre[2]) / extent
                row[0], row[1], row[2] = n[k, 0], n[k, 1], n[k, 2]
                row[3] = y * n[k, 2] - z * n[k, 1]
                row[4] = z * n[k, 0] - x * n[k, 2]
                row[5] = x * n[k, 1] - y * n[k, 0]
                for i in range(6):
                    b[i] += row[i] * gaps[k]
                    for j in range(i + 1):
                        A[i, j] += row[i] * row[j]
            _solve(A, b)
            _move(T, centre, b, extent)


@inline
def _solve(A: Any, b: Any) -> None:
    """Solve the damped system A x = b by Cholesky factors, in place; only the lower half of A is used."""
    largest = 0.0
    for i in range(6):
        largest = max(largest, A[i, i])
    for i in range(6):
        A[i, i] += _DAMPING * largest
        for j in range(i + 1):
            total = A[i, j]
            for k in range(j):
                total -= A[i, k] * A[j, k]
            A[i, j] = math.sqrt(max(total, 1e-300)) if i == j else total / A[j, j]
    for i in range(6):
        for k in range(i):
            b[i] -= A[i, k] * b[k]
        b[i] /= A[i, i]
    for i in range(5, -1, -1):
        for k in range(i + 1, 6):
            b[i] -= A[k, i] * b[k]
        b[i] /= A[i, i]


@inline
def _move(T: Any, centre: Any, twist: Any, extent: float) -> None:
    """Turn a pose about a centre and shift it, in place."""
    x, y, z = twist[3] / extent, twist[4] / extent, twist[5] / extent
    angle = math.sqrt(x * x + y * y + z * z)
    if angle > 1e-12:
        x, y, z = x / angle, y / angle, z / angle
    c, s = math.cos(angle), math.sin(angle)
    d = 1 - c
    for column in range(4):
        a0, a1, a2 = T[0, column], T[1, column], T[2, column]
        if column == 3:
            a0, a1, a2 = a0 - centre[0], a1 - centre[1], a2 - centre[2]
        along = d * (x * a0 + y * a1 + z * a2)
        T[0, column] = c * a0 + s * (y * a2 - z * a1) + along * x
        T[1, column] = c * a1 + s * (z * a0 - x * a2) + along * y
        T[2, column] = c * a2 + s * (x * a1 - y * a0) + along * z
    for m in range(3):
        T[m, 3] += centre[m] + twist[m]
