"""Propose poses of a described pair by matches of its descriptors. All lengths are in metres of the model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from wsdesc.alignment.consensus import consensus
from wsdesc.alignment.correspondences import matched_points, squared_residuals
from wsdesc.alignment.hypotheses import Hypothesis, ransac_hypotheses
from wsdesc.alignment.prior import PosePrior
from wsdesc.core.geometry import Floats
from wsdesc.descriptor.description import Description
from wsdesc.matching.mutual import mutual_matches, one_sided_matches
from wsdesc.registration.options import Solver

INLIER_DISTANCE = {"consensus": 0.075, "ransac": 0.05}  # metres of the model, by solver
ONE_SIDED_WEIGHT = 0.5  # of a match that is not mutual


@dataclass(frozen=True, eq=False)
class Proposals:
    """Poses proposed by matches, best first, and these matches."""

    hypotheses: list[Hypothesis]
    pairs: Tensor  # (M, 2) indices of matched keypoints in source and target
    source: Tensor  # (M, 3) matched keypoints
    target: Tensor  # (M, 3)
    weights: Tensor  # (M,) of the matches in votes
    threshold: float  # residual of an inlier

    def count_inliers(self, T_target_source: Floats) -> tuple[Tensor, float]:
        """Return the inliers (M,) bool and the votes of a pose (4, 4); see `Hypothesis`."""
        residuals = squared_residuals(T_target_source[None], *matched_points(self.source, self.target))[0]
        squared = residuals / self.threshold**2
        votes = self.weights.double().cpu().numpy() * np.maximum(1 - squared, 0)
        return torch.from_numpy(squared <= 1), float(votes.sum())


def propose(
    p: Description,
    q: Description,
    *,
    solver: Solver = "consensus",
    hypotheses: int = 12,
    seed: int = 0,
    prior: PosePrior | None = None,
) -> Proposals:
    """Propose poses of p in q; the prior limits matches and poses."""
    allowed, limits = None, dict[str, Any](threshold=INLIER_DISTANCE[solver], hypotheses=hypotheses)
    if prior is not None:
        allowed = prior.possible_matches((p.keypoints, q.keypoints), (p.frames, q.frames))
        limits["allow"] = prior.allows
    if solver == "ransac":
        pairs = mutual_matches(p.descriptors, q.descriptors, allowed=allowed)
        weights = torch.ones(len(pairs), device=pairs.device)
    else:
        pairs, mutual = one_sided_matches(p.descriptors, q.descriptors, allowed=allowed)
        weights = torch.where(mutual, 1.0, ONE_SIDED_WEIGHT)
    source, target = p.keypoints[pairs[:, 0]], q.keypoints[pairs[:, 1]]
    if solver == "ransac":
        proposed = ransac_hypotheses(source, target, seed=seed, **limits)
    else:
        proposed = consensus(source, target, weights=weights, **limits)
    return Proposals(proposed, pairs, source, target, weights, INLIER_DISTANCE[solver])
