"""Merging of registered scans into one cloud, by voxel averages.

Scans are added one at a time. Memory depends on the number of occupied voxels, not on the number of scans.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from wsdesc.cloud.cloud import as_points
from wsdesc.core.errors import InputError
from wsdesc.core.geometry import CELL_BITS, cell_keys, check_length, transform

_HALF = 1 << (CELL_BITS - 1)  # cells per axis on either side of the origin
_POINTS_PER_CHUNK = 1_000_000  # limits the memory


class VoxelMerge:
    """Sums and counts of the points in each cubic voxel of a growing grid.

    Attributes:
        size: side of a voxel, in the unit of the points.
        cells: keys of the occupied voxels (V,) int64, ascending.
        sums: of the points in each voxel (V, 3), relative to `origin`, which keeps them small.
        counts: of the points in each voxel (V,) int64.
        origin: corner of the grid near the first points (3,); None without points.
    """

    def __init__(self, size: float) -> None:
        """Start an empty grid with voxels of `size`, in the unit of the points."""
        check_length(size, "the voxel size")
        self.size = size
        self.origin: NDArray[np.float64] | None = None
        self.cells = np.empty(0, np.int64)
        self.sums = np.empty((0, 3))
        self.counts = np.empty(0, np.int64)

    def add(self, points: Any, T_world_scan: Any = None) -> None:
        """Add the points (N, 3) of a scan, transformed by its pose (4, 4) if there is one."""
        points = as_points(points)
        T = None if T_world_scan is None else np.asarray(T_world_scan, dtype=np.float64)
        for start in range(0, len(points), _POINTS_PER_CHUNK):
            chunk = points[start : start + _POINTS_PER_CHUNK].astype(np.float64)
            self._add(chunk if T is None else transform(chunk, T))

    @property
    def points(self) -> NDArray[np.float64]:
        """Mean of the points in each voxel (V, 3), in the order of `cells`."""
        if self.origin is None:
            return np.empty((0, 3))
        return np.asarray(self.sums / self.counts[:, None] + self.origin)

    def _add(self, points: NDArray[np.float64]) -> None:
        if self.origin is None:
            # A corner of the grid through zero, so that the order of the scans does not matter.
            self.origin = np.floor(points[0] / self.size) * self.size
        local = points - self.origin
        cell = np.floor(local / self.size)
        if not np.abs(cell).max() < _HALF:
            raise InputError(
                f"a voxel size of {self.size:g} gives more than {_HALF} cells per axis: choose a larger one"
            )
        cells, voxel = np.unique(cell_keys(cell.astype(np.int64) + _HALF), return_inverse=True)
        sums = np.empty((len(cells), 3))
        for axis in range(3):
            sums[:, axis] = np.bincount(voxel, local[:, axis], len(cells))
        self._join(cells, sums, np.bincount(voxel, minlength=len(cells)))

    def _join(self, cells: NDArray[np.int64], sums: NDArray[np.float64], counts: NDArray[np.int64]) -> None:
        """Add the voxels with these ascending keys to the grid."""
        at = np.searchsorted(self.cells, cells)
        old = at < len(self.cells)
        old[old] = self.cells[at[old]] == cells[old]
        self.sums[at[old]] += sums[old]
        self.counts[at[old]] += counts[old]
        self.cells = np.insert(self.cells, at[~old], cells[~old])
        self.sums = np.insert(self.sums, at[~old], sums[~old], axis=0)
        self.counts = np.insert(self.counts, at[~old], counts[~old])
