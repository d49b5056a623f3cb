"""Supports of keypoints: the points within a radius, as learned descriptor peers read them."""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from wsdesc.cloud.neighbours import NeighbourGrid
from wsdesc.core.planes import normals

Orientation = Literal["viewpoint", "outward"]


class Supports(NamedTuple):
    """Points around K keypoints, nearest first. Rows with fewer than P points repeat theirs."""

    indices: Tensor  # (K, P) int64 into the points of the scan; 0 where a support is empty
    counts: Tensor  # (K,) int64, different points of each row, 0 … P


def oriented_normals(points: Tensor, neighbours: int, orientation: Orientation = "viewpoint") -> Tensor:
    """Estimate normals (N, 3) of points (N, 3) from their nearest neighbours.

    They point to the origin, the viewpoint of a scan, or away from the mean of the points of a shape
    (`outward`). They are zero where the neighbours form no surface.
    """
    estimated = normals(points.cpu().double().numpy(), neighbours=neighbours)
    result = torch.from_numpy(estimated).to(points)
    direction = -points if orientation == "viewpoint" else points - points.mean(0)
    return torch.where((result * direction).sum(1, keepdim=True) < 0, -result, result)


def find_supports(grid: NeighbourGrid, keypoints: Tensor, radius: float, max_points: int) -> Supports:
    """Find the points within `radius` of keypoints (K, 3), without points at the keypoint itself.

    Of more than `max_points` points, the row holds `max_points` at even ranks of the distance. The choice
    then depends neither on a rotation of the scan nor on the order of its points.
    """
    near = grid.within(keypoints, radius)
    query = torch.repeat_interleave(torch.arange(len(keypoints), device=keypoints.device), near.starts.diff())
    position = torch.empty_like(grid.order)  # position of each input point in the grid's order
    position[grid.order] = torch.arange(len(grid.order), device=grid.order.device)
    offsets = grid.points[position[near.indices]] - keypoints[query]
    squared = offsets.square().sum(1)
    kept = squared > 0
    point, query, squared = near.indices[kept], query[kept], squared[kept]
    order = torch.sort(squared, stable=True).indices
    order = order[torch.sort(query[order], stable=True).indices]
    counts = torch.bincount(query, minlength=len(keypoints))
    starts = counts.cumsum(0) - counts
    width = max(1, min(max_points, int(counts.max())))
    column = torch.arange(width, device=keypoints.device).expand(len(keypoints), width)
    n = counts[:, None].clamp(min=1)
    rank = torch.where(n > width, column * n // width, column % n)
    if len(point) == 0:
        return Supports(torch.zeros_like(rank), counts)
    flat = (starts[:, None] + rank).clamp(max=len(point) - 1)
    indices = torch.where(counts[:, None] > 0, point[order][flat], 0)
    return Supports(indices, counts.clamp(max=width))
