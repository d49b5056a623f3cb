"""Neighbours of all points of a cloud, found in blocks of grid cells by compiled kernels.

The cells are a sorted list of keys, so memory does not depend on the extent of the cloud. The neighbours of
the points of a cell are searched in the block of 3 × 3 × 3 cells around it. Each of its nine columns is
contiguous in memory. This takes half the time of a k-d tree.
"""

from __future__ import annotations

from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from wsdesc.core.geometry import CELL_BITS, Array, Floats, bounding_box, pack_cell
from wsdesc.core.kernels import inline, kernel, run_in_chunks

_POINTS_PER_CELL = 12.0  # wanted points of a cell on a surface; a block then holds about 100 points
_MAX_POINTS_PER_CELL = (200, 2000, 2000)  # limit of each pass; with denser cells a tree is faster
_CELLS_AT_ONCE = 256
# From the key of a cell to the lowest cell of each column of its block; its own column is the first.
_COLUMNS = np.array([pack_cell(side % 9 // 3 - 1, side % 3 - 1, -1) for side in range(4, 13)])
_FIRST_CELLS = 64  # cells along the extent, to measure the density


class Cells(NamedTuple):
    """Points sorted by their cells."""

    points: Array  # (N, 3) by cell
    order: NDArray[np.int64]  # (N,) index of each of them in the given points
    keys: NDArray[np.int64]  # (M,) of the occupied cells, ascending
    starts: NDArray[np.int64]  # (M + 1,) first point of each cell
    low: Floats  # (3,) corner of the grid
    size: float  # side of a cell

    @classmethod
    def of(cls, points: Array, size: float) -> Self:
        """Sort finite points (N, 3), N ≥ 1; cells that are too many for their keys grow."""
        low, high = bounding_box(points)
        low = low.astype(np.float64)
        extent = float((high - low).max())
        size = max(size, extent / (1 << CELL_BITS - 1), 1e-300)
        low = low - size  # the first cell is 1: all cells have neighbours
        keys = _cell_keys(points, low, size)
        order = np.argsort(keys, kind="stable")
        keys = keys[order]
        first = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]]))
        starts = np.append(first, len(points))
        return cls(np.ascontiguousarray(points[order]), order, keys[first], starts, low, size)

    @property
    def largest(self) -> int:
        """Number of points in the fullest cell."""
        return int(np.diff(self.starts).max())


def count_within(points: NDArray[np.float32], radius: float) -> NDArray[np.int64]:
    """Count the points within `radius` of each of the points (N, 3), itself included; (N,)."""
    cells = Cells.of(points, radius * (1 + 1e-5))
    counts = np.empty(len(points), np.int64)
    arrays = (cells.points, cells.order, cells.keys, cells.starts)
    limits = (np.float32(radius), 27 * cells.largest)
    run_in_chunks(_count, len(cells.keys), *arrays, *limits, counts, chunk=_CELLS_AT_ONCE)
    return counts


def nearest_neighbours(
    points: Floats, count: int, chosen: NDArray[np.int64] | None = None
) -> NDArray[np.int64]:
    """Find the `count` nearest points of points (N, 3), nearest first, itself included.

    Args:
        points: (N, 3) finite.
        count: At most N.
        chosen: (M,) indices of the points whose neighbours are wanted; all points if it is not given.

    Returns:
        (M, count) indices.
    """
    near, complete = np.empty((len(points), count), np.int64), np.zeros(len(points), np.bool_)
    if chosen is not None:
        complete[:] = True
        complete[chosen] = False
    _search(points, near, complete)
    return near if chosen is None else near[chosen]


def _search(points: Floats, near: NDArray[np.int64], complete: NDArray[np.bool_]) -> None:
    """Write the neighbours (N, count) of the points that are not yet complete (N,)."""
    size = _cell_size(points)
    for limit in _MAX_POINTS_PER_CELL:
        cells = Cells.of(points, size)
        if cells.largest > limit:
            break
        arrays = (*cells, 27 * cells.largest, near, complete)
        run_in_chunks(_nearest, len(cells.keys), *arrays, chunk=_CELLS_AT_ONCE)
        if complete.all():
            return
        size *= 3  # the points that need a larger block are few
    from scipy.spatial import cKDTree  # slow to import

    missing = np.flatnonzero(~complete)
    near[missing] = cKDTree(points).query(points[missing], near.shape[1])[1].reshape(len(missing), -1)


