"""Radius search in plain torch, on any device; the GPU path."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from wsdesc.cloud.neighbours.build import LEAF

if TYPE_CHECKING:
    from wsdesc.cloud.neighbours import NeighbourGrid

_PAIRS_PER_CHUNK = 1 << 22  # limits the memory, and keeps a chunk in the cache of a GPU


def count(grid: NeighbourGrid, queries: Tensor, radius: float) -> Tensor:
    """Count the points within `radius` of each of `queries` (M, 3); (M,) int64."""
    counts = [torch.bincount(query, minlength=n) for n, query, _ in _pairs(grid, queries, radius)]
    return torch.cat(counts)


def indices_within(grid: NeighbourGrid, queries: Tensor, radius: float) -> Tensor:
    """List the points within `radius` of each of `queries` (M, 3), ascending within a query; (P,) int64."""
    parts = [_sorted_within_query(query, grid.order[p]) for _, query, p in _pairs(grid, queries, radius)]
    return torch.cat(parts)


def leaves_near(
    centres: Tensor, radii: Tensor, queries: Tensor, query_radii: Tensor
) -> tuple[Tensor, Tensor]:
    """See `NeighbourGrid.leaves_near`."""
    numbers, counts = [], []
    chunk = max(1, _PAIRS_PER_CHUNK // len(centres))
    for part, radius in zip(queries.split(chunk), query_radii.split(chunk), strict=True):
        squared = sum((q[:, None] - c).square_() for q, c in zip(part.T, centres.T, strict=True))
        near = squared <= (radius[:, None] + radii).square_()  # (m, L)
        counts.append(near.sum(1))
        numbers.append(near.nonzero()[:, 1].int())
    starts = torch.cat([queries.new_zeros(1, dtype=torch.int64), torch.cat(counts).cumsum(0)])
    return torch.cat(numbers), starts


def _pairs(grid: NeighbourGrid, queries: Tensor, radius: float) -> Iterator[tuple[int, Tensor, Tensor]]:
    """Yield per chunk: its number of queries, the query of each pair, the point of each pair."""
    radii = queries.new_full((len(queries),), radius)
    lane = torch.arange(LEAF, device=queries.device)
    chunk = max(1, _PAIRS_PER_CHUNK // len(grid.centres))
    for part, part_radii in zip(queries.split(chunk), radii.split(chunk), strict=True):
        leaf, starts = grid.leaves_near(part, part_radii)
        query = torch.repeat_interleave(torch.arange(len(part), device=part.device), starts.diff())
        point = leaf[:, None].long() * LEAF + lane  # (P, 32)
        offset = grid.points[point.clamp(max=len(grid.points) - 1)] - part[query, None]
        near = (offset.square().sum(-1) <= radius * radius) & (point < len(grid.points))
        yield len(part), query[:, None].expand_as(point)[near], point[near]


def _sorted_within_query(query: Tensor, point: Tensor) -> Tensor:
    by_point = torch.sort(point, stable=True).indices
    return point[by_point][torch.sort(query[by_point], stable=True).indices]
