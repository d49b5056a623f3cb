"""`Surface` on a GPU: the same as tensors, laid onto others in many poses at once.

Sums are taken in float64, which costs nothing at this size; only the search for nearest points is in float32.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
import torch
from torch import Tensor

from wsdesc.alignment.surface import RARE, REFERENCE, SAMPLE, SHARPNESS
from wsdesc.cloud.nearest import k_nearest, nearest
from wsdesc.cloud.neighbours import NeighbourGrid, check_points
from wsdesc.core.geometry import LINE_RATIO, NEIGHBOURS, Floats, inverse

_MATRICES_AT_ONCE = 1 << 15  # more are too many for some versions of the solver


@dataclass(frozen=True, eq=False)
class DeviceSurface:
    """A cloud at the working resolution, prepared once. Build it with `DeviceSurface.of(points)`."""

    points: Tensor  # (N, 3) float64, as all that follow
    normals: Tensor  # (N, 3), of either sign; zero where the neighbours do not fix one
    bend: Tensor  # (N,) 0 on a plane … 1 where neighbours spread alike in all directions
    sample: Tensor  # (S,) int64, ascending: who asks when two clouds are compared
    rarity: Tensor  # (S,) adding up to 1: weights that give every direction of normals the same say

    @classmethod
    def of(cls, points: Tensor) -> Self:
        """Prepare `points` (N, 3), N ≥ 1 and finite, downsampled already; any unit, any device."""
        grid = NeighbourGrid.of(check_points(points).detach().float())
        normals, bend = _local_planes(grid)
        order = torch.from_numpy(np.random.default_rng(0).permutation(len(points))).to(points.device)
        sample = order[:SAMPLE].sort().values
        rarity = _rarity(normals[sample], normals[order[:REFERENCE]])
        return cls(points.detach().double(), normals, bend, sample, rarity)

    @cached_property
    def sought(self) -> Tensor:
        """(N, 3) float32: what the nearest points are looked for in."""
        return self.points.float().contiguous()

    @cached_property
    def placed(self) -> Tensor:
        """(N, 6) points and normals side by side, so that one look-up brings both."""
        return torch.cat([self.points, self.normals], 1)

    @cached_property
    def asking(self) -> Tensor:
        """(S, 6) the same of the sample."""
        return self.placed[self.sample]

    def partners_in(self, other: DeviceSurface, moved: Tensor) -> Tensor:
        """(H, S) int64: who is nearest in `other` to the sample where H poses `moved` (H, S, 3) it to."""
        return nearest(other.sought, moved.reshape(-1, 3)).view(moved.shape[:2])


def laid(placed: Tensor, T: Tensor) -> Tensor:
    """Points with normals (S, 6) or (H, S, 6), moved by poses (H, 4, 4): (H, S, 6)."""
    rows = placed.expand(len(T), -1, -1).reshape(len(T), -1, 3)  # points and normals in turn
    moved = (rows @ T[:, :3, :3].mT).view(len(T), -1, 6)
    moved[..., :3] += T[:, None, :3, 3]
    return moved


def on_device(poses: Floats, surface: DeviceSurface) -> tuple[Tensor, Tensor]:
    """Poses T_b_a (H, 4, 4) and their inverses T_a_b, where the surface is."""
    T_b_a, T_a_b = torch.from_numpy(np.stack([poses, inverse(poses)])).to(surface.points.device)
    return T_b_a, T_a_b


def _local_planes(grid: NeighbourGrid) -> tuple[Tensor, Tensor]:
    """Normals (N, 3) and bends (N,), in the order of the cloud, from each point's nearest neighbours."""
    points = grid.points.double()
    normals, bend = torch.zeros_like(points), torch.zeros_like(points[:, 0])
    count = min(NEIGHBOURS, len(points))
    if count < 3:
        return normals, bend
    offsets = points[k_nearest(grid, count)]  # (N, count, 3)
    offsets -= offsets.mean(1, keepdim=True)
    covariances = offsets.mT @ offsets
    parts = [torch.linalg.eigh(some) for some in covariances.split(_MATRICES_AT_ONCE)]
    values = torch.cat([part.eigenvalues for part in parts]).clamp(min=0.0)  # (N, 3) ascending
    thinnest = torch.cat([part.eigenvectors[:, :, 0] for part in parts])
    total = values.sum(1)
    surface = values[:, 1] > LINE_RATIO * values[:, 2]
    normals[grid.order] = torch.where(surface[:, None], thinnest, 0.0)
    bend[grid.order] = torch.where(surface, 3 * values[:, 0] / torch.where(total > 0, total, 1.0), 0.0)
    return normals, bend


def _rarity(normals: Tensor, reference: Tensor) -> Tensor:
    """Weights inverse to how many of the reference normals point the same way, signs aside."""
    alike = (normals @ reference.T).pow(SHARPNESS).mean(1)
    weight = normals.any(1) / alike.clamp(min=RARE)
    total = weight.sum()
    return torch.where(total > 0, weight / total.clamp(min=1e-300), 1 / len(normals))
