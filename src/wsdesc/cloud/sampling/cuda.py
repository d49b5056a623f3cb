"""Triton kernel for farthest point sampling: one launch for all steps."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor


def farthest_points(columns: Tensor, keep: int, first: Tensor) -> Tensor:
    """Choose `keep` of the points (3, N) float32, starting with the index `first` (); (keep,) int64."""
    count = columns.shape[1]
    chosen = torch.empty(keep, dtype=torch.int64, device=columns.device)
    block = max(1024, triton.next_power_of_2(count))
    _farthest_points[(1,)](columns, chosen, count, keep, first, BLOCK=block, num_warps=16)
    return chosen


@triton.jit(do_not_specialize=["n", "keep"])  # otherwise triton compiles again for some values
def _farthest_points(columns, chosen, n, keep, first, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    valid = i < n
    nearest = tl.where(valid, float("inf"), -1.0)  # squared distance to the chosen points
    latest = tl.load(first).to(tl.int32)
    for k in range(keep):
        tl.store(chosen + k, latest)
        dx = tl.load(columns + i, valid, 0.0) - tl.load(columns + latest)
        dy = tl.load(columns + n + i, valid, 0.0) - tl.load(columns + n + latest)
        dz = tl.load(columns + 2 * n + i, valid, 0.0) - tl.load(columns + 2 * n + latest)
        nearest = tl.minimum(nearest, dx * dx + dy * dy + dz * dz)
        nearest = tl.where(i == latest, -1.0, nearest)  # never chosen again, even among coincident points
        _, latest = tl.max(nearest, 0, return_indices=True)
