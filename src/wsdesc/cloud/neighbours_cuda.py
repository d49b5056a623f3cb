"""Which leaves of a neighbour grid meet a ball, for many balls at once on the GPU: count, then fill."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 512


def leaves_near(centres: Tensor, radii: Tensor, queries: Tensor, reach: Tensor) -> tuple[Tensor, Tensor]:
    """See `NeighbourGrid.leaves_near`."""
    start = torch.zeros(len(queries) + 1, dtype=torch.int64, device=queries.device)
    balls = (centres, radii, len(radii), queries, reach)
    _list[(len(queries),)](*balls, start, start, FILL=False, BLOCK=_BLOCK, num_warps=4)
    start = start.cumsum(0)
    leaves = torch.empty(int(start[-1]), dtype=torch.int32, device=queries.device)
    _list[(len(queries),)](*balls, start, leaves, FILL=True, BLOCK=_BLOCK, num_warps=4)
    return leaves, start


@triton.jit
def _list(centres, radii, n, queries, reach, start, out, FILL: tl.constexpr, BLOCK: tl.constexpr):
    q = tl.program_id(0)
    x, y, z = tl.load(queries + 3 * q), tl.load(queries + 3 * q + 1), tl.load(queries + 3 * q + 2)
    r = tl.load(reach + q)
    found = tl.load(start + q) if FILL else tl.zeros((), tl.int64)
    for first in range(0, n, BLOCK):
        leaf = first + tl.arange(0, BLOCK)
        there = leaf < n
        dx = tl.load(centres + 3 * leaf, there, 0.0) - x
        dy = tl.load(centres + 3 * leaf + 1, there, 0.0) - y
        dz = tl.load(centres + 3 * leaf + 2, there, 0.0) - z
        limit = r + tl.load(radii + leaf, there, 0.0)
        near = (there & (dx * dx + dy * dy + dz * dz <= limit * limit)).to(tl.int32)
        if FILL:
            tl.store(out + found + tl.cumsum(near, 0) - 1, leaf, near > 0)
        found += tl.sum(near, 0)
    if not FILL:
        tl.store(out + q + 1, found)
