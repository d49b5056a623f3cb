"""Merging of registered scans into one cloud, by voxel averages.

Scans are added one at a time. Memory depends on the number of occupied voxels, not on the number of scans.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wsdesc.cloud.cloud import Cloud, as_points
from wsdesc.cloud.formats.attributes import COLORS, NORMALS, narrow_colors
from wsdesc.cloud.storage import Storage
from wsdesc.core.errors import InputError
from wsdesc.core.geometry import CELL_BITS, cell_keys, check_length, transform

_HALF = 1 << (CELL_BITS - 1)  # cells per axis on either side of the origin
_POINTS_PER_CHUNK = 1_000_000  # limits the memory


class VoxelMerge:
    """Sums and counts of the points in each cubic voxel of a growing grid.

    Colours, intensity, normals and real numbers are averaged. Other whole numbers, such as classes, are those
    of the first point in the voxel. Attributes that a scan lacks are dropped.

    Attributes:
        size: Side of a voxel, in the unit of the points.
        cells: Keys of the occupied voxels (V,) int64, ascending.
        sums: Sum of the points in each voxel (V, 3), relative to `origin`, which keeps them small.
        counts: Number of points in each voxel (V,) int64.
        origin: Corner of the grid near the first points (3,); None without points.
    """

    def __init__(self, size: float) -> None:
        """Start an empty grid with voxels of `size`, in the unit of the points."""
        check_length(size, "the voxel size")
        self.size = size
        self.origin: NDArray[np.float64] | None = None
        self.cells = np.empty(0, np.int64)
        self.sums = np.empty((0, 3))
        self.counts = np.empty(0, np.int64)
        self._types: dict[str, np.dtype[Any]] | None = None  # of the attributes that all scans have
        self._values: dict[str, np.ndarray] = {}  # sums or first values (V,)
        self._single = True  # whether all scans have float32 coordinates

    def add(self, points: Any, T_world_scan: Any = None) -> None:
        """Add the points (N, 3) of a scan, transformed by its pose (4, 4) if there is one."""
        self.add_cloud(Cloud(as_points(points)), T_world_scan)

    def add_cloud(self, cloud: Cloud, T_world_scan: Any = None) -> None:
        """Add a scan with its attributes, transformed by its pose (4, 4) if there is one."""
        points = as_points(cloud.points)
        T = None if T_world_scan is None else np.asarray(T_world_scan, dtype=np.float64)
        moved = cloud if T is None or not cloud.attributes else cloud.transformed(T)  # rotates the normals
        attributes = {name: v for name, v in narrow_colors(moved.attributes).items() if v.ndim == 1}
        self._single &= cloud.storage is not None and cloud.storage.single
        self._keep_common(attributes)
        for start in range(0, len(points), _POINTS_PER_CHUNK):
            part = slice(start, start + _POINTS_PER_CHUNK)
            chunk = points[part].astype(np.float64)
            self._add(
                chunk if T is None else transform(chunk, T), {n: attributes[n][part] for n in self._values}
            )

    @property
    def points(self) -> NDArray[np.float64]:
        """Mean of the points in each voxel (V, 3), in the order of `cells`."""
        if self.origin is None:
            return np.empty((0, 3))
        return np.asarray(self.sums / self.counts[:, None] + self.origin)

    @property
    def cloud(self) -> Cloud:
        """The merged points with the attributes that all scans have."""
        attributes = {}
        for name, kind in (self._types or {}).items():
            values = self._values[name] / self.counts if is_averaged(name, kind) else self._values[name]
            attributes[name] = (np.round(values) if kind.kind in "iu" else values).astype(kind)
        if all(name in attributes for name in NORMALS):
            length = np.sqrt(sum(attributes[name].astype(np.float64) ** 2 for name in NORMALS))
            length = np.where(length > 0, length, 1.0)
            attributes |= {n: (attributes[n] / length).astype(attributes[n].dtype) for n in NORMALS}
        return Cloud(self.points, attributes, storage=Storage(".ply", single=self._single))

    def _keep_common(self, attributes: Mapping[str, np.ndarray]) -> None:
        """Drop attributes that a new scan lacks, and widen the types of the others."""
        types = {name: values.dtype for name, values in attributes.items()}
        if self._types is None:
            self._types = types
            self._values = {n: np.empty(0, np.float64 if is_averaged(n, t) else t) for n, t in types.items()}
            return
        common = {
            name: np.promote_types(old, types[name])
            for name, old in self._types.items()
            if name in types and is_averaged(name, old) == is_averaged(name, types[name])
        }
        self._types = common
        self._values = {
            name: self._values[name] if is_averaged(name, kind) else self._values[name].astype(kind)
            for name, kind in common.items()
        }

    def _add(self, points: NDArray[np.float64], attributes: Mapping[str, np.ndarray]) -> None:
        if self.origin is None:
            # A corner of the grid through zero, so that the order of the scans does not matter.
            self.origin = np.floor(points[0] / self.size) * self.size
        local = points - self.origin
        cell = np.floor(local / self.size)
        if not np.abs(cell).max() < _HALF:
            raise InputError(
                f"a voxel size of {self.size:g} gives more than {_HALF} cells per axis: choose a larger one"
            )
        keys = cell_keys(cell.astype(np.int64) + _HALF)
        cells, first, voxel = np.unique(keys, return_index=True, return_inverse=True)
        sums = np.empty((len(cells), 3))
        for axis in range(3):
            sums[:, axis] = np.bincount(voxel, local[:, axis], len(cells))
        values = {
            name: np.bincount(voxel, column, len(cells)) if is_averaged(name, column.dtype) else column[first]
            for name, column in attributes.items()
        }
        self._join(cells, sums, np.bincount(voxel, minlength=len(cells)), values)

    def _join(
        self,
        cells: NDArray[np.int64],
        sums: NDArray[np.float64],
        counts: NDArray[np.int64],
        values: Mapping[str, np.ndarray],
    ) -> None:
        """Add the voxels with these ascending keys to the grid."""
        at = np.searchsorted(self.cells, cells)
        old = at < len(self.cells)
        old[old] = self.cells[at[old]] == cells[old]
        self.sums[at[old]] += sums[old]
        self.counts[at[old]] += counts[old]
        for name, column in values.items():
            if column.dtype.kind == "f":  # sums; labels are whole numbers
                self._values[name][at[old]] += column[old]
            self._values[name] = np.insert(self._values[name], at[~old], column[~old])
        self.cells = np.insert(self.cells, at[~old], cells[~old])
        self.sums = np.insert(self.sums, at[~old], sums[~old], axis=0)
        self.counts = np.insert(self.counts, at[~old], counts[~old])


def is_averaged(name: str, kind: np.dtype[Any]) -> bool:
    """Return whether an attribute is a quantity; other whole numbers are labels."""
    return kind.kind == "f" or name in (*COLORS, "intensity")
