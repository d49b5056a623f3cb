"""Surface on a GPU: tensors, many poses at once. Plain torch also runs on other devices.

Sums are in float64, which costs little at this size. Only the search for nearest points is in float32.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np
import torch
from torch import Tensor

from wsdesc.alignment.surface.base import (
    COARSE_SIZE,
    HASH_FACTOR,
    MIN_FREQUENCY,
    REFERENCE_SIZE,
    SAMPLE_NEIGHBOURS,
    SAMPLE_SIZE,
    SHARPNESS,
    Backend,
    cell_size,
)
from wsdesc.cloud.nearest import k_nearest, nearest
from wsdesc.cloud.neighbours import NeighbourGrid, check_points
from wsdesc.core.devices import has_triton
from wsdesc.core.eigen import symmetric_eigen
from wsdesc.core.geometry import Floats, inverse
from wsdesc.core.planes import LINE_RATIO, NEIGHBOURS


@dataclass(frozen=True, eq=False)
class CudaSurface:
    """A scan at the working resolution as float64 tensors; see `Surface`."""

    points: Tensor  # (N, 3)
    rows: Tensor  # (N, 8) points, normals, curvature and 0: one look-up reads all of a point
    sample: Tensor  # (S,) int64
    coarse: Tensor  # (C,) int64
    direction_weights: Tensor  # (S,)

    @property
    def backend(self) -> Backend:
        return "cuda"

    @classmethod
    def of(cls, points: Tensor) -> Self:
        """Prepare points (N, 3), N ≥ 1, finite and downsampled; any unit, any device."""
        grid = NeighbourGrid.of(check_points(points).float())
        points = points.detach().double()
        rows = fit_planes(grid, points)
        normals = rows[:, 3:6]
        sample, coarse, reference = choose_samples(points)
        weights = _direction_weights(normals[sample], normals[reference])
        return cls(points, rows, sample, coarse, weights)

    def scaled(self, factor: float) -> Self:
        """Return the surface with points that are multiplied by a factor; normals and the sample stay."""
        points = factor * self.points
        return replace(self, points=points, rows=torch.cat([points, self.rows[:, 3:]], dim=1))

    @cached_property
    def search_points(self) -> Tensor:
        """(N, 3) float32 points, in which nearest points are searched."""
        return self.points.float().contiguous()

    @property
    def normals(self) -> Tensor:
        """(N, 3)."""
        return self.rows[:, 3:6]

    @property
    def curvature(self) -> Tensor:
        """(N,)."""
        return self.rows[:, 6]

    @property
    def points_with_normals(self) -> Tensor:
        """(N, 6) points and normals side by side."""
        return self.rows[:, :6]

    @cached_property
    def sample_with_normals(self) -> Tensor:
        """(S, 6) points and normals of the sample."""
        return self.points_with_normals[self.sample]

    @cached_property
    def coarse_with_normals(self) -> Tensor:
        """(C, 6) points and normals of the coarse sample."""
        return self.sample_with_normals[self.coarse]

    @cached_property
    def sample_rows(self) -> Tensor:
        """(S, 8) points, normals, curvature and direction weights of the sample."""
        rows = self.rows[self.sample]
        rows[:, 7] = self.direction_weights
        return rows

    @cached_property
    def coarse_rows(self) -> Tensor:
        """(C, 8) the same of the coarse sample; its weights have the sum 1, too."""
        rows = self.sample_rows[self.coarse]
        rows[:, 7] /= rows[:, 7].sum().clamp(min=1e-300)
        return rows

    @cached_property
    def neighbours(self) -> Tensor:
        """(N, 4) indices of the nearest other points; fewer in tiny scans."""
        return _nearest_others(self.points)

    @cached_property
    def sample_neighbours(self) -> Tensor:
        """(S, 4) positions in the sample of the nearest other points of the sample; fewer in tiny scans."""
        return _nearest_others(self.points[self.sample])

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


def choose_samples(points: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Choose the samples of points (N, 3) float64 as `base.choose_samples`."""
    order = torch.sort(_sample_keys(points), stable=True).indices
    sample = order[:SAMPLE_SIZE].sort().values
    return sample, torch.searchsorted(sample, order[:COARSE_SIZE].sort().values), order[:REFERENCE_SIZE]


def _sample_keys(points: Tensor) -> Tensor:
    """Hash points (N, 3) as `base.sample_order`: keys (N,) int64 in the order of the unsigned hashes."""
    variance = points.var(0, correction=0)
    if points.is_cuda and has_triton():
        from wsdesc.alignment.surface import planes

        return planes.sample_keys(points, variance)
    cells = (points / cell_size(float(variance.sum().sqrt().cpu())) + 0.5).floor().long()
    keys = torch.zeros_like(cells[:, 0])
    for axis in range(3):
        keys = (keys ^ cells[:, axis]) * (HASH_FACTOR - 2**64)  # as a signed number; products wrap around
        keys = keys ^ ((keys >> 32) & 0xFFFFFFFF)
    return keys ^ -(2**63)


def fit_planes(grid: NeighbourGrid, points: Tensor) -> Tensor:
    """Fit planes to points (N, 3) as `core.planes.local_planes`; return `CudaSurface.rows`."""
    count = min(NEIGHBOURS, len(points))
    if count >= 3 and points.is_cuda and has_triton():
        from wsdesc.alignment.surface import planes

        if len(grid.radii) <= planes.MAX_LEAVES:
            return planes.fit_planes(grid, points, count)
    return fit_planes_plainly(grid, points, count)


def fit_planes_plainly(grid: NeighbourGrid, points: Tensor, count: int) -> Tensor:
    """Fit planes to the `count` nearest neighbours of each point, in plain torch."""
    rows = torch.cat([points, torch.zeros(len(points), 5, dtype=points.dtype, device=points.device)], 1)
    if count < 3:
        return rows
    ordered = grid.points.double()
    offsets = ordered[k_nearest(grid, count)]  # (N, count, 3)
    offsets -= offsets.mean(1, keepdim=True)
    covariances = offsets.mT @ offsets
    values, vectors = symmetric_eigen(covariances)
    values, thinnest = values.clamp(min=0.0), vectors[:, :, 0]
    total = values.sum(1)
    surface = values[:, 1] > LINE_RATIO * values[:, 2]
    curvature = torch.where(surface, 3 * values[:, 0] / torch.where(total > 0, total, 1.0), 0.0)
    rows[grid.order, 3:7] = torch.cat([torch.where(surface[:, None], thinnest, 0.0), curvature[:, None]], 1)
    return rows


def _nearest_others(points: Tensor) -> Tensor:
    """Find the nearest other points (N, 4) of each of points (N, 3), nearest first; fewer in tiny scans."""
    grid = NeighbourGrid.of(points.float())
    near = k_nearest(grid, min(SAMPLE_NEIGHBOURS + 1, len(points)))  # in any order
    squared = (grid.points[near] - grid.points[:, None]).square().sum(-1)  # (N, K)
    others = near.gather(1, squared.argsort(dim=1, stable=True)[:, 1:])
    neighbours = torch.empty_like(others)
    neighbours[grid.order] = grid.order[others]
    return neighbours


def _direction_weights(normals: Tensor, reference: Tensor) -> Tensor:
    """Weight normals by the inverse share of reference normals with the same direction, up to sign."""
    frequency = (normals @ reference.T).pow(SHARPNESS).mean(1)
    weight = normals.any(1) / frequency.clamp(min=MIN_FREQUENCY)
    total = weight.sum()
    return torch.where(total > 0, weight / total.clamp(min=1e-300), 1 / len(normals))
