"""Nearest points where a tree does not help: on a GPU it is quicker to look at all points, or at all leaves.

Plain torch, but for one kernel; on the CPU a tree answers, so that what is built on this can be tested there.
"""

from __future__ import annotations

from importlib.util import find_spec

import torch
from torch import Tensor

from wsdesc.cloud.neighbours import LEAF, NeighbourGrid

_PAIRS_AT_ONCE = 1 << 24  # bounds the memory: 64 MiB an array
_LEAVES = 24  # of 32 points, among which all of the nearest 20 points of a thinned surface are


def nearest(points: Tensor, queries: Tensor, apart: bool = False) -> Tensor:
    """Which of points (N, 3), N ≥ 1, is nearest to each of queries (M, 3): (M,) int64, in float32.

    With `apart`, the nearest that differs from the query; any, where there is none.
    """
    points, queries = points.float().contiguous(), queries.float().contiguous()
    if points.device.type == "cpu" and not apart:
        from scipy.spatial import cKDTree

        return torch.from_numpy(cKDTree(points.numpy()).query(queries.numpy())[1])
    if points.is_cuda and find_spec("triton"):
        from wsdesc.cloud import nearest_cuda

        return nearest_cuda.nearest(points, queries, apart)
    found = []
    for some in queries.split(max(1, _PAIRS_AT_ONCE // len(points))):
        squared = squared_distances(some, points)
        found.append((squared.where(squared > 0, torch.inf) if apart else squared).argmin(1))
    return torch.cat(found) if found else queries.new_empty(0, dtype=torch.int64)


def squared_distances(a: Tensor, b: Tensor) -> Tensor:
    """(…, A, B) between a (…, A, 3) and b (…, B, 3): by differences, since products lose digits."""
    squared = (a[..., :, None, 0] - b[..., None, :, 0]).square_()
    for axis in (1, 2):
        squared += (a[..., :, None, axis] - b[..., None, :, axis]).square_()
    return squared


def neighbours_of_each(grid: NeighbourGrid, count: int) -> Tensor:
    """The `count` points nearest to each of `grid.points`, itself among them: (N, count) int64 into these.

    Only the leaves whose balls are nearest are looked into; on surfaces that are sampled about evenly the
    nearest 20 are all in those.
    """
    lane = torch.arange(LEAF, device=grid.points.device)
    leaves = min(_LEAVES, len(grid.centres))
    found = []
    for some in grid.points.split(max(1, _PAIRS_AT_ONCE // max(leaves * LEAF, len(grid.centres)))):
        gap = squared_distances(some, grid.centres).sqrt_() - grid.radii  # (n, L)
        leaf = gap.topk(leaves, largest=False, sorted=False).indices  # (n, leaves)
        index = (leaf[..., None] * LEAF + lane).flatten(1)  # (n, leaves · 32)
        there = index < len(grid.points)
        near = grid.points[index.clamp(max=len(grid.points) - 1)]
        squared = squared_distances(some[:, None], near).squeeze(1).masked_fill_(~there, torch.inf)
        found.append(index.gather(1, squared.topk(count, largest=False, sorted=False).indices))
    return torch.cat(found)
