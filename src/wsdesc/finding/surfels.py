"""Surfels: a scene as small planes, with a table that finds the one near a position.

A surfel is the mean of the points in a cell. Its normal comes from the points in the cells around it. A hash
table lists, for each lookup cell near the surface, the surfel nearest to the middle of that cell. Kernels
look up millions of positions a second in it; a tree takes twenty times as long.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from wsdesc.cloud.neighbours import NeighbourGrid
from wsdesc.core.geometry import CELL_BITS, CELL_STEPS, Floats, cell_keys
from wsdesc.core.kernels import inline, kernel, run_in_chunks
from wsdesc.core.planes import LINE_RATIO, diagonalise

_MIN_PLANE_POINTS = 6
_CONTACT_COSINE = np.cos(np.radians(35))  # smallest cosine between the normals of a contact
_HASH_FACTOR = -7046029254386353131  # golden ratio times 2⁶⁴, as a signed integer
_AXIS_CELLS = 1 << CELL_BITS


class Lookup(NamedTuple):
    """Hash table from cells to surfels."""

    low: Floats  # (3,) corner of the cells
    cell: float
    keys: NDArray[np.int64]  # (C,) cell of each slot, -1 if it is empty
    items: NDArray[np.int32]  # (C,) surfel of each slot


class Surfels(NamedTuple):
    """Small planes of a scene."""

    points: Floats  # (N, 3)
    normals: Floats  # (N, 3) of arbitrary sign; zero where points form no surface
    lookup: Lookup  # table of the surfels with a normal


def make_surfels(points: Floats, side: float, noise: float) -> tuple[Floats, Floats]:
    """Join points (N, 3) in cells of this side; return means and normals (M, 3).

    Normals are zero where the curvature of the points around is above `noise`.
    """
    cells = np.floor((points - points.min(axis=0)) / side).astype(np.int64) + 1
    keys, cell = np.unique(cell_keys(cells), return_inverse=True)
    sums = cell_moments(points, cell, len(keys))
    table_keys, table_items = hashed(keys)
    normals = np.zeros((len(keys), 3))
    beside = np.asarray(cell_keys(CELL_STEPS))
    run_in_chunks(_fit, len(keys), keys, beside, table_keys, table_items, sums, noise, normals, chunk=2048)
    return sums[:, 1:4] / sums[:, :1] + points.mean(axis=0), normals


def cell_moments(points: Floats, cell: NDArray[np.intp], count: int) -> Floats:
    """Add up 1, the positions about their mean, and the products (count, 10) of points in cells."""
    x, y, z = (points - points.mean(axis=0)).T
    columns = (np.ones(len(points)), x, y, z, x * x, x * y, x * z, y * y, y * z, z * z)
    return np.stack([np.bincount(cell, column, count) for column in columns], axis=1)


def ball_normals(points: Floats, radius: float, noise: float) -> Floats:
    """Fit planes to the points within a radius of each point; return normals (N, 3) as `make_surfels`."""
    near = NeighbourGrid.of(torch.from_numpy(points)).within(torch.from_numpy(points), radius)
    normals = np.zeros(points.shape)
    run_in_chunks(
        _fit_ball, len(points), points, near.indices.numpy(), near.starts.numpy(), noise, normals, chunk=512
    )
    return normals


def make_lookup(points: Floats, cell: float) -> Lookup:
    """Build the table of points (N, 3); positions up to about 1.5 cells away find one."""
    low = points.min(axis=0) - 2 * cell if len(points) else np.zeros(3)
    size = 1 << max(4, (4 * len(points)).bit_length())
    while True:
        keys, items = np.full(size, -1, np.int64), np.zeros(size, np.int32)
        if _fill(points, low, cell, keys, items, np.empty(size, np.float32)):
            return Lookup(low, cell, keys, items)
        size *= 2


class Contacts(NamedTuple):
    """Where the points of an object in several poses touch a scene."""

    touching: NDArray[np.bool_]  # (H, S)
    cosine: NDArray[np.float32]  # (H, S) of both normals; 0 where nothing is near


def contacts(surfels: Surfels, points: Floats, normals: Floats, poses: Floats, distance: float) -> Contacts:
    """Find which points (S, 3) of an object in poses (H, 4, 4) are within a distance of the scene."""
    shape = (len(poses), len(points))
    result = Contacts(np.zeros(shape, bool), np.zeros(shape, np.float32))
    run_in_chunks(
        _contacts, len(poses), np.ascontiguousarray(poses), points, normals, distance, surfels.points,
        surfels.normals, *surfels.lookup, *result,
    )  # fmt: skip
    return result


def hashed(keys: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Build a hash table of distinct keys."""
    size = 1 << (2 * len(keys)).bit_length()
    table_keys, table_items = np.full(size, -1, np.int64), np.zeros(size, np.int32)
    _insert(keys, table_keys, table_items)
    return table_keys, table_items


