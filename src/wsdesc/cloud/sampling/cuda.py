"""Triton kernel for farthest point sampling: one launch for all steps and all clouds."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor


def farthest_points(clouds: Sequence[Tensor], keep: int, share: Tensor) -> list[Tensor]:
    """Choose `keep` points of each of the clouds (N, 3) float32, or all of smaller ones; int64 indices.

    The first one is the nearest to a place in the bounding box, at `share` (3,) float64 of its sides.
    """
    counts = [len(cloud) for cloud in clouds]
    lengths = [min(keep, count) for count in counts]
    device = clouds[0].device
    columns = torch.cat([cloud.T.reshape(-1) for cloud in clouds])
    starts = [3 * sum(counts[:k]) for k in range(len(counts))]
    sizes = torch.tensor(list(zip(counts, starts, strict=True)), dtype=torch.int64).to(device)
    chosen = torch.empty(len(clouds), max(keep, 1), dtype=torch.int64, device=device)
    block = max(1024, triton.next_power_of_2(max(counts)))
    _farthest_points[(len(clouds),)](
        columns, sizes, share.to(device), chosen, keep, BLOCK=block, num_warps=16
    )
    return [row[:length] for row, length in zip(chosen, lengths, strict=True)]


@triton.jit(do_not_specialize=["keep"])  # otherwise triton compiles again for some values
def _farthest_points(columns, sizes, share, chosen, keep, BLOCK: tl.constexpr):
    cloud = tl.program_id(0)
    n = tl.load(sizes + 2 * cloud).to(tl.int32)
    columns += tl.load(sizes + 2 * cloud + 1)
    i = tl.arange(0, BLOCK)
    valid = i < n
    squared = tl.zeros((BLOCK,), tl.float64)
    for axis in tl.static_range(3):
        x = tl.load(columns + axis * n + i, valid, 0.0)
        low = tl.min(tl.where(valid, x, float("inf")), 0).to(tl.float64)
        high = tl.max(tl.where(valid, x, float("-inf")), 0).to(tl.float64)
        offset = x.to(tl.float64) - (low + tl.load(share + axis) * (high - low))
        squared += offset * offset
    _least, latest = tl.min(tl.where(valid, squared, float("inf")), 0, return_indices=True)
    nearest = tl.where(valid, float("inf"), -1.0)  # squared distance to the chosen points
    for k in range(tl.minimum(keep, n)):
        tl.store(chosen + cloud * keep + k, latest)
        dx = tl.load(columns + i, valid, 0.0) - tl.load(columns + latest)
        dy = tl.load(columns + n + i, valid, 0.0) - tl.load(columns + n + latest)
        dz = tl.load(columns + 2 * n + i, valid, 0.0) - tl.load(columns + 2 * n + latest)
        nearest = tl.minimum(nearest, dx * dx + dy * dy + dz * dz)
        nearest = tl.where(i == latest, -1.0, nearest)  # never chosen again, even among coincident points
        _most, latest = tl.max(nearest, 0, return_indices=True)
