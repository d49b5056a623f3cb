"""Triton kernel for nearest points by exhaustive search, without a matrix of distances."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_QUERIES, _POINTS = 16, 128  # per program and step


def nearest(points: Tensor, queries: Tensor, distinct: bool = False) -> Tensor:
    """See `wsdesc.cloud.nearest.nearest`; both tensors are float32 and contiguous."""
    index = torch.empty(len(queries), dtype=torch.int64, device=queries.device)
    if len(queries):
        programs = (triton.cdiv(len(queries), _QUERIES),)
        shape = {"QUERIES": _QUERIES, "POINTS": _POINTS, "DISTINCT": distinct, "num_warps": 4}
        _nearest[programs](points, len(points), queries, len(queries), index, **shape)
    return index


@triton.jit(do_not_specialize=["n", "m"])  # otherwise triton compiles again for some numbers of points
def _nearest(
    points, n, queries, m, index, QUERIES: tl.constexpr, POINTS: tl.constexpr, DISTINCT: tl.constexpr
):
    q = tl.program_id(0) * QUERIES + tl.arange(0, QUERIES)
    valid = q < m
    x = tl.load(queries + 3 * q, valid, 0.0)
    y = tl.load(queries + 3 * q + 1, valid, 0.0)
    z = tl.load(queries + 3 * q + 2, valid, 0.0)
    nearest = nearest_point(points, n, x, y, z, QUERIES, POINTS, DISTINCT)
    tl.store(index + q, nearest.to(tl.int64), valid)


@triton.jit
def nearest_point(
    points, n, x, y, z, QUERIES: tl.constexpr, POINTS: tl.constexpr, DISTINCT: tl.constexpr
):  # fmt: skip
    """Return the index of the nearest of n points to each query (x, y, z), float32; for other kernels too."""
    lane = tl.arange(0, POINTS)
    # Each lane keeps the best of its own points; lanes are compared once, at the end.
    least = tl.full((QUERIES, POINTS), float("inf"), tl.float32)
    best = tl.zeros((QUERIES, POINTS), tl.int32)
    for first in range(0, n, POINTS):
        p = first + lane
        valid = p < n
        dx = tl.load(points + 3 * p, valid, float("inf"))[None, :] - x[:, None]
        dy = tl.load(points + 3 * p + 1, valid, 0.0)[None, :] - y[:, None]
        dz = tl.load(points + 3 * p + 2, valid, 0.0)[None, :] - z[:, None]
        squared = dx * dx + dy * dy + dz * dz
        closer = squared < least
        if DISTINCT:
            closer = closer & (squared > 0)
        least = tl.where(closer, squared, least)
        best = tl.where(closer, p[None, :], best)
    minimum = tl.min(least, 1)
    return tl.min(tl.where(least == minimum[:, None], best, n - 1), 1)