@inline
def slot_of(key: int, keys: Any) -> int:
    """Return the slot of a key, or the empty slot where it belongs."""
    mask = len(keys) - 1
    slot = ((key * _HASH_FACTOR) >> 24) & mask
    while keys[slot] != key and keys[slot] >= 0:
        slot = (slot + 1) & mask
    return slot


@inline
def surfel_at(x: float, y: float, z: float, low: Any, cell: float, keys: Any, items: Any) -> int:
    """Return the surfel near a position, or -1."""
    a, b, c = np.floor((x - low[0]) / cell), np.floor((y - low[1]) / cell), np.floor((z - low[2]) / cell)
    if not (0 <= a < _AXIS_CELLS and 0 <= b < _AXIS_CELLS and 0 <= c < _AXIS_CELLS):
        return -1
    slot = slot_of((int(a) << 42) | (int(b) << 21) | int(c), keys)
    return items[slot] if keys[slot] >= 0 else -1


@kernel
def _insert(new: Any, keys: Any, items: Any) -> None:
    for k in range(len(new)):
        slot = slot_of(new[k], keys)
        keys[slot], items[slot] = new[k], k


@kernel
def _fill(points: Any, low: Any, cell: float, keys: Any, items: Any, gaps: Any) -> bool:
    """Enter points into the cells around them, the nearest one into each; False if the table is too small."""
    used, capacity = 0, int(0.6 * len(keys))
    for k in range(len(points)):
        a = int((points[k, 0] - low[0]) / cell)
        b = int((points[k, 1] - low[1]) / cell)
        c = int((points[k, 2] - low[2]) / cell)
        for u in range(max(a - 1, 0), min(a + 2, _AXIS_CELLS)):
            x = low[0] + (u + 0.5) * cell - points[k, 0]
            for v in range(max(b - 1, 0), min(b + 2, _AXIS_CELLS)):
                y = low[1] + (v + 0.5) * cell - points[k, 1]
                for w in range(max(c - 1, 0), min(c + 2, _AXIS_CELLS)):
                    z = low[2] + (w + 0.5) * cell - points[k, 2]
                    gap = x * x + y * y + z * z
                    key = (u << 42) | (v << 21) | w
                    slot = slot_of(key, keys)
                    if keys[slot] < 0:
                        if used >= capacity:
                            return False
                        used += 1
                        keys[slot], items[slot], gaps[slot] = key, k, gap
                    elif gap < gaps[slot]:
                        items[slot], gaps[slot] = k, gap
    return True


@kernel
def _fit(
    start: int,
    stop: int,
    cell: Any,
    beside: Any,
    keys: Any,
    items: Any,
    sums: Any,
    noise: float,
    normals: Any,
) -> None:
    """Fit planes to the points of cells and of those around them."""
    total, cov, vec = np.empty(10), np.empty((3, 3)), np.empty((3, 3))
    for k in range(start, stop):
        total[:] = 0
        for step in beside:
            slot = slot_of(cell[k] + step, keys)
            if keys[slot] >= 0:
                for m in range(10):
                    total[m] += sums[items[slot], m]
        _fit_plane(total, cov, vec, noise, normals[k])


