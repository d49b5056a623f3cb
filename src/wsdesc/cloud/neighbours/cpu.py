"""Radius search with compiled CPU kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from wsdesc.cloud.neighbours.build import LEAF
from wsdesc.core.kernels import inline, kernel, run_in_chunks

if TYPE_CHECKING:
    from wsdesc.cloud.neighbours import NeighbourGrid


def count(grid: NeighbourGrid, queries: Tensor, radius: float) -> Tensor:
    """Count the points within `radius` of each of `queries` (M, 3); (M,) int64."""
    result = torch.zeros(len(queries), dtype=torch.int64)
    run_in_chunks(_count, len(queries), *_search_arrays(grid, queries, radius), result.numpy())
    return result


def indices_within(grid: NeighbourGrid, queries: Tensor, radius: float, starts: Tensor) -> Tensor:
    """List the points within `radius` of each of `queries` (M, 3), ascending within a query.

    Args:
        grid: The points.
        queries: (M, 3), of the grid's type.
        radius: In the points' unit.
        starts: (M + 1,) int64, where the indices of each query begin.

    Returns:
        (starts[-1],) int64.
    """
    index = torch.empty(int(starts[-1]), dtype=torch.int64)
    arrays = _search_arrays(grid, queries, radius)
    run_in_chunks(_list, len(queries), *arrays, grid.order.numpy(), starts.numpy(), index.numpy())
    return index


def _search_arrays(grid: NeighbourGrid, queries: Tensor, radius: float) -> tuple[Any, ...]:
    return *grid.arrays(), queries.contiguous().numpy(), grid.points.numpy().dtype.type(radius)


@inline
def walk_leaves(centres, radii, branch_centres, branch_radii, x, y, z, radius, leaves):
    """Write the numbers of the leaves that meet the ball into `leaves` (L,); return how many."""
    n = 0
    for b in range(len(branch_radii)):
        dx, dy, dz = branch_centres[b, 0] - x, branch_centres[b, 1] - y, branch_centres[b, 2] - z
        limit = radius + branch_radii[b]
        if dx * dx + dy * dy + dz * dz > limit * limit:
            continue
        for leaf in range(b * LEAF, min((b + 1) * LEAF, len(radii))):
            dx, dy, dz = centres[leaf, 0] - x, centres[leaf, 1] - y, centres[leaf, 2] - z
            limit = radius + radii[leaf]
            if dx * dx + dy * dy + dz * dz <= limit * limit:
                leaves[n] = leaf
                n += 1
    return n


@kernel
def _count(start, stop, points, centres, radii, branch_centres, branch_radii, queries, radius, result):
    leaves = np.empty(len(radii), np.int32)
    for m in range(start, stop):
        x, y, z = queries[m, 0], queries[m, 1], queries[m, 2]
        total = 0
        for i in range(walk_leaves(centres, radii, branch_centres, branch_radii, x, y, z, radius, leaves)):
            for p in range(leaves[i] * LEAF, min((leaves[i] + 1) * LEAF, len(points))):
                dx, dy, dz = points[p, 0] - x, points[p, 1] - y, points[p, 2] - z
                total += dx * dx + dy * dy + dz * dz <= radius * radius
        result[m] = total


@kernel
def _list(
    start, stop, points, centres, radii, branch_centres, branch_radii, queries, radius, order, starts, index
):
    leaves = np.empty(len(radii), np.int32)
    for m in range(start, stop):
        x, y, z = queries[m, 0], queries[m, 1], queries[m, 2]
        at = starts[m]
        for i in range(walk_leaves(centres, radii, branch_centres, branch_radii, x, y, z, radius, leaves)):
            for p in range(leaves[i] * LEAF, min((leaves[i] + 1) * LEAF, len(points))):
                dx, dy, dz = points[p, 0] - x, points[p, 1] - y, points[p, 2] - z
                if dx * dx + dy * dy + dz * dz <= radius * radius:
                    index[at] = order[p]
                    at += 1
        index[starts[m] : at].sort()
