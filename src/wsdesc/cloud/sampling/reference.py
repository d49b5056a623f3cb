"""Downsampling in plain torch, on any device."""

from __future__ import annotations

import torch
from torch import Tensor

from wsdesc.core.geometry import cell_keys


def voxel_downsample(points: Tensor, low: Tensor, size: float) -> Tensor:
    """Average the points (N, 3) of each cell of a grid that starts at `low` (3,) float64; (M, 3) by cell."""
    cell = ((points.double() - low) / size).floor().long()
    order = torch.sort(cell_keys(cell), stable=True)
    count = torch.unique_consecutive(order.values, return_counts=True)[1]
    mean = torch.segment_reduce(points[order.indices].double(), "mean", lengths=count, axis=0)
    return mean.to(points.dtype)


def farthest_points(columns: Tensor, keep: int, first: Tensor) -> Tensor:
    """Choose `keep` of the points (3, N) float32, starting with the index `first` (); (keep,) int64.

    On a GPU this is for large clouds, where each step takes longer than its launch.
    """
    nearest = columns.new_full((columns.shape[1],), torch.inf)  # squared distance to the chosen points
    latest = first.view(1)
    chosen = []
    for _ in range(keep):
        chosen.append(latest)
        squared = (columns - columns.index_select(1, latest)).square_().sum(0)
        nearest = torch.minimum(nearest, squared).index_fill_(0, latest, -1)  # never chosen again
        latest = nearest.argmax(0, keepdim=True)
    return torch.cat(chosen) if chosen else latest[:0]
