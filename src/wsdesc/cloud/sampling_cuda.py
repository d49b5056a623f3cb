"""Farthest point sampling on the GPU: all steps in one launch, since each waits for the one before."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor


def farthest_points(points: Tensor, keep: int, first: int) -> Tensor:
    """points (N, 3) on a CUDA device → (keep,) int64, beginning with `first`."""
    columns = points.float().T.contiguous()
    chosen = torch.empty(keep, dtype=torch.int64, device=points.device)
    block = max(1024, triton.next_power_of_2(len(points)))
    _farthest_points[(1,)](columns, chosen, len(points), keep, first, BLOCK=block, num_warps=16)
    return chosen


@triton.jit(do_not_specialize=["n", "keep", "first"])  # else some of these would be compiled for anew
def _farthest_points(columns, chosen, n, keep, first, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    there = i < n
    nearest = tl.where(there, float("inf"), -1.0)  # squared distance to what is chosen
    latest = first
    for k in range(keep):
        tl.store(chosen + k, latest)
        dx = tl.load(columns + i, there, 0.0) - tl.load(columns + latest)
        dy = tl.load(columns + n + i, there, 0.0) - tl.load(columns + n + latest)
        dz = tl.load(columns + 2 * n + i, there, 0.0) - tl.load(columns + 2 * n + latest)
        nearest = tl.minimum(nearest, dx * dx + dy * dy + dz * dz)
        nearest = tl.where(i == latest, -1.0, nearest)  # never again, even among coincident points
        _, latest = tl.max(nearest, 0, return_indices=True)
