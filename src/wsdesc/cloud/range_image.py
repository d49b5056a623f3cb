"""Range image of a scan: how far the space around its viewpoint is known to be empty.

A scanner that measures a range of 8 m has seen through 8 m of air. The ranges are kept in a cube map: six
square faces, each with cells of nearly equal angles. A direction cell is known if its neighbourhood has
returns, and its space is empty up to the smallest range in that neighbourhood. So returns from thin
structures, edges and grazing surfaces make the known space smaller, never larger. Directions without returns
(sky, glass, dark surfaces, outside of the field of view) are unknown.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from wsdesc.core.kernels import inline, kernel

CELLS = 128  # of a face, along each side: 0.7°
LEVELS = 4  # cells of 128, 64, 32 and 16 per side: 0.7° to 5.6°, for sparse scanners

# The coordinate u = t (SLOPE - (SLOPE - 1) |t|), t = tan of the angle, nearly is angle / 45°. It needs no
# arctangent and rounds equally on all devices.
SLOPE = 4 / np.pi

_COARSE = 4  # cells, along each side, that are joined in the coarse range image
_MIN_FILLED = 7  # of the 9 cells of a neighbourhood


@dataclass(frozen=True, eq=False)
class RangeImage:
    """Ranges up to which space is known to be empty, per direction from a viewpoint.

    Attributes:
        viewpoint: (3,) float64, position of the scanner, in the coordinates of the points.
        free: (6, n, n) float32, ranges in the unit of the points; 0 where nothing is known. The faces are
            +x, -x, +y, -y, +z, -z.
    """

    viewpoint: NDArray[np.float64]
    free: NDArray[np.float32]

    @classmethod
    def of(cls, points: NDArray[Any], viewpoint: NDArray[Any]) -> RangeImage:
        """Build the range image of all points (N, 3) of a scan, seen from the viewpoint (3,)."""
        viewpoint = np.asarray(viewpoint, dtype=np.float64)
        level = nearest_ranges(points, viewpoint, CELLS)  # (6, n, n)
        free = known_ranges(level)
        for _ in range(1, LEVELS):
            level = level.reshape(6, level.shape[1] // 2, 2, -1, 2).min(axis=(2, 4))
            coarse = known_ranges(level)
            repeat = CELLS // level.shape[1]
            free = np.where(free > 0, free, coarse.repeat(repeat, axis=1).repeat(repeat, axis=2))
        return cls(viewpoint, free)

    @classmethod
    def read(cls, viewpoint: NDArray[Any], free: NDArray[Any]) -> RangeImage:
        """Check and convert arrays from a file.

        Raises:
            ValueError: The shapes are wrong, or a number is not a position or a range.
        """
        image = cls(viewpoint.astype(np.float64), np.ascontiguousarray(free, np.float32))
        shape_fits = image.viewpoint.shape == (3,) and image.free.shape == (6, CELLS, CELLS)
        if not shape_fits or not np.isfinite(image.viewpoint).all() or not np.isfinite(image.free).all():
            raise ValueError("a range image has a viewpoint (3,) and finite ranges (6, n, n)")
        return image

    @property
    def known(self) -> float:
        """Share of all directions in which free space is known, 0 … 1."""
        return float((self.free > 0).mean())

    @cached_property
    def coarse(self) -> RangeImage:
        """The same free space in cells four times as wide, for poses with errors of one or two degrees."""
        n = self.free.shape[1] // _COARSE
        blocks = np.where(self.free > 0, self.free, np.float32(np.inf)).reshape(6, n, _COARSE, n, _COARSE)
        return RangeImage(self.viewpoint, known_ranges(blocks.min(axis=(2, 4))))

    def scaled(self, factor: float) -> RangeImage:
        """Return the range image in another unit: all lengths are multiplied by `factor`."""
        return RangeImage(self.viewpoint * factor, self.free * np.float32(factor))


def nearest_ranges(points: NDArray[Any], viewpoint: NDArray[np.float64], cells: int) -> NDArray[np.float32]:
    """Find the smallest range in each direction cell: (6, cells, cells); infinite without returns."""
    squared = np.full(6 * cells * cells, np.inf, np.float32)
    _nearest_squared(points, viewpoint.astype(np.float32), cells, squared)
    return np.sqrt(squared).reshape(6, cells, cells)


def known_ranges(nearest: NDArray[np.float32]) -> NDArray[np.float32]:
    """Find the smallest range around each cell (6, n, n); 0 where too few of its neighbours have returns."""
    around = neighbourhoods(nearest)  # (9, 6, n, n)
    filled = np.isfinite(around)
    measured = filled[4] & (filled.sum(axis=0) >= _MIN_FILLED)
    return np.where(measured, around.min(axis=0), np.float32(0))


def neighbourhoods(image: NDArray[np.float32]) -> NDArray[np.float32]:
    """Gather the 3 × 3 neighbours of each cell (6, n, n), across edges of the cube: (9, 6, n, n)."""
    padded = image.reshape(-1)[_padded_cells(image.shape[1])]  # (6, n + 2, n + 2)
    n = image.shape[1]
    return np.stack([padded[:, i : i + n, j : j + n] for i in range(3) for j in range(3)])


@cache
def _padded_cells(cells: int) -> NDArray[np.int64]:
    """Number the cells of each face and of a border that belongs to the adjacent faces: (6, n + 2, n + 2)."""
    u = (2 * np.arange(-1, cells + 1) + 1) / cells - 1
    curve = SLOPE - 1
    t = np.sign(u) * (SLOPE - np.sqrt(SLOPE**2 - 4 * curve * np.abs(u))) / (2 * curve)
    numbers = np.empty((6, cells + 2, cells + 2), np.int64)
    for face in range(6):
        axis, sign = face // 2, 1.0 - 2 * (face % 2)
        directions = np.empty((cells + 2, cells + 2, 3), np.float32)
        directions[..., axis] = sign
        directions[..., (axis + 1) % 3] = t[:, None]
        directions[..., (axis + 2) % 3] = t[None, :]
        _cells_of(directions.reshape(-1, 3), cells, numbers[face].reshape(-1))
    return numbers


def range_cells(vectors: Tensor, cells: int) -> Tensor:
    """Number the direction cells of vectors (…, 3) as `cell_of`, on any device: (…)."""
    largest, axis = vectors.abs().max(-1)  # the first of equal axes
    along = vectors.gather(-1, torch.stack([axis, (axis + 1) % 3, (axis + 2) % 3], -1))
    face = 2 * axis + (along[..., 0] <= 0)
    t = along[..., 1:] / largest.clamp(min=1e-300)[..., None]
    u = t * (SLOPE - (SLOPE - 1) * t.abs())
    index = ((u + 1) * 0.5 * cells).long().clamp(0, cells - 1)
    return (face * cells + index[..., 0]) * cells + index[..., 1]


@inline
def cell_of(x, y, z, cells):  # type: ignore[no-untyped-def]
    """Number the direction cell of a vector that is not zero."""
    ax, ay, az = abs(x), abs(y), abs(z)
    if ax >= ay and ax >= az:
        face, largest, a, b = (0 if x > 0 else 1), ax, y, z
    elif ay >= az:
        face, largest, a, b = (2 if y > 0 else 3), ay, z, x
    else:
        face, largest, a, b = (4 if z > 0 else 5), az, x, y
    return (face * cells + _index(a / largest, cells)) * cells + _index(b / largest, cells)


@inline
def _index(t, cells):  # type: ignore[no-untyped-def]
    u = t * (np.float32(SLOPE) - np.float32(SLOPE - 1) * abs(t))  # -1 … 1
    return min(max(int((u + np.float32(1)) * np.float32(0.5) * cells), 0), cells - 1)


@kernel
def _cells_of(vectors, cells, numbers):  # type: ignore[no-untyped-def]
    for k in range(len(vectors)):
        numbers[k] = cell_of(vectors[k, 0], vectors[k, 1], vectors[k, 2], cells)


@kernel
def _nearest_squared(points, viewpoint, cells, squared):  # type: ignore[no-untyped-def]
    for k in range(len(points)):
        x = np.float32(points[k, 0] - viewpoint[0])
        y = np.float32(points[k, 1] - viewpoint[1])
        z = np.float32(points[k, 2] - viewpoint[2])
        length = x * x + y * y + z * z
        if length > 0 and length < np.inf:  # drivers write returns that failed as points at the scanner
            cell = cell_of(x, y, z, cells)
            squared[cell] = min(squared[cell], length)
