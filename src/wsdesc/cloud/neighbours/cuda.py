"""Triton kernels of the neighbour grid: they build it, list the leaves near queries, and count neighbours.

Plain torch needs about seventy launches to build a grid, which takes longer than the work itself.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from wsdesc.cloud.neighbours.build import BITS, LEAF

_BLOCK = 512
_MAX_LEAVES = 1 << 22  # numbers of leaves that take 16 MiB at most
_QUERIES, _POINTS = 16, 128  # of one step of a program that counts

MAX_PAIRS = 1 << 34  # of queries and points that an exhaustive search compares; a grid is faster beyond


def morton_keys(points: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """See `build.morton_keys`; the points (N, 3) are between the corners `low` and `high` (3,)."""
    keys = torch.empty(len(points), dtype=torch.int64, device=points.device)
    programs = (triton.cdiv(len(points), _BLOCK),)
    _write_keys[programs](points, low, high, keys, len(points), BITS=BITS, BLOCK=_BLOCK)
    return keys


def enclosing_balls(centres: Tensor, radii: Tensor | None) -> tuple[Tensor, Tensor]:
    """See `build.enclosing_balls`; balls without radii are points. Float64 results."""
    groups = triton.cdiv(len(centres), LEAF)
    middles = torch.empty(groups, 3, dtype=torch.float64, device=centres.device)
    sizes = torch.empty(groups, dtype=torch.float64, device=centres.device)
    _enclose[(groups,)](
        centres, centres if radii is None else radii, middles, sizes, len(centres),
        POINTS=radii is None, LEAF=LEAF, num_warps=1,
    )  # fmt: skip
    return middles, sizes


def count(points: Tensor, queries: Tensor, radius: float) -> Tensor:
    """Count the points (N, 3) within `radius` of each query (M, 3), by exhaustive search; (M,) int64."""
    counts = torch.empty(len(queries), dtype=torch.int64, device=queries.device)
    if len(queries) == 0:
        return counts
    programs = (triton.cdiv(len(queries), _QUERIES),)
    limit = torch.full((1,), radius * radius, dtype=points.dtype, device=points.device)
    _count[programs](
        points.contiguous(), len(points), queries.contiguous(), len(queries), limit, counts,
        QUERIES=_QUERIES, POINTS=_POINTS, num_warps=4,
    )  # fmt: skip
    return counts


def leaves_near(
    centres: Tensor, radii: Tensor, queries: Tensor, query_radii: Tensor, room: bool = False
) -> tuple[Tensor, Tensor]:
    """See `NeighbourGrid.leaves_near`."""
    starts = torch.zeros(len(queries) + 1, dtype=torch.int64, device=queries.device)
    balls = (centres, radii, len(radii), queries, query_radii)
    _list[(len(queries),)](*balls, starts, starts, FILL=False, BLOCK=_BLOCK, num_warps=4)
    starts = starts.cumsum(0)
    largest = len(queries) * len(radii)
    count = largest if room and largest <= _MAX_LEAVES else int(starts[-1])  # this waits for the GPU
    leaves = torch.empty(count, dtype=torch.int32, device=queries.device)
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


@triton.jit(do_not_specialize=["n"])
def _write_keys(points, low, high, keys, n, BITS: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    valid = i < n
    x, y, z = tl.load(low).to(tl.float64), tl.load(low + 1).to(tl.float64), tl.load(low + 2).to(tl.float64)
    side = tl.maximum(tl.load(high).to(tl.float64) - x, tl.load(high + 1).to(tl.float64) - y)
    side = tl.maximum(tl.maximum(side, tl.load(high + 2).to(tl.float64) - z), 2.2250738585072014e-308)
    cells = 2**BITS - 1
    a = _spread(((tl.load(points + 3 * i, valid, 0.0).to(tl.float64) - x) / side * cells).to(tl.int64))
    b = _spread(((tl.load(points + 3 * i + 1, valid, 0.0).to(tl.float64) - y) / side * cells).to(tl.int64))
    c = _spread(((tl.load(points + 3 * i + 2, valid, 0.0).to(tl.float64) - z) / side * cells).to(tl.int64))
    tl.store(keys + i, a | (b << 1) | (c << 2), valid)


@triton.jit
def _spread(cell):
    """Put two zero bits between any two of 21."""
    cell = (cell | (cell << 32)) & 0x1F00000000FFFF
    cell = (cell | (cell << 16)) & 0x1F0000FF0000FF
    cell = (cell | (cell << 8)) & 0x100F00F00F00F00F
    cell = (cell | (cell << 4)) & 0x10C30C30C30C30C3
    return (cell | (cell << 2)) & 0x1249249249249249


@triton.jit(do_not_specialize=["n"])
def _enclose(centres, radii, middles, sizes, n, POINTS: tl.constexpr, LEAF: tl.constexpr):
    group = tl.program_id(0)
    i = tl.minimum(group * LEAF + tl.arange(0, LEAF), n - 1)  # the last ball again, where there is none
    x, y, z = (
        tl.load(centres + 3 * i).to(tl.float64),
        tl.load(centres + 3 * i + 1).to(tl.float64),
        tl.load(centres + 3 * i + 2).to(tl.float64),
    )
    mx = (tl.min(x, 0) + tl.max(x, 0)) / 2
    my = (tl.min(y, 0) + tl.max(y, 0)) / 2
    mz = (tl.min(z, 0) + tl.max(z, 0)) / 2
    distance = tl.sqrt((x - mx) * (x - mx) + (y - my) * (y - my) + (z - mz) * (z - mz))
    if not POINTS:
        distance += tl.load(radii + i)
    tl.store(middles + 3 * group, mx)
    tl.store(middles + 3 * group + 1, my)
    tl.store(middles + 3 * group + 2, mz)
    tl.store(sizes + group, tl.max(distance, 0))


@triton.jit(do_not_specialize=["n", "m"])
def _count(
    points, n, queries, m, limit, counts, QUERIES: tl.constexpr, POINTS: tl.constexpr
):  # fmt: skip
    q = tl.program_id(0) * QUERIES + tl.arange(0, QUERIES)
    valid = q < m
    x, y, z = (
        tl.load(queries + 3 * q, valid, 0.0),
        tl.load(queries + 3 * q + 1, valid, 0.0),
        tl.load(queries + 3 * q + 2, valid, 0.0),
    )
    lane = tl.arange(0, POINTS)
    total = tl.zeros((QUERIES, POINTS), tl.int32)
    squared_radius = tl.load(limit)
    for first in range(0, n, POINTS):
        p = first + lane
        exists = p < n
        dx = tl.load(points + 3 * p, exists, float("inf"))[None, :] - x[:, None]
        dy = tl.load(points + 3 * p + 1, exists, 0.0)[None, :] - y[:, None]
        dz = tl.load(points + 3 * p + 2, exists, 0.0)[None, :] - z[:, None]
        total += (dx * dx + dy * dy + dz * dz <= squared_radius).to(tl.int32)
    tl.store(counts + q, tl.sum(total, 1).to(tl.int64), valid)
