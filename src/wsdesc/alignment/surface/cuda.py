"""Surface on a GPU: tensors, many poses at once. Plain torch, so that it also runs on other devices.

Sums are in float64, which costs little at this size. Only the search for nearest points is in float32.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
import torch
from torch import Tensor

from wsdesc.alignment.surface.base import (
    MIN_FREQUENCY,
    SAMPLE_NEIGHBOURS,
    SHARPNESS,
    Backend,
    choose_samples,
)
from wsdesc.cloud.nearest import k_nearest, nearest
from wsdesc.cloud.neighbours import NeighbourGrid, check_points
from wsdesc.core.eigen import symmetric_eigen
from wsdesc.core.geometry import Floats, inverse
from wsdesc.core.planes import LINE_RATIO, NEIGHBOURS


@dataclass(frozen=True, eq=False)
class CudaSurface:
    """A scan at the working resolution as float64 tensors; see `Surface`."""

    points: Tensor  # (N, 3)
    normals: Tensor  # (N, 3)
    curvature: Tensor  # (N,)
    neighbours: Tensor  # (N, 4) int64
    sample: Tensor  # (S,) int64
    coarse: Tensor  # (C,) int64
    direction_weights: Tensor  # (S,)

    @property
    def backend(self) -> Backend:
        return "cuda"

    @classmethod
    def of(cls, points: Tensor) -> Self:
        """Prepare points (N, 3), N ≥ 1, finite and downsampled; any unit, any device."""
        grid = NeighbourGrid.of(check_points(points).detach().float())
        normals, curvature, neighbours = _local_planes(grid)
        samples = choose_samples(points.detach().double().cpu().numpy())
        sample, coarse, reference = (torch.from_numpy(x).to(points.device) for x in samples)
        weights = _direction_weights(normals[sample], normals[reference])
        return cls(points.detach().double(), normals, curvature, neighbours, sample, coarse, weights)

    @cached_property
    def search_points(self) -> Tensor:
        """(N, 3) float32 points, in which nearest points are searched."""
        return self.points.float().contiguous()

    @cached_property
    def points_with_normals(self) -> Tensor:
        """(N, 6) points and normals side by side, so that one look-up reads both."""
        return torch.cat([self.points, self.normals], 1)

    @cached_property
    def sample_with_normals(self) -> Tensor:
        """(S, 6) points and normals of the sample."""
        return self.points_with_normals[self.sample]

    @cached_property
    def coarse_with_normals(self) -> Tensor:
        """(C, 6) points and normals of the coarse sample."""
        return self.sample_with_normals[self.coarse]

    @cached_property
    def sample_neighbours(self) -> Tensor:
        """(S, 4) positions in the sample of the nearest other points of the sample; fewer in tiny scans."""
        grid = NeighbourGrid.of(self.points[self.sample].float())
        return _nearest_others(grid, k_nearest(grid, min(SAMPLE_NEIGHBOURS + 1, len(self.sample))))

    def nearest_to(self, points: Tensor) -> Tensor:
        """Find the nearest point of this surface to each of points (H, S, 3): (H, S) int64."""
        return nearest(self.search_points, points.reshape(-1, 3)).view(points.shape[:2])


def transform_with_normals(points_with_normals: Tensor, T: Tensor) -> Tensor:
    """Transform points with normals (S, 6) or (H, S, 6) by poses (H, 4, 4): (H, S, 6)."""
    rows = points_with_normals.expand(len(T), -1, -1).reshape(len(T), -1, 3)  # points and normals in turn
    moved = (rows @ T[:, :3, :3].mT).view(len(T), -1, 6)
    moved[..., :3] += T[:, None, :3, 3]
    return moved


def poses_and_inverses(poses: Floats, surface: CudaSurface) -> tuple[Tensor, Tensor]:
    """Return poses T_b_a (H, 4, 4) and their inverses T_a_b on the surface's device."""
    T_b_a, T_a_b = torch.from_numpy(np.stack([poses, inverse(poses)])).to(surface.points.device)
    return T_b_a, T_a_b


def _local_planes(grid: NeighbourGrid) -> tuple[Tensor, Tensor, Tensor]:
    """Fit planes as `core.planes.local_planes`: normals (N, 3) and curvature (N,) in the scan's order.

    The third result are the nearest other points (N, 4).
    """
    points = grid.points.double()
    normals, curvature = torch.zeros_like(points), torch.zeros_like(points[:, 0])
    count = min(NEIGHBOURS, len(points))
    if count < 3:
        return normals, curvature, torch.empty(len(points), 0, dtype=torch.int64, device=points.device)
    near = k_nearest(grid, count)  # (N, count)
    neighbours = _nearest_others(grid, near)
    offsets = points[near]  # (N, count, 3)
    offsets -= offsets.mean(1, keepdim=True)
    covariances = offsets.mT @ offsets
    values, vectors = symmetric_eigen(covariances)
    values, thinnest = values.clamp(min=0.0), vectors[:, :, 0]
    total = values.sum(1)
    surface = values[:, 1] > LINE_RATIO * values[:, 2]
    normals[grid.order] = torch.where(surface[:, None], thinnest, 0.0)
    curvature[grid.order] = torch.where(surface, 3 * values[:, 0] / torch.where(total > 0, total, 1.0), 0.0)
    return normals, curvature, neighbours


def _nearest_others(grid: NeighbourGrid, near: Tensor) -> Tensor:
    """Return the nearest other points (N, 4), in the scan's order, among near points (N, K) in any order."""
    squared = (grid.points[near] - grid.points[:, None]).square().sum(-1)  # (N, K)
    others = near.gather(1, squared.argsort(dim=1, stable=True)[:, 1 : 1 + SAMPLE_NEIGHBOURS])
    neighbours = torch.empty_like(others)
    neighbours[grid.order] = grid.order[others]
    return neighbours


def _direction_weights(normals: Tensor, reference: Tensor) -> Tensor:
    """Weight normals by the inverse share of reference normals with the same direction, up to sign."""
    frequency = (normals @ reference.T).pow(SHARPNESS).mean(1)
    weight = normals.any(1) / frequency.clamp(min=MIN_FREQUENCY)
    total = weight.sum()
    return torch.where(total > 0, weight / total.clamp(min=1e-300), 1 / len(normals))