@kernel
def _fit_ball(start: int, stop: int, points: Any, near: Any, starts: Any, noise: float, normals: Any) -> None:
    """Fit planes to the points around each point."""
    total, cov, vec = np.empty(10), np.empty((3, 3)), np.empty((3, 3))
    for k in range(start, stop):
        total[:] = 0
        for m in near[starts[k] : starts[k + 1]]:
            x, y, z = points[m, 0] - points[k, 0], points[m, 1] - points[k, 1], points[m, 2] - points[k, 2]
            total[0] += 1
            total[1] += x
            total[2] += y
            total[3] += z
            total[4] += x * x
            total[5] += x * y
            total[6] += x * z
            total[7] += y * y
            total[8] += y * z
            total[9] += z * z
        _fit_plane(total, cov, vec, noise, normals[k])


@inline
def _fit_plane(total: Any, cov: Any, vec: Any, noise: float, normal: Any) -> None:
    """Write the normal of the plane through points with these moments (10,); leave it if there is none."""
    if total[0] < _MIN_PLANE_POINTS:
        return
    entry = 4
    for i in range(3):
        for j in range(i, 3):
            cov[i, j] = total[entry] / total[0] - total[1 + i] * total[1 + j] / total[0] ** 2
            entry += 1
    low, middle, high = diagonalise(cov, vec)
    if 3 * low < noise * (low + middle + high) and middle > LINE_RATIO * high:
        for i in range(3):
            normal[i] = vec[0, i]


@inline
def touched_surfel(
    T: Any, point: Any, normal: Any, distance: float, surfels: Any, surfel_normals: Any, low: Any,
    cell: float, keys: Any, items: Any,
) -> Any:  # fmt: skip
    """Move a point by a pose; return its position, the surfel it touches or -1, and the normals' cosine."""
    x = T[0, 0] * point[0] + T[0, 1] * point[1] + T[0, 2] * point[2] + T[0, 3]
    y = T[1, 0] * point[0] + T[1, 1] * point[1] + T[1, 2] * point[2] + T[1, 3]
    z = T[2, 0] * point[0] + T[2, 1] * point[1] + T[2, 2] * point[2] + T[2, 3]
    i = surfel_at(x, y, z, low, cell, keys, items)
    if i < 0:
        return x, y, z, -1, 0.0
    dx, dy, dz = x - surfels[i, 0], y - surfels[i, 1], z - surfels[i, 2]
    u, v, w = surfel_normals[i, 0], surfel_normals[i, 1], surfel_normals[i, 2]
    if abs(dx * u + dy * v + dz * w) > distance or dx * dx + dy * dy + dz * dz > (distance + cell) ** 2:
        return x, y, z, -1, 0.0
    a = T[0, 0] * normal[0] + T[0, 1] * normal[1] + T[0, 2] * normal[2]
    b = T[1, 0] * normal[0] + T[1, 1] * normal[1] + T[1, 2] * normal[2]
    c = T[2, 0] * normal[0] + T[2, 1] * normal[1] + T[2, 2] * normal[2]
    cosine = abs(a * u + b * v + c * w)
    return x, y, z, i if cosine > _CONTACT_COSINE else -1, cosine


@kernel
def _contacts(
    start: int, stop: int, poses: Any, points: Any, normals: Any, distance: float, surfels: Any,
    surfel_normals: Any, low: Any, cell: float, keys: Any, items: Any, touching: Any, cosines: Any,
) -> None:  # fmt: skip
    """Look up the points of an object in the poses of a range."""
    for h in range(start, stop):
        for k in range(len(points)):
            _, _, _, i, cosine = touched_surfel(
                poses[h], points[k], normals[k], distance, surfels, surfel_normals, low, cell, keys, items
            )
            touching[h, k], cosines[h, k] = i >= 0, cosine
