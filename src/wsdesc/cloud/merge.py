"""Many scans, one cloud: points averaged in voxels, a scan at a time.

Memory follows the size of the model, the voxels that hold anything, and not the number of scans.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from wsdesc.cloud.cloud import as_points
from wsdesc.core.errors import InputError

_BITS = 21  # of a cell along each axis
_HALF = 1 << (_BITS - 1)
_AT_ONCE = 1_000_000  # points that are sorted into voxels at a time


class VoxelMerge:
    """Sums and numbers of points in the cubic voxels of a grid, which grows with what is added."""

    def __init__(self, size: float) -> None:
        """`size` is the side of a voxel, in the unit of the points."""
        if not 0 < size < np.inf:
            raise InputError(f"a voxel size must be positive, not {size}")
        self.size = size
        self.origin: NDArray[np.float64] | None = None  # a corner of the grid near the first points
        self.cells = np.empty(0, np.int64)  # (V,) ascending
        self.sums = np.empty((0, 3))  # (V, 3) of the points about the origin, which keeps them small
        self.counts = np.empty(0, np.int64)  # (V,)

    def add(self, points: Any, T_world_scan: Any = None) -> None:
        """Add points (N, 3) of a scan, moved by its pose (4, 4) if there is one."""
        points = as_points(points)
        T = np.eye(4) if T_world_scan is None else np.asarray(T_world_scan, dtype=np.float64)
        for start in range(0, len(points), _AT_ONCE):
            some = points[start : start + _AT_ONCE].astype(np.float64)
            self._add(some @ T[:3, :3].T + T[:3, 3] if T_world_scan is not None else some)

    @property
    def points(self) -> NDArray[np.float64]:
        """(V, 3) the mean of each voxel, in the order of the voxels."""
        if self.origin is None:
            return np.empty((0, 3))
        return np.asarray(self.sums / self.counts[:, None] + self.origin)

    def _add(self, points: NDArray[np.float64]) -> None:
        if self.origin is None:
            # On the grid that has a corner at zero, so that it does not matter which scan comes first.
            self.origin = np.floor(points[0] / self.size) * self.size
        local = points - self.origin
        index = np.floor(local / self.size)
        if not np.abs(index).max() < _HALF:
            raise InputError(
                f"voxels of {self.size:g} cut the merged cloud into over {_HALF} cells an axis: "
                "choose larger ones"
            )
        x, y, z = (index.astype(np.int64) + _HALF).T
        cells, place = np.unique((x << 2 * _BITS) | (y << _BITS) | z, return_inverse=True)
        sums = np.empty((len(cells), 3))
        for axis in range(3):
            sums[:, axis] = np.bincount(place, local[:, axis], len(cells))
        self._join(cells, sums, np.bincount(place, minlength=len(cells)))

    def _join(self, cells: NDArray[np.int64], sums: NDArray[np.float64], counts: NDArray[np.int64]) -> None:
        """Add voxels, ascending, to those that are there."""
        at = np.searchsorted(self.cells, cells)
        there = at < len(self.cells)
        there[there] = self.cells[at[there]] == cells[there]
        self.sums[at[there]] += sums[there]
        self.counts[at[there]] += counts[there]
        new = ~there
        self.cells = np.insert(self.cells, at[new], cells[new])
        self.sums = np.insert(self.sums, at[new], sums[new], axis=0)
        self.counts = np.insert(self.counts, at[new], counts[new])