def _cell_size(points: Floats) -> float:
    """Choose the size of cells from the number of points per cell of a coarser grid on a surface."""
    low, high = bounding_box(points)
    size = float((high - low).max()) / _FIRST_CELLS
    if size == 0:
        return 1.0
    keys = np.sort(_cell_keys(points, low, size))  # faster than np.unique
    occupied = 1 + np.count_nonzero(keys[1:] != keys[:-1])
    return size * float(np.sqrt(_POINTS_PER_CELL * occupied / len(points)))


def _cell_keys(points: Array, low: Floats, size: float) -> NDArray[np.int64]:
    """Number the cells of points (N, 3); (N,)."""
    x, y, z = ((points - low) / size).T.astype(np.int64)
    return np.asarray(pack_cell(x, y, z))


@inline
def _gather(cell, columns, points, keys, starts, x, y, z, index):  # type: ignore[no-untyped-def]
    """Copy the points of the block around a cell; return how many.

    `columns` (9,) holds where the columns of the previous cell begin: cells come in ascending order, so the
    search continues there.
    """
    n = 0
    for column in range(9):
        first = keys[cell] + _COLUMNS[column]
        at = columns[column]
        while at < len(keys) and keys[at] < first:
            at += 1
        columns[column] = at
        while at < len(keys) and keys[at] <= first + 2:
            for p in range(starts[at], starts[at + 1]):
                x[n], y[n], z[n], index[n] = points[p, 0], points[p, 1], points[p, 2], p
                n += 1
            at += 1
    return n


@inline
def _first_columns(cell, keys, columns):  # type: ignore[no-untyped-def]
    """Find the columns of the first cell of a chunk, by bisection."""
    for column in range(9):
        first = keys[cell] + _COLUMNS[column]
        low, high = np.int64(0), np.int64(len(keys))
        while low < high:
            middle = (low + high) // 2
            if keys[middle] < first:
                low = middle + 1
            else:
                high = middle
        columns[column] = low


@kernel(
    types="int64, int64, float32[:, ::1], int64[::1], int64[::1], int64[::1], float32, int64, int64[::1]",
)
def _count(start, stop, points, order, keys, starts, radius, capacity, counts):  # type: ignore[no-untyped-def]
    x, y, z = np.empty(capacity, np.float32), np.empty(capacity, np.float32), np.empty(capacity, np.float32)
    index, columns = np.empty(capacity, np.int64), np.zeros(9, np.int64)
    _first_columns(start, keys, columns)
    for cell in range(start, stop):
        n = _gather(cell, columns, points, keys, starts, x, y, z, index)
        for p in range(starts[cell], starts[cell + 1]):
            total = 0
            for m in range(n):
                dx, dy, dz = x[m] - points[p, 0], y[m] - points[p, 1], z[m] - points[p, 2]
                total += dx * dx + dy * dy + dz * dz <= radius * radius
            counts[order[p]] = total


@kernel(
    types="int64, int64, float64[:, ::1], int64[::1], int64[::1], int64[::1], float64[::1], float64, int64, "
    "int64[:, ::1], boolean[::1]",
)
def _nearest(start, stop, points, order, keys, starts, low, size, capacity, near, complete):  # type: ignore[no-untyped-def]
    count = near.shape[1]
    x, y, z = np.empty(capacity), np.empty(capacity), np.empty(capacity)
    index, columns, squared = np.empty(capacity, np.int64), np.zeros(9, np.int64), np.empty(capacity)
    best, place = np.empty(count), np.empty(count, np.int32)
    _first_columns(start, keys, columns)
    for cell in range(start, stop):
        n = 0
        for p in range(starts[cell], starts[cell + 1]):
            if complete[order[p]]:
                continue
            if n == 0:
                n = _gather(cell, columns, points, keys, starts, x, y, z, index)
            px, py, pz = points[p, 0], points[p, 1], points[p, 2]
            for m in range(n):
                dx, dy, dz = x[m] - px, y[m] - py, z[m] - pz
                squared[m] = dx * dx + dy * dy + dz * dz
            used, worst = 0, np.inf
            for m in range(n):
                value = squared[m]
                if value < worst:
                    used = min(used + 1, count)
                    at = used - 1
                    while at > 0 and best[at - 1] > value:
                        best[at], place[at] = best[at - 1], place[at - 1]
                        at -= 1
                    best[at], place[at] = value, m
                    if used == count:
                        worst = best[count - 1]
            for at in range(used):
                near[order[p], at] = order[index[place[at]]]
            margin = size  # from the point to the border of the block
            for axis in range(3):
                offset = (points[p, axis] - low[axis]) % size
                margin = min(margin, size + min(offset, size - offset))
            complete[order[p]] = worst <= margin * margin * (1 - 1e-9)
