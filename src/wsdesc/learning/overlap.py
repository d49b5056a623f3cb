"""Estimate the overlap of two scans from their points alone.

Descriptors are matched, RANSAC estimates a pose, and the overlap is measured under that pose. Scans of
different places share a few matches and up to half a floor by chance. A pair is therefore accepted only with
both many inliers and a large overlap.
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
from wsdesc.core.geometry import check_length, transform
from wsdesc.core.options import Options
from wsdesc.learning.histograms import point_histograms
from wsdesc.matching.mutual import mutual_matches

Describe = Callable[[Tensor, Tensor], Tensor]
"""Compute descriptors (K, C) of keypoints (K, 3) in points (N, 3)."""


class OverlapOptions(Options):
    """Thresholds for overlapping scans. Lengths are multiplied by the unit."""

    keypoints: int = Field(1000, ge=3, description="Keypoints per scan, by farthest point sampling.")
    threshold: float = Field(
        0.05, gt=0, description="Largest distance of an inlier, and of a point from its partner, in metres."
    )
    iterations: int = Field(50_000, ge=1, description="Largest number of RANSAC iterations.")
    min_inliers: int = Field(12, ge=3, description="Fewest inliers; chance gives 4, seldom more than 8.")
    min_inlier_share: float = Field(
        0.05, ge=0, le=1, description="Smallest share of matches that are inliers."
    )
    min_overlap: float = Field(
        0.3, ge=0, le=1, description="Smallest share of points with a partner, in both scans."
    )


class OverlapEstimate(NamedTuple):
    """The estimated overlap of two scans and the pose behind it."""

    overlap: float  # share of points with a partner, the smaller one of both scans; 0 without a pose
    inliers: int
    matches: int
    T_q_p: Tensor  # (4, 4) float64, coarse; meaningless if not accepted
    accepted: bool  # inliers, their share and overlap are large enough


@torch.no_grad()
def estimate_overlap(
    p: Tensor | NeighbourGrid,
    q: Tensor | NeighbourGrid,
    descriptors_p: Tensor,
    descriptors_q: Tensor,
    keypoints_p: Tensor,
    keypoints_q: Tensor,
    unit: float = 1.0,
    seed: int = 0,
    options: OverlapOptions | None = None,
) -> OverlapEstimate:
    """Estimate which share of two scans shows the same surface.

    Args:
        p, q: Points (N, 3) and (M, 3), no coarser than half the threshold.
        descriptors_p, descriptors_q: (K, C) and (L, C).
        keypoints_p, keypoints_q: (K, 3) and (L, 3).
        unit: Length of one metre in the unit of the points.
        seed: Seed of RANSAC.
        options: Thresholds.

    Raises:
        InputError: The unit is not positive.
    """
    options = options or OverlapOptions()
    check_length(unit, "unit")
    threshold = options.threshold * unit
    matches = mutual_matches(descriptors_p, descriptors_q)  # (M, 2)
    estimate = ransac(
        keypoints_p[matches[:, 0]],
        keypoints_q[matches[:, 1]],
        threshold=threshold,
        iterations=options.iterations,
        seed=seed,
    )
    T = estimate.T_target_source
    inliers, overlap = int(estimate.inliers.sum()), 0.0
    if estimate.success:
        p, q = (NeighbourGrid.of(cloud) if isinstance(cloud, Tensor) else cloud for cloud in (p, q))
        overlap = min(_covered(p, q, T, threshold), _covered(q, p, torch.linalg.inv(T), threshold))
    accepted = (
        inliers >= max(options.min_inliers, options.min_inlier_share * len(matches))
        and overlap >= options.min_overlap
    )
    return OverlapEstimate(overlap, inliers, len(matches), T, accepted)


def _covered(
    source: NeighbourGrid, target: NeighbourGrid, T_target_source: Tensor, threshold: float
) -> float:
    """Return the share of source points with a target point within the threshold."""
    T = T_target_source.to(source.points.device)
    moved = transform(source.points.double(), T)
    return float((target.count(moved, threshold) > 0).double().mean())


def histogram_describe(unit: float = 1.0) -> Describe:
    """Return a descriptor that needs no training: point feature histograms at the scale of `unit`."""
    return partial(point_histograms, normal_radius=0.15 * unit, feature_radius=0.35 * unit)
