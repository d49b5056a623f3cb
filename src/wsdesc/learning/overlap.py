"""Whether two clouds show partly the same surface, found from their points alone.

Descriptors are matched, RANSAC finds a motion, and the clouds themselves say how much of them it brings
together. Scans of different places agree on a few matches by chance and can share half a floor; they are
told from overlapping ones by asking for both, many agreeing matches and much common surface.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from pydantic import Field
from torch import Tensor

from wsdesc.alignment.ransac import ransac
from wsdesc.cloud.neighbours import NeighbourGrid
from wsdesc.core.errors import InputError
from wsdesc.core.options import Options
from wsdesc.learning.histograms import point_histograms
from wsdesc.matching.mutual import mutual_matches

Describe = Callable[[Tensor, Tensor], Tensor]  # points (N, 3), keypoints (K, 3) -> descriptors (K, C)


class OverlapOptions(Options):
    """When two scans count as overlapping. Lengths are multiplied by the unit."""

    keypoints: int = Field(1000, ge=3)  # of each scan, by farthest point sampling
    threshold: float = Field(0.05, gt=0)  # up to which a match agrees, and a point has a partner
    iterations: int = Field(50_000, ge=1)  # of RANSAC, at most
    least_inliers: int = Field(12, ge=3)  # agreeing matches; by chance it is 4, seldom more than 8
    least_share: float = Field(0.05, ge=0, le=1)  # of the matches that agree
    least_overlap: float = Field(0.3, ge=0, le=1)  # share of points with a partner, in both scans


class OverlapEstimate(NamedTuple):
    """What a check of two clouds found."""

    overlap: float  # the share of points with a partner, of the cloud where it is smaller; 0 if no motion
    inliers: int  # matches that agree with the motion
    matches: int
    T_q_p: Tensor  # (4, 4) float64, maps p into q's frame; coarse, and meaningless if not accepted
    accepted: bool  # enough of all three to believe it


@torch.no_grad()
def estimate_overlap(
    p: Tensor | NeighbourGrid,
    q: Tensor | NeighbourGrid,
    features_p: Tensor,
    features_q: Tensor,
    keys_p: Tensor,
    keys_q: Tensor,
    unit: float = 1.0,
    seed: int = 0,
    options: OverlapOptions | None = None,
) -> OverlapEstimate:
    """Whether the clouds p (N, 3) and q (M, 3) show partly the same surface, from descriptors
    (K, C), (L, C) of keypoints (K, 3), (L, 3). Clouds should be no coarser than half the threshold."""
    options = options or OverlapOptions()
    if not unit > 0:
        raise InputError(f"a unit must be positive, not {unit}")
    within = options.threshold * unit
    matches = mutual_matches(features_p, features_q)  # (M, 2)
    found = ransac(
        keys_p[matches[:, 0]],
        keys_q[matches[:, 1]],
        threshold=within,
        iterations=options.iterations,
        seed=seed,
    )
    T = found.T_target_source
    inliers, overlap = int(found.inliers.sum()), 0.0
    if found.success:
        p, q = (NeighbourGrid.of(cloud) if isinstance(cloud, Tensor) else cloud for cloud in (p, q))
        overlap = min(_covered(p, q, T, within), _covered(q, p, torch.linalg.inv(T), within))
    accepted = (
        inliers >= max(options.least_inliers, options.least_share * len(matches))
        and overlap >= options.least_overlap
    )
    return OverlapEstimate(overlap, inliers, len(matches), T, accepted)


def _covered(source: NeighbourGrid, target: NeighbourGrid, T_target_source: Tensor, within: float) -> float:
    """The share of source points that have a target point within that distance after the motion."""
    T = T_target_source.to(source.points.device)
    moved = source.points.double() @ T[:3, :3].mT + T[:3, 3]
    return float((target.count(moved, within) > 0).double().mean())


def histogram_describe(unit: float = 1.0) -> Describe:
    """The descriptor that needs no training, at the scale of `unit`."""
    return partial(point_histograms, normal_radius=0.15 * unit, feature_radius=0.35 * unit)
