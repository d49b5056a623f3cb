"""Downsampling with compiled CPU kernels."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from wsdesc.core.geometry import pack_cell
from wsdesc.core.kernels import inline, kernel

_pack_cell = inline(pack_cell)
_FIRST_CELLS = 1 << 11  # doubled when all are used


def voxel_downsample(points: Tensor, low: Tensor, size: float) -> Tensor:
    """Average the points (N, 3) of each cell of a grid that starts at `low` (3,) float64; (M, 3) by cell."""
    keys, sums, counts = _sum_cells(points.numpy(), low.numpy(), size)
    by_cell = np.argsort(keys)
    return torch.from_numpy(sums[by_cell] / counts[by_cell, None]).to(points.dtype)


def _sum_cells(points: Any, low: Any, size: float) -> tuple[Any, Any, Any]:
    """Sum the points per occupied cell: keys (M,), sums (M, 3), counts (M,), in order of first occurrence.

    The hash table over the cells is as large as the result and stays in the cache. Sorting would move every
    point. NumPy allocates the arrays, as allocations inside a kernel take seconds to compile.
    """
    cells, used, added = _FIRST_CELLS, 0, 0
    keys, sums, counts = np.empty(cells, np.int64), np.zeros((cells, 3)), np.zeros(cells, np.int64)
    while True:
        table = np.full(2 * cells, -1, np.int64)  # slot -> cell
        used, added = _add_to_cells(points, low, size, added, used, table, keys, sums, counts)
        if added == len(points):
            return keys[:used], sums[:used], counts[:used]
        keys = np.concatenate((keys, np.empty_like(keys)))
        sums = np.concatenate((sums, np.zeros_like(sums)))
        counts = np.concatenate((counts, np.zeros_like(counts)))
        cells *= 2


def farthest_points(columns: Tensor, keep: int, first: int) -> Tensor:
    """Choose `keep` of the points (3, N) float32, starting with `first`; (keep,) int64."""
    chosen = np.empty(keep, np.int64)
    x, y, z = columns.numpy()
    _farthest_points(x, y, z, first, chosen)
    return torch.from_numpy(chosen)


@kernel(
    types="float32[:, ::1], float64[::1], float64, int64, int64, int64[::1], int64[::1], "
    "float64[:, ::1], int64[::1]",
)
def _add_to_cells(points, low, size, first, used, table, keys, sums, counts):
    """Add the points from `first` on to their cells.

    Returns the number of used cells and of added points; it stops before a point that needs a further cell.
    """
    capacity = len(table)
    for old in range(used):
        slot = _slot(keys[old], capacity)
        while table[slot] >= 0:
            slot = (slot + 1) & (capacity - 1)
        table[slot] = old
    last_key, cell = np.int64(-1), np.int64(-1)
    for n in range(first, len(points)):
        x, y, z = np.float64(points[n, 0]), np.float64(points[n, 1]), np.float64(points[n, 2])
        key = _pack_cell(
            np.int64(math.floor((x - low[0]) / size)),
            np.int64(math.floor((y - low[1]) / size)),
            np.int64(math.floor((z - low[2]) / size)),
        )
        if key != last_key:  # consecutive points often share a cell, as scanners move along surfaces
            slot = _slot(key, capacity)
            while table[slot] >= 0 and keys[table[slot]] != key:
                slot = (slot + 1) & (capacity - 1)
            cell = table[slot]
            if cell < 0:
                if used == len(keys):
                    return used, n
                cell = np.int64(used)
                table[slot], keys[cell] = cell, key
                used += 1
            last_key = key
        counts[cell] += 1
        for axis in range(3):
            sums[cell, axis] += points[n, axis]
    return used, len(points)


@inline
def _slot(key, capacity):
    """Return the first slot to try for a cell, from the well-mixed upper bits of a product."""
    mixed = np.uint64(key) * np.uint64(0x9E3779B97F4A7C15)
    return np.int64(mixed >> np.uint64(32)) & (capacity - 1)


@kernel(
    types="float32[::1], float32[::1], float32[::1], int64, int64[::1]",
    fastmath={"contract", "nsz", "reassoc"},
)
def _farthest_points(x, y, z, first, chosen):
    nearest = np.full(len(x), np.float32(np.inf))  # squared distance to the chosen points
    latest = first
    for k in range(len(chosen)):
        chosen[k] = latest
        nearest[latest] = -1  # never chosen again, even among coincident points
        px, py, pz = x[latest], y[latest], z[latest]
        farthest = np.float32(-1)
        for i in range(len(x)):
            dx, dy, dz = x[i] - px, y[i] - py, z[i] - pz
            nearest[i] = min(nearest[i], dx * dx + dy * dy + dz * dz)
            farthest = max(farthest, nearest[i])
        for i in range(len(x)):
            if nearest[i] == farthest:
                latest = i
                break
