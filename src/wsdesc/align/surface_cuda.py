"""`Surface` on a GPU: the same as tensors, laid onto others in many poses at once.

Sums are taken in float64, which costs nothing at this size; only the search for nearest points is in float32.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from wsdesc.align.surface import FLATTEST, NEIGHBOURS, RARE, REFERENCE, SAMPLE, SHARPNESS
from wsdesc.cloud.nearest import nearest, neighbours_of_each
from wsdesc.cloud.neighbours import NeighbourGrid, check_points

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


class Contacts(NamedTuple):
    """The sample of one surface, moved onto another in H poses, and what is nearest; the other's frame."""

    points: Tensor  # (H, S, 3) of the sample, moved
    normals: Tensor  # (H, S, 3)
    partner: Tensor  # (H, S) int64 into the other surface
    distance: Tensor  # (H, S) infinite where there is none within the reach
    offset: (
        Tensor  # (H, S) from the partner's tangent plane, not negative; its distance where it has no normal
    )
    cosine: Tensor  # (H, S) between both normals, 0 … 1; 0 where either is missing


def contacts(asking: DeviceSurface, other: DeviceSurface, T_other_asking: Tensor, reach: float) -> Contacts:
    """Lay the sample of `asking` onto `other`, in poses (H, 4, 4), and look for the nearest points."""
    R, t = T_other_asking[:, :3, :3], T_other_asking[:, None, :3, 3]
    points = asking.points[asking.sample] @ R.mT + t  # (H, S, 3)
    normals = asking.normals[asking.sample] @ R.mT
    partner = nearest(other.points, points.view(-1, 3)).view(points.shape[:2])
    across, gap = other.normals[partner], points - other.points[partner]
    distance = gap.square().sum(-1).sqrt()
    found = distance < reach
    distance = distance.where(found, torch.inf)
    offset = torch.where(found & across.any(-1), (gap * across).sum(-1).abs(), distance)
    cosine = torch.where(found, (normals * across).sum(-1).abs(), 0.0).clamp(max=1.0)
    return Contacts(points, normals, partner, distance, offset, cosine)


def inverses(T_b_a: Tensor) -> Tensor:
    """T_a_b (H, 4, 4) of rigid motions."""
    T_a_b = torch.zeros_like(T_b_a)
    T_a_b[:, :3, :3] = T_b_a[:, :3, :3].mT
    T_a_b[:, :3, 3:] = -T_b_a[:, :3, :3].mT @ T_b_a[:, :3, 3:]
    T_a_b[:, 3, 3] = 1
    return T_a_b


def _local_planes(grid: NeighbourGrid) -> tuple[Tensor, Tensor]:
    """Normals (N, 3) and bends (N,), in the order of the cloud, from each point's nearest neighbours."""
    points = grid.points.double()
    normals, bend = torch.zeros_like(points), torch.zeros_like(points[:, 0])
    count = min(NEIGHBOURS, len(points))
    if count < 3:
        return normals, bend
    offsets = points[neighbours_of_each(grid, count)]  # (N, count, 3)
    offsets -= offsets.mean(1, keepdim=True)
    covariances = offsets.mT @ offsets
    parts = [torch.linalg.eigh(some) for some in covariances.split(_MATRICES_AT_ONCE)]
    values = torch.cat([part.eigenvalues for part in parts]).clamp(min=0.0)  # (N, 3) ascending
    thinnest = torch.cat([part.eigenvectors[:, :, 0] for part in parts])
    total = values.sum(1)
    surface = values[:, 1] > FLATTEST * values[:, 2]
    normals[grid.order] = torch.where(surface[:, None], thinnest, 0.0)
    bend[grid.order] = torch.where(surface, 3 * values[:, 0] / torch.where(total > 0, total, 1.0), 0.0)
    return normals, bend


def _rarity(normals: Tensor, reference: Tensor) -> Tensor:
    """Weights inverse to how many of the reference normals point the same way, signs aside."""
    alike = (normals @ reference.T).pow(SHARPNESS).mean(1)
    weight = normals.any(1) / alike.clamp(min=RARE)
    total = weight.sum()
    return torch.where(total > 0, weight / total.clamp(min=1e-300), 1 / len(normals))
