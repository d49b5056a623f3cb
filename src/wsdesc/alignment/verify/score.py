"""Figures that measure how well two surfaces fit under a pose, and three scores made of them.

The positions of the scanners are unknown, and so is the free space that they saw through. A wrong pose still
shows: it puts curved parts onto flat ones, lets surfaces cross, and leaves one scan hovering in front of or
behind the other, where a scanner would have seen the first surface instead of the second.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

ALIGNED = np.cos(np.radians(30))  # normals closer than this agree
CROSSED = np.cos(np.radians(50))  # normals further apart contradict each other
FACING = np.cos(np.radians(45))  # a point in front of a surface, not beside its border
HOVER_DISTANCE = (
    4.0  # overlap distances up to which a point hovers over a surface; farther it is another surface
)
FLAT = 0.06  # curvature below which the normal is reliable


class PoseScore(NamedTuple):
    """Measured figures of a pose. All but the last three are in 0 … 1, and more is better.

    Swapping the scans and inverting the pose swaps the fields of source and target and leaves the others.
    Without any overlap all shares are 0.
    """

    overlap_source: float  # share of source points with a target point within the overlap distance
    overlap_target: float  # the same for target points
    weighted_overlap_source: float  # overlap with the same influence for each direction of normals
    weighted_overlap_target: float  # the same for target points
    aligned_normals: float  # share of overlapping points whose normals agree within 30°, up to sign
    uncrossed: float  # 1 less the share of overlapping flat points whose surfaces cross at more than 50°
    not_hovering: float  # overlapping points over these and those that hover over the other surface
    curvature_similarity: float  # Σ min / Σ max of both curvatures over overlapping points
    detail_similarity: float  # the same over curved points only; curved points that hover count as dissimilar
    tightness: float  # 1 less the point-to-plane error over that of random points within the distance
    rmse_plane: (
        float  # point to plane, of overlapping points, in the unit of the points; infinite without any
    )
    rmse_point: float  # point to point
    misfit: float  # typical point-to-plane distance of flat points; infinite without any


def score_hypothesis(score: PoseScore) -> float:
    """Rank hypotheses of one pair before refinement: the product of all shares, overlap included."""
    overlap = (score.overlap_source + score.overlap_target) / 2
    return (
        overlap
        * score.aligned_normals
        * score.uncrossed
        * score.not_hovering
        * score.curvature_similarity
        * max(score.tightness, 0.01)
    )


def score_candidate(score: PoseScore) -> float:
    """Rank refined candidates of one pair: details count most, and overlap does not count.

    In repetitive structure a wrong pose may overlap more than the right one. Only details tell them apart.
    """
    return (
        score.aligned_normals
        * score.uncrossed
        * score.not_hovering
        * max(score.tightness, 0.01)
        * score.detail_similarity**3
    )


def score_refinement(score: PoseScore, distance: float) -> float:
    """Compare a pose before and after refinement: overlap, tightness within `distance`, and normals."""
    overlap = (score.overlap_source + score.overlap_target) / 2
    return overlap * (1 - min(score.rmse_plane / distance, 1.0) ** 2) * score.aligned_normals


class SideSums(NamedTuple):
    """Sums over the sample of one surface; those of both surfaces can be added."""

    sampled: float
    overlapping: float  # within the overlap distance
    weighted: float  # direction weights of the overlapping points
    aligned: float
    flat: float  # overlapping, and flat in both surfaces
    crossed: float
    level: float  # direction weights of flat points whose normals agree
    level_offset: float  # the same times the square root of the point-to-plane distance
    hovering: float
    curvature_min: float
    curvature_max: float
    detail_min: float
    detail_max: float
    plane_squared: float
    distance_squared: float


def combine_sides(source: SideSums, target: SideSums, distance: float) -> PoseScore:
    """Compute the figures of a pose from the sums over both samples."""
    both = SideSums(*(a + b for a, b in zip(source, target, strict=True)))
    return PoseScore(
        overlap_source=_share(source.overlapping, source.sampled),
        overlap_target=_share(target.overlapping, target.sampled),
        weighted_overlap_source=min(float(source.weighted), 1.0),  # a sum of rounded weights
        weighted_overlap_target=min(float(target.weighted), 1.0),
        aligned_normals=_share(both.aligned, both.overlapping),
        uncrossed=_share(both.flat - both.crossed, both.flat),
        not_hovering=_share(both.overlapping, both.overlapping + both.hovering),
        curvature_similarity=_share(both.curvature_min, both.curvature_max),
        detail_similarity=_share(both.detail_min, both.detail_max),
        # Uniform offsets in 0 … distance have a mean square of distance² / 3.
        tightness=max(0.0, 1 - _root_mean(3 * both.plane_squared / distance**2, both.overlapping))
        if both.overlapping
        else 0.0,
        rmse_plane=_root_mean(both.plane_squared, both.overlapping),
        rmse_point=_root_mean(both.distance_squared, both.overlapping),
        misfit=float(both.level_offset / both.level) ** 2 if both.level > 0 else float("inf"),
    )


def _share(part: float, whole: float) -> float:
    return float(part / whole) if whole > 0 else 0.0


def _root_mean(squares: float, count: float) -> float:
    return float(np.sqrt(squares / count)) if count > 0 else float("inf")
