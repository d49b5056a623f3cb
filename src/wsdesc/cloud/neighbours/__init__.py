"""Radius search in a point cloud, on CPU and GPU.

The points are sorted along a Morton curve over 2²¹ cells per axis and cut into leaves of 32 consecutive
points. Each leaf has an enclosing ball; 32 leaves form a branch. A search compares balls first, then points.
Memory depends only on the number of points, not on the extent of the cloud or on its unit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from wsdesc.cloud.neighbours import cpu, reference
from wsdesc.cloud.neighbours.build import LEAF, enclosing_balls, morton_keys
from wsdesc.cloud.neighbours.cpu import walk_leaves
from wsdesc.core.cells import count_within
from wsdesc.core.devices import has_triton
from wsdesc.core.errors import InputError
from wsdesc.core.tensor_memo import TensorMemo

__all__ = [
    "LEAF",
    "NeighbourGrid",
    "Neighbourhoods",
    "check_points",
    "check_shape",
    "count_neighbours",
    "mark_finite",
    "walk_leaves",
]


class Neighbourhoods(NamedTuple):
    """Neighbours of M queries. Those of query m are indices[starts[m]:starts[m + 1]]."""

    indices: Tensor  # (P,) int64, into the points the grid was built from, ascending within a query
    starts: Tensor  # (M + 1,) int64


@dataclass(frozen=True)
class NeighbourGrid:
    """Search structure over a point cloud. Build it once per cloud with `NeighbourGrid.of(points)`."""

    points: Tensor  # (N, 3) in Morton order
    order: Tensor  # (N,) int64, index of each of them in the input
    centres: Tensor  # (L, 3) of the leaves' balls
    radii: Tensor  # (L,)
    branch_centres: Tensor  # (B, 3)
    branch_radii: Tensor  # (B,)

    @classmethod
    def of(cls, points: Tensor) -> NeighbourGrid:
        """Build the grid of `points` (N, 3), float32 or float64, N ≥ 1, all finite; any unit, any device."""
        check_shape(points, "points")
        if grid := _grids.get(points):
            return grid
        check_points(points)
        if points.dtype not in (torch.float32, torch.float64):
            raise InputError(f"points must be float32 or float64, not {points.dtype}: convert them first")
        build = build_on_cuda if points.is_cuda and has_triton() else build_plainly
        grid = build(points.detach())
        _grids.set(points, grid)
        return grid

    def count(self, queries: Tensor, radius: float) -> Tensor:
        """Count the points within `radius` of each of `queries` (M, 3); (M,) int64."""
        if queries.ndim != 2 or queries.shape[1] != 3:  # kernels do not check
            raise InputError(f"queries must have the shape (M, 3), not {tuple(queries.shape)}")
        if not radius >= 0:
            raise InputError(f"the search radius must be at least 0, not {radius}")
        queries = queries.detach().to(self.points.dtype)
        if self.points.is_cuda:
            if has_triton():
                from wsdesc.cloud.neighbours import cuda

                if len(queries) * len(self.points) <= cuda.MAX_PAIRS:
                    return cuda.count(self.points, queries, radius)
            return reference.count(self, queries, radius)
        return cpu.count(self, queries, radius)

    def within(self, queries: Tensor, radius: float) -> Neighbourhoods:
        """Find all points within `radius` of each of `queries` (M, 3)."""
        counts = self.count(queries, radius)
        starts = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        queries = queries.detach().to(self.points.dtype)
        if self.points.is_cuda:
            return Neighbourhoods(reference.indices_within(self, queries, radius), starts)
        return Neighbourhoods(cpu.indices_within(self, queries, radius, starts), starts)

    def leaves_near(self, queries: Tensor, radii: Tensor, *, room: bool = False) -> tuple[Tensor, Tensor]:
        """Find the leaves whose ball meets the ball around each query. GPU kernels search in these.

        Args:
            queries: (M, 3) centres of the balls.
            radii: (M,) of the balls.
            room: The first result may have room for more numbers: their exact count takes a wait for the GPU.

        Returns:
            The leaf numbers (P,) int32, one query after the other, and where each query's numbers begin,
            (M + 1,) int64.
        """
        if self.points.is_cuda and has_triton():
            from wsdesc.cloud.neighbours import cuda

            return cuda.leaves_near(self.centres, self.radii, queries.contiguous(), radii, room)
        return reference.leaves_near(self.centres, self.radii, queries, radii)

    def arrays(self) -> tuple[np.ndarray, ...]:
        """Return the arrays that `walk_leaves` and CPU kernels around it read, without a copy."""
        tensors = (self.points, self.centres, self.radii, self.branch_centres, self.branch_radii)
        return tuple(t.numpy() for t in tensors)


_grids: TensorMemo[NeighbourGrid] = TensorMemo()
_finite: TensorMemo[bool] = TensorMemo()  # tensors that `check_points` has accepted


def count_neighbours(points: Tensor, radius: float) -> Tensor:
    """Count the other points within `radius` of each of the points (N, 3); (N,) int64."""
    if points.is_cuda and has_triton():
        from wsdesc.cloud.neighbours import cuda

        if len(points) ** 2 <= cuda.MAX_PAIRS:  # no grid is needed
            return cuda.count(points, points, radius) - 1
    if not points.is_cuda and points.dtype == torch.float32:
        return torch.from_numpy(count_within(check_points(points).detach().numpy(), radius)) - 1
    return NeighbourGrid.of(points).count(points, radius) - 1


def build_plainly(points: Tensor) -> NeighbourGrid:
    """Build the grid of points (N, 3), in plain torch."""
    order = torch.sort(morton_keys(points), stable=True).indices
    points = points[order].contiguous()
    rounding = 8 * torch.finfo(points.dtype).eps * points.abs().max()
    exact = points.double()
    leaves = enclosing_balls(exact, torch.zeros_like(exact[:, 0]))
    return _grid_of_balls(points, order, leaves, enclosing_balls(*leaves), rounding)


def build_on_cuda(points: Tensor) -> NeighbourGrid:
    """Build the same grid with few launches."""
    from wsdesc.cloud.neighbours import cuda

    low, high = torch.aminmax(points, dim=0)
    order = torch.sort(cuda.morton_keys(points.contiguous(), low, high), stable=True).indices
    points = points[order]
    rounding = 8 * torch.finfo(points.dtype).eps * torch.maximum(-low, high).max()
    leaves = cuda.enclosing_balls(points, None)
    return _grid_of_balls(points, order, leaves, cuda.enclosing_balls(*leaves), rounding)


def _grid_of_balls(
    points: Tensor,
    order: Tensor,
    leaves: tuple[Tensor, Tensor],
    branches: tuple[Tensor, Tensor],
    rounding: Tensor,
) -> NeighbourGrid:
    """Round the centres and radii of balls to the number type of the points; radii grow by the rounding."""
    return NeighbourGrid(
        points,
        order,
        leaves[0].to(points.dtype),
        leaves[1].to(points.dtype) + rounding,
        branches[0].to(points.dtype),
        branches[1].to(points.dtype) + 2 * rounding,
    )


def check_points(points: Tensor, name: str = "points") -> Tensor:
    """Return `points` if it is a non-empty, finite (N, 3) tensor of floats; else raise an InputError."""
    check_shape(points, name)
    if not _finite.get(points):
        if not bool(torch.isfinite(points.detach().sum())):  # a sum is finite only if all its terms are
            raise InputError(f"{name} has coordinates that are not finite: clean the cloud first")
        _finite.set(points, True)
    return points


def mark_finite(points: Tensor) -> Tensor:
    """Let `check_points` accept points that are known to be finite, such as a part of others; return them."""
    _finite.set(points, True)
    return points


def check_shape(points: Tensor, name: str) -> None:
    """Raise an InputError unless `points` is a non-empty (N, 3) tensor of floats."""
    if not isinstance(points, Tensor) or points.ndim != 2 or points.shape[1] != 3:
        shape = tuple(getattr(points, "shape", ())) or type(points).__name__
        raise InputError(f"{name} must be a tensor of shape (N, 3), not {shape}")
    if not points.is_floating_point():
        raise InputError(f"{name} must be floating point, not {points.dtype}")
    if len(points) == 0:
        raise InputError(f"{name} is empty: at least one point is needed")
