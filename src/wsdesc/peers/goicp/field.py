"""Distances to a cloud on a regular grid."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import distance_transform_edt

from wsdesc.core.geometry import Floats
from wsdesc.core.kernels import inline, kernel

_WIDTH = 2.0  # side of the grid's cube over that of [−1, 1]³


@dataclass(frozen=True)
class DistanceField:
    """Distances from the nodes of a grid to the nearest node that holds a point of the cloud."""

    values: NDArray[np.float32]  # (cells, cells, cells)
    low: float  # coordinate of the first node on every axis
    step: float  # distance between nodes

    @classmethod
    def of(cls, points: Floats, cells: int) -> DistanceField:
        """Build the field of points (M, 3) in the cube [−1, 1]³."""
        low, step = -_WIDTH, 2 * _WIDTH / (cells - 1)
        free = np.ones((cells, cells, cells), dtype=bool)
        free[tuple(np.rint((points - low) / step).astype(np.intp).T)] = False
        values = distance_transform_edt(free, sampling=step)
        return cls(np.ascontiguousarray(values, np.float32), low, step)

    def at(self, points: Floats) -> Floats:
        """Look up the distances (n,) of points (n, 3)."""
        result = np.empty(len(points))
        _look_up_all(np.ascontiguousarray(points), self.values, self.low, self.step, result)
        return result


@inline
def look_up(x, y, z, values, low, step):
    """Return the distance at the nearest node; outside of the grid, plus the distance to the grid."""
    last = len(values) - 1
    i, j, k = (x - low) / step, (y - low) / step, (z - low) / step
    ci, cj, ck = min(max(i, 0.0), last), min(max(j, 0.0), last), min(max(k, 0.0), last)
    outside = step * np.sqrt((i - ci) ** 2 + (j - cj) ** 2 + (k - ck) ** 2)
    return values[int(ci + 0.5), int(cj + 0.5), int(ck + 0.5)] + outside


@kernel
def _look_up_all(points, values, low, step, result):
    for p in range(len(points)):
        result[p] = look_up(points[p, 0], points[p, 1], points[p, 2], values, low, step)
