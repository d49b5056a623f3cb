"""Triton kernels that find the surface in a cloud, for its extent: cells of a grid with several points."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 512
_FAR = tl.constexpr(0x7FFFFFFFFFFFFFFF)  # key of points that are too far away


def surface_points(points: Tensor, middle: Tensor, radius: float) -> Tensor:
    """Return the index of the first point of each cell that holds several points, by cell: (M,) int64.

    Args:
        points: (N, 3) float64. Those beyond 4 radii from the middle do not count.
        middle: (3,) float64.
        radius: 16 times the side of a cell. The grid starts at the origin.
    """
    keys = torch.empty(len(points), dtype=torch.int64, device=points.device)
    programs = (triton.cdiv(len(points), _BLOCK),)
    lengths = torch.tensor([radius / 16, 4 * radius], dtype=torch.float64).to(points.device)
    _write_keys[programs](points.contiguous(), middle, lengths, keys, len(points), BLOCK=_BLOCK)
    keys, order = torch.sort(keys, stable=True)
    begins = torch.empty(len(points), dtype=torch.bool, device=points.device)
    _mark_first[programs](keys, begins, len(points), BLOCK=_BLOCK)
    return order[begins]


@triton.jit(do_not_specialize=["n"])
def _write_keys(points, middle, lengths, keys, n, BLOCK: tl.constexpr):
    """Number the cell of each point as `reference._clamped_keys`."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    valid = i < n
    size, limit = tl.load(lengths), tl.load(lengths + 1)
    key, squared = tl.zeros((BLOCK,), tl.int64), tl.zeros((BLOCK,), tl.float64)
    for axis in tl.static_range(3):
        x = tl.load(points + 3 * i + axis, valid, 0.0)
        offset = x - tl.load(middle + axis)
        squared += offset * offset
        cell = tl.minimum(tl.maximum(tl.floor(x / size), -1048576.0), 1048575.0).to(tl.int64) + 1048576
        key = (key << 21) + cell
    tl.store(keys + i, tl.where(tl.sqrt(squared) <= limit, key, _FAR), valid)


@triton.jit(do_not_specialize=["n"])
def _mark_first(keys, begins, n, BLOCK: tl.constexpr):
    """Mark the first of several equal keys, which are sorted."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    own = tl.load(keys + i, i < n, _FAR)
    before = tl.load(keys + i - 1, (i > 0) & (i < n), -1)
    after = tl.load(keys + i + 1, i + 1 < n, -1)
    tl.store(begins + i, (own == after) & (own != before) & (own != _FAR), i < n)
