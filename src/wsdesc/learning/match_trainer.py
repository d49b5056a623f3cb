"""Learning from matches: the same network and support, taught which points are one place.

Matches that come from poses make the supervised oracle, which shows what poses would add. Matches that a
trained model finds by itself make a training without labels go on.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.spatial import cKDTree
from torch import Tensor, nn

from wsdesc.cloud.neighbours import NeighbourGrid
from wsdesc.cloud.sampling import farthest_points
from wsdesc.core.errors import InputError
from wsdesc.learning.losses import BatchHardLoss
from wsdesc.learning.options import TrainOptions
from wsdesc.learning.trainer import PreparedPair, Trainer

MatchedPair = tuple[Tensor, Tensor, Tensor]  # p (N, 3), q (M, 3), matches (K, 2): rows of p and of q

WITHIN = 0.1  # metres: points no farther apart than that match, as τ1 of inliers
FEWEST = 64  # matches; pairs with fewer teach little


class MatchedSource(Protocol):
    """A `PairSource` whose pairs come with matches."""

    def pair(self, number: int) -> MatchedPair:
        """The clouds and matches that belong to this number."""

    def close(self) -> None:
        """Let go of worker processes."""


def coincident(p: Tensor, q: Tensor, T_q_p: NDArray[np.float64], within: float = WITHIN) -> Tensor:
    """Points of p (N, 3) and the point of q (M, 3) that is nearest to each: (K, 2) int64, K ≤ N."""
    moved = p.double().cpu().numpy() @ T_q_p[:3, :3].T + T_q_p[:3, 3]
    distance, nearest = cKDTree(q.double().cpu().numpy()).query(moved, distance_upper_bound=within)
    there = np.flatnonzero(distance < within)
    return torch.from_numpy(np.stack([there, nearest[there]], axis=1).astype(np.int64))


class InfoNCELoss(nn.Module):
    """Each anchor tells its match among the matches of all others.

    Args:
        exclusion_radius: anchors up to this far from each other, in the unit of their positions, look alike
            with good reason and are not each other's negatives.
        temperature: of the softmax over cosines.
    """

    def __init__(self, *, exclusion_radius: float = 0.1, temperature: float = 0.07) -> None:
        super().__init__()
        if temperature <= 0 or exclusion_radius < 0:
            raise InputError("temperature must be positive, exclusion_radius not negative")
        self.exclusion_radius, self.temperature = exclusion_radius, temperature

    def forward(self, anchor: Tensor, positive: Tensor, positions: Tensor) -> Tensor:
        """Unit descriptors (K, C) of both sides, and where the anchors are (K, 3): the loss, a scalar."""
        apart = torch.cdist(positions, positions, compute_mode="donot_use_mm_for_euclid_dist")
        itself = torch.eye(len(anchor), dtype=torch.bool, device=anchor.device)
        alike = (apart <= self.exclusion_radius) & ~itself
        logits = (anchor @ positive.T / self.temperature).masked_fill(alike, -torch.inf)  # (K, K)
        target = torch.arange(len(anchor), device=anchor.device)
        return nn.functional.cross_entropy(logits, target)


class MatchedTrainer(Trainer):
    """A trainer whose source brings matches with each pair: `MatchedSource`."""

    terms = ("there", "back")  # what the two figures beside the loss are

    def __init__(self, options: TrainOptions, device: torch.device | str = "cpu") -> None:
        super().__init__(options, device)
        wanted = options.oracle or options.self_training
        self.match_loss = InfoNCELoss() if wanted == "infonce" else BatchHardLoss()
        self._supervise = torch.compile(self._describe) if options.compile and self._cuda else self._describe

    @torch.no_grad()
    def prepare(  # type: ignore[override]  # it needs more than two clouds
        self, p: Tensor, q: Tensor, matches: Tensor, generator: torch.Generator
    ) -> PreparedPair:
        """Choose keypoints of P spread over what both clouds show, and take their matches for those of Q.

        Row k of both sets of keypoints is one place. matches: (M, 2) rows of p (N, 3) and q (M, 3).
        """
        grids = [self.grid(cloud, generator) for cloud in (p, q)]
        rows = [_places(grid)[column.to(self.device)] for grid, column in zip(grids, matches.T, strict=True)]
        chosen = farthest_points(grids[0].points[rows[0]], self.options.keypoints, generator)
        scenes = [
            self.model.prepare_grid(grid, grid.points[row[chosen]])
            for grid, row in zip(grids, rows, strict=True)
        ]
        return PreparedPair(*scenes)

    def gradients(self, pairs: list[PreparedPair]) -> Tensor:
        """Add the mean gradient over `pairs`; rows of loss, its value in both directions, and 1."""
        seen = []
        for p, q in pairs:
            features = self._supervise(torch.cat([self.model.voxels(p), self.model.voxels(q)]))
            features_p, features_q = features.chunk(2)
            there = self.match_loss(features_p, features_q, p.keypoints)
            back = self.match_loss(features_q, features_p, q.keypoints)
            loss = (there + back) / 2
            (loss / len(pairs)).backward()
            seen.append(torch.stack([loss, there, back, torch.ones_like(loss)]).detach())
        return torch.stack(seen)

    def _describe(self, voxels: Tensor) -> Tensor:
        bf16 = self._cuda and self.options.precision == "bf16"
        with torch.autocast(self.device.type, torch.bfloat16, enabled=bf16):
            features: Tensor = self.model.network(voxels)
        return features


def _places(grid: NeighbourGrid) -> Tensor:
    """Where in the grid each point of the original cloud is: (N,) int64."""
    places = torch.empty_like(grid.order)
    places[grid.order] = torch.arange(len(places), device=places.device)
    return places
