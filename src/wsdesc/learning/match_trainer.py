"""Train on given matches with the same network and support.

Matches from ground-truth poses give the supervised oracle (`oracle.py`), matches that a trained model
proposes give self-training (`self_training.py`).
"""

from __future__ import annotations

import numpy as np
import torch
from scipy.spatial import cKDTree
from torch import Tensor

from wsdesc.cloud.neighbours import NeighbourGrid
from wsdesc.cloud.sampling import farthest_points
from wsdesc.core.geometry import Floats, transform
from wsdesc.learning.losses import BatchHardLoss, InfoNCELoss
from wsdesc.learning.options import TrainOptions
from wsdesc.learning.trainer import PreparedPair, Trainer

MatchedPair = tuple[Tensor, Tensor, Tensor]
"""Points p (N, 3) and q (M, 3), and matches (K, 2): rows of p and of q."""

MATCH_DISTANCE = 0.1  # metres, τ1 of the inlier ratio
MIN_MATCHES = 64  # pairs with fewer matches are left out


def matches_by_pose(p: Tensor, q: Tensor, T_q_p: Floats, max_distance: float = MATCH_DISTANCE) -> Tensor:
    """Match points that coincide under a pose.

    Args:
        p, q: Points (N, 3) and (M, 3).
        T_q_p: Pose (4, 4).
        max_distance: Largest distance of a match.

    Returns:
        (K, 2) int64: a row of p and its nearest row of q, K ≤ N.
    """
    moved = transform(p.double().cpu().numpy(), T_q_p)
    distance, nearest = cKDTree(q.double().cpu().numpy()).query(moved, distance_upper_bound=max_distance)
    matched = np.flatnonzero(distance < max_distance)
    return torch.from_numpy(np.stack([matched, nearest[matched]], axis=1).astype(np.int64))


class MatchTrainer(Trainer):
    """Train on the matches that a source gives with each pair."""

    term_names = ("p_to_q", "q_to_p")

    def __init__(self, options: TrainOptions, device: torch.device | str = "cpu") -> None:
        super().__init__(options, device)
        name = options.oracle or options.self_training
        self.match_loss = InfoNCELoss() if name == "infonce" else BatchHardLoss()
        self._compute_descriptors = torch.compile(self._describe) if self._compiles else self._describe

    @torch.no_grad()
    def prepare(  # type: ignore[override]  # matches are one argument more
        self, p: Tensor, q: Tensor, matches: Tensor, generator: torch.Generator
    ) -> PreparedPair:
        """Sample keypoints among the matches and compute their frames.

        Args:
            p, q: Points (N, 3) and (M, 3), in metres.
            matches: (K, 2) rows of p and q.
            generator: Generator of the sampling.

        Returns:
            Keypoints of p and q; equal rows match.
        """
        grids = [self.grid(cloud, generator) for cloud in (p, q)]
        rows = [
            rows_in_grid(grid)[column.to(self.device)] for grid, column in zip(grids, matches.T, strict=True)
        ]
        sampled = farthest_points(grids[0].points[rows[0]], self.options.keypoints, generator)
        prepared = [
            self.model.prepare_grid(grid, grid.points[row[sampled]])
            for grid, row in zip(grids, rows, strict=True)
        ]
        return PreparedPair(*prepared)

    def gradients(self, pairs: list[PreparedPair]) -> Tensor:
        """Add the mean gradient over `pairs` to the parameters.

        Returns:
            (pairs, 4): loss, its value from p to q and from q to p, and 1.
        """
        rows = []
        for p, q in pairs:
            descriptors = self._compute_descriptors(torch.cat([self.model.voxels(p), self.model.voxels(q)]))
            descriptors_p, descriptors_q = descriptors.chunk(2)
            p_to_q = self.match_loss(descriptors_p, descriptors_q, p.keypoints)
            q_to_p = self.match_loss(descriptors_q, descriptors_p, q.keypoints)
            loss = (p_to_q + q_to_p) / 2
            (loss / len(pairs)).backward()
            rows.append(torch.stack([loss, p_to_q, q_to_p, torch.ones_like(loss)]).detach())
        return torch.stack(rows)

    def _describe(self, voxels: Tensor) -> Tensor:
        with self._autocast():
            descriptors: Tensor = self.model.network(voxels)
        return descriptors


def rows_in_grid(grid: NeighbourGrid) -> Tensor:
    """Return the row in the grid of each point of the original cloud: (N,) int64."""
    rows = torch.empty_like(grid.order)
    rows[grid.order] = torch.arange(len(rows), device=rows.device)
    return rows
