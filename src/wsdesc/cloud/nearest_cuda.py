"""The nearest of all points for many queries at once on the GPU, without a matrix of distances."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_QUERIES, _POINTS = 16, 128  # of one program, at a time


def nearest(points: Tensor, queries: Tensor, apart: bool = False) -> Tensor:
    """See `wsdesc.cloud.nearest.nearest`; float32, contiguous."""
    index = torch.empty(len(queries), dtype=torch.int64, device=queries.device)
    if len(queries):
        programs = (triton.cdiv(len(queries), _QUERIES),)
        shape = {"QUERIES": _QUERIES, "POINTS": _POINTS, "APART": apart, "num_warps": 4}
        _nearest[programs](points, len(points), queries, len(queries), index, **shape)
    return index


@triton.jit(do_not_specialize=["n", "m"])  # else some numbers of points would be compiled for anew
def _nearest(points, n, queries, m, index, QUERIES: tl.constexpr, POINTS: tl.constexpr, APART: tl.constexpr):
    q = tl.program_id(0) * QUERIES + tl.arange(0, QUERIES)
    asked = q < m
    x = tl.load(queries + 3 * q, asked, 0.0)[:, None]
    y = tl.load(queries + 3 * q + 1, asked, 0.0)[:, None]
    z = tl.load(queries + 3 * q + 2, asked, 0.0)[:, None]
    lane = tl.arange(0, POINTS)
    # Each lane keeps the best of its own points; lanes are compared once, in the end.
    least = tl.full((QUERIES, POINTS), float("inf"), tl.float32)
    at = tl.zeros((QUERIES, POINTS), tl.int32)
    for first in range(0, n, POINTS):
        p = first + lane
        there = p < n
        dx = tl.load(points + 3 * p, there, float("inf"))[None, :] - x
        dy = tl.load(points + 3 * p + 1, there, 0.0)[None, :] - y
        dz = tl.load(points + 3 * p + 2, there, 0.0)[None, :] - z
        squared = dx * dx + dy * dy + dz * dz
        closer = squared < least
        if APART:
            closer = closer & (squared > 0)
        least = tl.where(closer, squared, least)
        at = tl.where(closer, p[None, :], at)
    best = tl.min(least, 1)
    first_of_best = tl.min(tl.where(least == best[:, None], at, n - 1), 1)
    tl.store(index + q, first_of_best.to(tl.int64), asked)
