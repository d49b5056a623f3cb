"""Nearest points within a small distance, by a grid of cells and a compiled kernel.

A k-d tree finds nearest points at any distance. Poses are compared within a few resolutions only, for which a
grid takes a third of the time. Each cell knows how many rings of cells around it are empty, so that queries
in empty space end at once. Points of neighbouring cells along z are contiguous in memory.
"""

from __future__ import annotations

import math
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from wsdesc.core.geometry import Floats, bounding_box
from wsdesc.core.kernels import inline, kernel

RINGS = 6  # largest distance of a query, in cells: 27 spacings
_SPACINGS = 4.5  # side of a cell over the spacing of the points
_CELLS_PER_POINT = 100  # larger grids get larger cells
_IDENTITY = np.eye(4)


class NearestGrid(NamedTuple):
    """Points in cells of a grid, with a border of `RINGS` empty cells."""

    points: Floats  # (N, 3) by cell
    order: NDArray[np.int64]  # (N,) index of each of them in the given points
    low: Floats  # (3,) corner of the grid
    size: float  # side of a cell
    starts: NDArray[np.int64]  # (cells + 1,) first point of each cell
    empty_rings: NDArray[np.uint8]  # (X, Y, Z) rings around a cell, itself the first, without points

    @classmethod
    def of(cls, points: Floats, spacing: float) -> Self:
        """Build the grid of points (N, 3), N ≥ 1, finite, with their typical spacing."""
        low, high = bounding_box(points)
        size = max(_SPACINGS * spacing, float((high - low).max()) / 1e5, 1e-300)
        while True:
            shape = np.floor((high - low) / size) + 1 + 2 * RINGS
            if shape.prod() <= max(_CELLS_PER_POINT * len(points), 1 << 16):
                break
            size *= 1.5
        low = low - RINGS * size
        X, Y, Z = (int(side) for side in shape)
        x, y, z = np.minimum(np.floor((points - low) / size).T.astype(np.int64), [[X - 1], [Y - 1], [Z - 1]])
        cells = (x * Y + y) * Z + z  # (N,)
        order = np.argsort(cells, kind="stable")
        counts = np.bincount(cells, minlength=X * Y * Z)
        starts = np.concatenate([[0], np.cumsum(counts)])
        rings = _empty_rings(counts.reshape(X, Y, Z) > 0)
        return cls(np.ascontiguousarray(points[order]), order, low, size, starts, rings)

    def scaled(self, factor: float) -> Self:
        """Return the grid of points that are multiplied by a factor."""
        return self._replace(points=factor * self.points, low=factor * self.low, size=factor * self.size)

    @property
    def reach(self) -> float:
        """Largest distance of a query."""
        return RINGS * self.size

    def query(
        self, points: Floats, max_distance: float, T: Floats | None = None
    ) -> tuple[Floats, NDArray[np.int64]]:
        """Find the nearest point of each of `points` (M, 3), nearer than `max_distance`.

        Args:
            points: The queries.
            max_distance: At most `reach`.
            T: (4, 4) from the frame of the queries to that of the grid; the identity if it is not given.

        Returns:
            distances (M,), infinite where there is none, and indices (M,), N where there is none, as the
            k-d tree of scipy returns them.
        """
        distance, index = np.empty(len(points)), np.empty(len(points), np.int64)
        T = _IDENTITY if T is None else np.ascontiguousarray(T)
        _find_nearest(np.ascontiguousarray(points), T, *self, max_distance, distance, index)
        return distance, index


def _empty_rings(occupied: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """Count the rings of cells around each cell (X, Y, Z) without points, up to RINGS + 1.

    The outer `RINGS` cells must be empty.
    """
    _, Y, Z = occupied.shape
    grown, rings = occupied.ravel().copy(), np.zeros(occupied.size, np.uint8)
    for _ in range(RINGS + 1):
        rings += ~grown
        for step in (1, Z, Y * Z):  # to the next cell along an axis; the empty border keeps rows apart
            before = grown.copy()
            grown[step:] |= before[:-step]
            grown[:-step] |= before[step:]
    return rings.reshape(occupied.shape)


@inline
def _gap(cell, position):  # type: ignore[no-untyped-def]
    """Return the distance of a position from a cell along an axis, in cells."""
    below, above = cell - position, position - (cell + 1)
    return below if below > 0.0 else (above if above > 0.0 else 0.0)


@kernel(
    types="float64[:, ::1], float64[:, ::1], float64[:, ::1], int64[::1], float64[::1], float64, "
    "int64[::1], uint8[:, :, ::1], float64, float64[::1], int64[::1]",
)
def _find_nearest(  # type: ignore[no-untyped-def]
    queries, T, points, order, low, size, starts, empty_rings, max_distance, distance, index
):
    X, Y, Z = empty_rings.shape
    for m in range(len(queries)):
        a, b, c = queries[m, 0], queries[m, 1], queries[m, 2]
        qx = T[0, 0] * a + T[0, 1] * b + T[0, 2] * c + T[0, 3]
        qy = T[1, 0] * a + T[1, 1] * b + T[1, 2] * c + T[1, 3]
        qz = T[2, 0] * a + T[2, 1] * b + T[2, 2] * c + T[2, 3]
        fx, fy, fz = (qx - low[0]) / size, (qy - low[1]) / size, (qz - low[2]) / size
        distance[m], index[m] = np.inf, len(points)
        if not (fx >= 0 and fy >= 0 and fz >= 0 and fx < X and fy < Y and fz < Z):
            continue
        x, y, z = int(fx), int(fy), int(fz)
        best, best_at = max_distance * max_distance, -1
        limit = best / (size * size) * (1 + 1e-9)  # in cells; rounding decides nothing
        searched = -1  # rings up to this one
        ring = int(empty_rings[x, y, z])  # the next one to search
        while ring <= RINGS and (ring < 2 or (ring - 1) * (ring - 1) < limit):
            for u in range(2 * ring + 1):  # nearest columns first: their points exclude most others
                i = x + ((u + 1) // 2 if u % 2 else -(u // 2))
                gap_x = _gap(i, fx)
                if i < 0 or i >= X or gap_x * gap_x > limit:
                    continue
                for v in range(2 * ring + 1):
                    j = y + ((v + 1) // 2 if v % 2 else -(v // 2))
                    gap_y = _gap(j, fy)
                    flat = gap_x * gap_x + gap_y * gap_y
                    if j < 0 or j >= Y or flat > limit:
                        continue
                    row, top = (i * Y + j) * Z, min(z + ring, Z - 1)
                    only_ends = abs(i - x) <= searched and abs(j - y) <= searched
                    for part in range(2 if only_ends else 1):
                        first = max(z - ring, 0) if part == 0 else top
                        last = first if only_ends else top
                        if only_ends:
                            gap_z = _gap(first, fz)
                            if flat + gap_z * gap_z > limit:
                                continue
                        for at in range(starts[row + first], starts[row + last + 1]):
                            p = np.uint64(at)  # an index that cannot be negative needs no check
                            dx, dy, dz = qx - points[p, 0], qy - points[p, 1], qz - points[p, 2]
                            squared = dx * dx + dy * dy + dz * dz
                            if squared < best:
                                best, best_at = squared, at
                                limit = best / (size * size) * (1 + 1e-9)
            searched = ring
            ring += 1
        if best_at >= 0:
            distance[m], index[m] = math.sqrt(best), order[best_at]
