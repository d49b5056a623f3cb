"""The neighbour grid: what everything that searches within a radius searches in, on CPU and GPU.

Points are sorted along a Morton curve over a grid of 2²¹ cells an axis, and cut into leaves of 32
consecutive points, each inside a known ball; 32 leaves make a branch. A search compares balls, then
points. Neither empty space, nor a wrong unit, nor one point far away costs memory, and kernels on
both kinds of device read whole leaves.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from wsdesc.core.errors import InputError
from wsdesc.core.kernels import inline, kernel, run_in_chunks

LEAF = 32  # points in a leaf, and leaves in a branch
_BITS = 21  # of a Morton key, an axis
_PAIRS_AT_ONCE = 1 << 22  # bounds the memory of a search on the GPU, and keeps it in the cache


class Neighbourhoods(NamedTuple):
    """Neighbours of M queries, one after the other: those of m are indices[starts[m]:starts[m + 1]]."""

    indices: Tensor  # (P,) int64, into the points the grid was built from, ascending within a query
    starts: Tensor  # (M + 1,) int64


@dataclass(frozen=True)
class NeighbourGrid:
    """A cloud made searchable. Build it once a cloud with `NeighbourGrid.of(points)`."""

    points: Tensor  # (N, 3) along the curve
    order: Tensor  # (N,) int64, where each of them stood in the input
    centres: Tensor  # (L, 3) of the leaves' balls
    radii: Tensor  # (L,)
    branch_centres: Tensor  # (B, 3)
    branch_radii: Tensor  # (B,)

    @classmethod
    def of(cls, points: Tensor) -> NeighbourGrid:
        """Sort `points` (N, 3), float32 or float64, any unit, any device; N ≥ 1 and all finite."""
        points = check_points(points).detach()
        if points.dtype not in (torch.float32, torch.float64):
            raise InputError(f"points must be float32 or float64 to be searched, not {points.dtype}")
        order = torch.sort(_morton_keys(points), stable=True).indices
        points = points[order].contiguous()
        rounding = 8 * torch.finfo(points.dtype).eps * points.abs().max()
        exact = points.double()
        leaf_centres, leaf_radii = _balls(exact, torch.zeros_like(exact[:, 0]))
        branch_centres, branch_radii = _balls(leaf_centres, leaf_radii)
        return cls(
            points,
            order,
            leaf_centres.to(points.dtype),
            leaf_radii.to(points.dtype) + rounding,
            branch_centres.to(points.dtype),
            branch_radii.to(points.dtype) + 2 * rounding,
        )

    def count(self, queries: Tensor, radius: float) -> Tensor:
        """How many points lie within `radius` of each of `queries` (M, 3): (M,) int64."""
        if queries.ndim != 2 or queries.shape[1] != 3:  # kernels do not look
            raise InputError(f"queries must be of shape (M, 3), not {tuple(queries.shape)}")
        if not radius >= 0:
            raise InputError(f"a radius to search within must not be negative, as {radius} is")
        if self.points.is_cuda:
            return torch.cat([torch.bincount(q, minlength=n) for n, q, _ in self._pairs(queries, radius)])
        result = torch.zeros(len(queries), dtype=torch.int64)
        run_in_chunks(_count, len(queries), *self._search(queries, radius), result.numpy())
        return result

    def within(self, queries: Tensor, radius: float) -> Neighbourhoods:
        """All points within `radius` of each of `queries` (M, 3)."""
        counts = self.count(queries, radius)
        start = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        if self.points.is_cuda:
            parts = [_sorted_within_query(q, self.order[p]) for _, q, p in self._pairs(queries, radius)]
            return Neighbourhoods(torch.cat(parts), start)
        index = torch.empty(int(start[-1]), dtype=torch.int64)
        arrays = self._search(queries, radius)
        run_in_chunks(_fill, len(queries), *arrays, self.order.numpy(), start.numpy(), index.numpy())
        return Neighbourhoods(index, start)

    def leaves_near(self, queries: Tensor, radius: Tensor) -> tuple[Tensor, Tensor]:
        """Leaves whose ball meets the ball of `radius` (M,) about each query: their numbers, one query
        after the other (P,) int32, and where each query's begin (M + 1,) int64. For GPU kernels."""
        if find_spec("triton"):
            from wsdesc.cloud import neighbours_cuda

            return neighbours_cuda.leaves_near(self.centres, self.radii, queries.contiguous(), radius)
        numbers, counts = [], []
        chunk = max(1, _PAIRS_AT_ONCE // len(self.centres))
        for some, reach in zip(queries.split(chunk), radius.split(chunk), strict=True):
            squared = sum((q[:, None] - c).square_() for q, c in zip(some.T, self.centres.T, strict=True))
            near = squared <= (reach[:, None] + self.radii).square_()  # (m, L)
            counts.append(near.sum(1))
            numbers.append(near.nonzero()[:, 1].int())
        start = torch.cat([queries.new_zeros(1, dtype=torch.int64), torch.cat(counts).cumsum(0)])
        return torch.cat(numbers), start

    def arrays(self) -> tuple[np.ndarray, ...]:
        """What `walk_leaves` and CPU kernels around it read, as arrays without a copy."""
        names = (self.points, self.centres, self.radii, self.branch_centres, self.branch_radii)
        return tuple(t.numpy() for t in names)

    def _search(self, queries: Tensor, radius: float) -> tuple[Any, ...]:
        queries = queries.detach().to(self.points.dtype).contiguous()
        return *self.arrays(), queries.numpy(), self.points.numpy().dtype.type(radius)

    def _pairs(self, queries: Tensor, radius: float) -> Iterator[tuple[int, Tensor, Tensor]]:
        """Yield (queries in this chunk, query of each pair, point of each pair), on the GPU."""
        queries = queries.detach().to(self.points.dtype)
        reach = queries.new_full((len(queries),), radius)
        lane = torch.arange(LEAF, device=queries.device)
        chunk = max(1, _PAIRS_AT_ONCE // len(self.centres))
        for some, r in zip(queries.split(chunk), reach.split(chunk), strict=True):
            leaf, start = self.leaves_near(some, r)
            query = torch.repeat_interleave(torch.arange(len(some), device=some.device), start.diff())
            point = leaf[:, None].long() * LEAF + lane  # (P, 32)
            offset = self.points[point.clamp(max=len(self.points) - 1)] - some[query, None]
            near = (offset.square().sum(-1) <= radius * radius) & (point < len(self.points))
            yield len(some), query[:, None].expand_as(point)[near], point[near]


def check_points(points: Tensor, name: str = "points") -> Tensor:
    """Return `points` if it is a non-empty, finite (N, 3) tensor of floats; else say what is wrong."""
    check_shape(points, name)
    if not bool(torch.isfinite(points.detach().sum())):  # a sum is finite only where all its terms are
        raise InputError(f"{name} has coordinates that are not finite: clean the cloud first")
    return points


def check_shape(points: Tensor, name: str) -> None:
    """Refuse what is not a non-empty (N, 3) tensor of floats."""
    if not isinstance(points, Tensor) or points.ndim != 2 or points.shape[1] != 3:
        shape = tuple(getattr(points, "shape", ())) or type(points).__name__
        raise InputError(f"{name} must be a tensor of shape (N, 3), not {shape}")
    if not points.is_floating_point():
        raise InputError(f"{name} must be floating point, not {points.dtype}")
    if len(points) == 0:
        raise InputError(f"{name} is empty")


def _morton_keys(points: Tensor) -> Tensor:
    """(N,) int64: cell numbers along a Morton curve over the cloud's bounding cube."""
    low = points.amin(0).double()
    side = (points.amax(0).double() - low).amax().clamp(min=torch.finfo(torch.float64).tiny)
    cell = ((points.double() - low) / side * (2**_BITS - 1)).long()
    for shift, mask in (
        (32, 0x1F00000000FFFF),
        (16, 0x1F0000FF0000FF),
        (8, 0x100F00F00F00F00F),
        (4, 0x10C30C30C30C30C3),
        (2, 0x1249249249249249),
    ):
        cell = (cell | (cell << shift)) & mask  # two zero bits between any two of the 21
    axis = torch.arange(3, device=cell.device)
    keys: Tensor = (cell << axis).sum(-1)  # no two axes share a bit
    return keys


def _balls(centres: Tensor, radii: Tensor) -> tuple[Tensor, Tensor]:
    """Balls around each 32 consecutive balls."""
    missing = -len(centres) % LEAF
    centres = torch.cat([centres, centres[-1:].expand(missing, 3)]).view(-1, LEAF, 3)
    radii = torch.cat([radii, radii[-1:].expand(missing)]).view(-1, LEAF)
    middle = (centres.amin(1) + centres.amax(1)) / 2
    reach = (centres - middle[:, None]).square().sum(-1).sqrt() + radii
    return middle, reach.amax(1)


def _sorted_within_query(query: Tensor, point: Tensor) -> Tensor:
    by_point = torch.sort(point, stable=True).indices
    return point[by_point][torch.sort(query[by_point], stable=True).indices]


@inline
def walk_leaves(centres, radii, branch_centres, branch_radii, x, y, z, reach, found):
    """Write the numbers of the leaves that meet the ball into `found` (L,); return how many."""
    n = 0
    for b in range(len(branch_radii)):
        dx, dy, dz = branch_centres[b, 0] - x, branch_centres[b, 1] - y, branch_centres[b, 2] - z
        limit = reach + branch_radii[b]
        if dx * dx + dy * dy + dz * dz > limit * limit:
            continue
        for leaf in range(b * LEAF, min((b + 1) * LEAF, len(radii))):
            dx, dy, dz = centres[leaf, 0] - x, centres[leaf, 1] - y, centres[leaf, 2] - z
            limit = reach + radii[leaf]
            if dx * dx + dy * dy + dz * dz <= limit * limit:
                found[n] = leaf
                n += 1
    return n


@kernel
def _count(start, stop, points, centres, radii, branch_centres, branch_radii, queries, radius, result):
    found = np.empty(len(radii), np.int32)
    for m in range(start, stop):
        x, y, z = queries[m, 0], queries[m, 1], queries[m, 2]
        total = 0
        for i in range(walk_leaves(centres, radii, branch_centres, branch_radii, x, y, z, radius, found)):
            for p in range(found[i] * LEAF, min((found[i] + 1) * LEAF, len(points))):
                dx, dy, dz = points[p, 0] - x, points[p, 1] - y, points[p, 2] - z
                total += dx * dx + dy * dy + dz * dz <= radius * radius
        result[m] = total


@kernel
def _fill(
    start, stop, points, centres, radii, branch_centres, branch_radii, queries, radius, order, first, index
):
    found = np.empty(len(radii), np.int32)
    for m in range(start, stop):
        x, y, z = queries[m, 0], queries[m, 1], queries[m, 2]
        at = first[m]
        for i in range(walk_leaves(centres, radii, branch_centres, branch_radii, x, y, z, radius, found)):
            for p in range(found[i] * LEAF, min((found[i] + 1) * LEAF, len(points))):
                dx, dy, dz = points[p, 0] - x, points[p, 1] - y, points[p, 2] - z
                if dx * dx + dy * dy + dz * dz <= radius * radius:
                    index[at] = order[p]
                    at += 1
        index[first[m] : at].sort()
