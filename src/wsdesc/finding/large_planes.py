"""Large planes of a scene: floors, walls and table tops, which are no part of the object.

A cell has half the object's size. It is flat if only one plane is in it and in the cells around it, and if
that plane is wider than the object. Points near a flat cell that lie in its plane belong to it, too. The
floor is therefore left out up to the foot of the object.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from wsdesc.core.geometry import CELL_STEPS, Floats, cell_keys
from wsdesc.core.kernels import kernel, run_in_chunks
from wsdesc.finding.surfels import cell_moments, hashed, slot_of

_MAX_THICKNESS, _MIN_WIDTH = 0.02, 0.33  # root mean squares of a large plane, in object diameters
_PLANE_DISTANCE = 0.03  # object diameters: points this close to a plane belong to it
_PARALLEL_COSINE = np.cos(np.radians(25))  # smallest cosine between the normals of a point and its plane
_CELL_RADIUS = 2  # cells around a point in which its plane is searched for
_PRODUCTS = np.array([[4, 5, 6], [5, 7, 8], [6, 8, 9]])  # columns of the moments


class LargePlanes(NamedTuple):
    """Flat cells and their planes."""

    low: Floats  # (3,) corner of the cells
    cell: float  # side of a cell
    keys: NDArray[np.int64]  # hash table of the flat cells
    items: NDArray[np.int32]  # number of the cell in each slot
    means: Floats  # (C, 3) a point of each plane
    normals: Floats  # (C, 3)

    def contain(self, points: Floats, normals: Floats) -> NDArray[np.bool_]:
        """Find the points (N, 3) with normals (N, 3) that belong to a large plane."""
        inside = np.zeros(len(points), bool)
        level = 2 * _PLANE_DISTANCE * self.cell
        run_in_chunks(_contain, len(points), points, normals, *self, level, inside, chunk=1024)
        return inside


def find_large_planes(points: Floats, size: float) -> LargePlanes:
    """Find the planes of a scene (N, 3) that are larger than an object of this diameter."""
    cell = size / 2
    low = points.min(axis=0) - (_CELL_RADIUS + 1) * cell
    cells = np.floor((points - low) / cell).astype(np.int64)
    keys, cell_of = np.unique(cell_keys(cells), return_inverse=True)
    sums = cell_moments(points, cell_of, len(keys))
    total = np.zeros_like(sums)
    for offset in CELL_STEPS:
        beside = keys + cell_keys(offset)
        at = np.minimum(np.searchsorted(keys, beside), len(keys) - 1)
        total += np.where((keys[at] == beside)[:, None], sums[at], 0.0)
    total /= total[:, :1]
    mean = total[:, 1:4]
    values, vectors = np.linalg.eigh(total[:, _PRODUCTS] - np.einsum("ci,cj->cij", mean, mean))
    thick, wide, _ = np.sqrt(np.maximum(values, 0.0)).T
    flat = (thick < _MAX_THICKNESS * size) & (wide > _MIN_WIDTH * size)
    means = np.ascontiguousarray(mean[flat] + points.mean(axis=0))
    return LargePlanes(low, cell, *hashed(keys[flat]), means, np.ascontiguousarray(vectors[flat, :, 0]))


@kernel
def _contain(
    start: int, stop: int, points: Any, normals: Any, low: Any, cell: float, keys: Any, items: Any,
    means: Any, plane_normals: Any, level: float, inside: Any,
) -> None:  # fmt: skip
    """Compare each point of a range with the planes of the flat cells around it."""
    for k in range(start, stop):
        a = int((points[k, 0] - low[0]) / cell)
        b = int((points[k, 1] - low[1]) / cell)
        c = int((points[k, 2] - low[2]) / cell)
        for u in range(a - _CELL_RADIUS, a + _CELL_RADIUS + 1):
            for v in range(b - _CELL_RADIUS, b + _CELL_RADIUS + 1):
                for w in range(c - _CELL_RADIUS, c + _CELL_RADIUS + 1):
                    slot = slot_of((u << 42) | (v << 21) | w, keys)
                    if inside[k] or keys[slot] < 0:
                        continue
                    plane = items[slot]
                    height, cosine = 0.0, 0.0
                    for i in range(3):
                        height += (points[k, i] - means[plane, i]) * plane_normals[plane, i]
                        cosine += normals[k, i] * plane_normals[plane, i]
                    inside[k] = abs(height) < level and abs(cosine) > _PARALLEL_COSINE
