"""The supervised oracle: the same network and support, taught by true matches. It shows what poses would
add; a training on unlabelled scans never comes here."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from wsdesc.cloud.neighbours import NeighbourGrid
from wsdesc.cloud.sampling import farthest_points
from wsdesc.errors import InputError
from wsdesc.learn.losses import BatchHardLoss
from wsdesc.learn.options import TrainOptions
from wsdesc.learn.trainer import PreparedPair, Trainer


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


class OracleTrainer(Trainer):
    """A trainer whose source brings true matches with each pair: `PosedPairs` or `PosedRooms`."""

    terms = ("there", "back")  # what the two figures beside the loss are

    def __init__(self, options: TrainOptions, device: torch.device | str = "cpu") -> None:
        super().__init__(options, device)
        self.true_loss = InfoNCELoss() if options.oracle == "infonce" else BatchHardLoss()
        self._supervise = torch.compile(self._describe) if options.compile and self._cuda else self._describe

    @torch.no_grad()
    def prepare(  # type: ignore[override]  # a supervised trainer needs more than two clouds
        self, p: Tensor, q: Tensor, matches: Tensor, generator: torch.Generator
    ) -> PreparedPair:
        """Choose keypoints of P spread over what both clouds show, and take their matches for those of Q.

        Row k of both sets of keypoints is one place. matches: (M, 2) rows of p (N, 3) and q (M, 3).
        """
        grids = [self.grid(cloud, generator) for cloud in (p, q)]
        rows = [_places(grid)[column.to(self.device)] for grid, column in zip(grids, matches.T, strict=True)]
        chosen = farthest_points(grids[0].points[rows[0]], self.options.keypoints, generator)
        scenes = [
            self.model.prepare_in(grid, grid.points[row[chosen]])
            for grid, row in zip(grids, rows, strict=True)
        ]
        return PreparedPair(*scenes)

    def gradients(self, pairs: list[PreparedPair]) -> Tensor:
        """Add the mean gradient over `pairs`; rows of loss, its value in both directions, and 1."""
        seen = []
        for p, q in pairs:
            features = self._supervise(torch.cat([self.model.voxels(p), self.model.voxels(q)]))
            features_p, features_q = features.chunk(2)
            there = self.true_loss(features_p, features_q, p.keypoints)
            back = self.true_loss(features_q, features_p, q.keypoints)
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
