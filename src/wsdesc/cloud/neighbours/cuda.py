"""Triton kernel that lists the leaves near each query: it counts first, then fills the list."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 512


def leaves_near(
    centres: Tensor, radii: Tensor, queries: Tensor, query_radii: Tensor
) -> tuple[Tensor, Tensor]:
    """See `NeighbourGrid.leaves_near`."""
    starts = torch.zeros(len(queries) + 1, dtype=torch.int64, device=queries.device)
    balls = (centres, radii, len(radii), queries, query_radii)
    _list[(len(queries),)](*balls, starts, starts, FILL=False, BLOCK=_BLOCK, num_warps=4)
    starts = starts.cumsum(0)
    leaves = torch.empty(int(starts[-1]), dtype=torch.int32, device=queries.device)
    _list[(len(queries),)](*balls, starts, leaves, FILL=True, BLOCK=_BLOCK, num_warps=4)
    return leaves, starts


@triton.jit
def _list(centres, radii, n, queries, query_radii, starts, out, FILL: tl.constexpr, BLOCK: tl.constexpr):
    q = tl.program_id(0)
    x, y, z = tl.load(queries + 3 * q), tl.load(queries + 3 * q + 1), tl.load(queries + 3 * q + 2)
    r = tl.load(query_radii + q)
    total = tl.load(starts + q) if FILL else tl.zeros((), tl.int64)
    for first in range(0, n, BLOCK):
        leaf = first + tl.arange(0, BLOCK)
        valid = leaf < n
        dx = tl.load(centres + 3 * leaf, valid, 0.0) - x
        dy = tl.load(centres + 3 * leaf + 1, valid, 0.0) - y
        dz = tl.load(centres + 3 * leaf + 2, valid, 0.0) - z
        limit = r + tl.load(radii + leaf, valid, 0.0)
        near = (valid & (dx * dx + dy * dy + dz * dz <= limit * limit)).to(tl.int32)
        if FILL:
            tl.store(out + total + tl.cumsum(near, 0) - 1, leaf, near > 0)
        total += tl.sum(near, 0)
    if not FILL:
        tl.store(out + q + 1, total)
