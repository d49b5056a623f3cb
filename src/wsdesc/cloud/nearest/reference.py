"""Nearest points by exhaustive search in plain torch, on any device."""

from __future__ import annotations

import torch
from torch import Tensor

from wsdesc.cloud.neighbours import LEAF, NeighbourGrid

_PAIRS_PER_CHUNK = 1 << 24  # limits the memory to 64 MiB per array
_LEAVES = 24  # leaves of 32 points; they contain the nearest 20 points on an evenly sampled surface


def nearest(points: Tensor, queries: Tensor, distinct: bool = False) -> Tensor:
    """See `wsdesc.cloud.nearest.nearest`."""
    indices = []
    for part in queries.split(max(1, _PAIRS_PER_CHUNK // len(points))):
        squared = squared_distances(part, points)
        indices.append((squared.where(squared > 0, torch.inf) if distinct else squared).argmin(1))
    return torch.cat(indices) if indices else queries.new_empty(0, dtype=torch.int64)


def squared_distances(a: Tensor, b: Tensor) -> Tensor:
    """Return (…, A, B) between a (…, A, 3) and b (…, B, 3), from differences: products lose digits."""
    squared = (a[..., :, None, 0] - b[..., None, :, 0]).square_()
    for axis in (1, 2):
        squared += (a[..., :, None, axis] - b[..., None, :, axis]).square_()
    return squared


def k_nearest(grid: NeighbourGrid, k: int) -> Tensor:
    """Find the `k` points nearest to each of `grid.points`, including the point itself.

    The search covers only the nearest leaves. On evenly sampled surfaces these contain the nearest 20 points.

    Returns:
        Indices (N, k) int64 into `grid.points`.
    """
    lane = torch.arange(LEAF, device=grid.points.device)
    leaves = min(_LEAVES, len(grid.centres))
    indices = []
    for part in grid.points.split(max(1, _PAIRS_PER_CHUNK // max(leaves * LEAF, len(grid.centres)))):
        gap = squared_distances(part, grid.centres).sqrt_() - grid.radii  # (n, L)
        leaf = gap.topk(leaves, largest=False, sorted=False).indices  # (n, leaves)
        index = (leaf[..., None] * LEAF + lane).flatten(1)  # (n, leaves · 32)
        padding = index >= len(grid.points)
        near = grid.points[index.clamp(max=len(grid.points) - 1)]
        squared = squared_distances(part[:, None], near).squeeze(1).masked_fill_(padding, torch.inf)
        indices.append(index.gather(1, squared.topk(k, largest=False, sorted=False).indices))
    return torch.cat(indices)
