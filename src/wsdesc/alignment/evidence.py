"""Evidence of a pose: the figures from which its confidence is computed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np

from wsdesc.alignment.free_space import FreeSpace
from wsdesc.alignment.information import Degeneracy
from wsdesc.alignment.patch_gaps import PatchGap
from wsdesc.alignment.verify import PoseScore, score_candidate
from wsdesc.core.geometry import Floats

COMPARABLE = 0.2  # relative score from which on another pose of the pair is compared by its misfit
_MARGIN = 0.005  # shares closer to 0 or 1 do not change the log odds
_MAX_RATIO = 30.0  # of two figures
_LEAST_VIOLATION = 1e-3  # smaller shares of points in free space are noise,
_LEAST_DENSE_VIOLATION = 2e-4  # and smaller shares of all points
_NO_VIOLATION = 3e-5  # share that counts as none
_LEAST_GAP = 0.3  # standard errors: smaller gaps are equal
_EXPLAINED_GAP = 2.5  # standard errors: noise explains smaller gaps
_MUCH_OVERLAP = 0.3, 0.6  # overlap from which on, and at which fully, a violation is more suspicious


class Evidence(NamedTuple):
    """Measured figures of one pose. Swapping the scans hardly changes them."""

    overlap_min: float  # overlap of the scan where it is smaller
    overlap_max: float  # overlap of the other scan
    weighted_overlap: float  # smaller overlap with the same influence for each direction of normals
    aligned_normals: float  # this and the next as in `PoseScore`
    uncrossed: float
    not_hovering: float
    curvature_similarity: float
    detail_similarity: float
    tightness: float
    misfit: float
    conditioning: float  # of the information matrix, 0 … 1
    inliers: int
    matches: int  # of the pair, inliers or not
    votes: float  # of the matches
    score: float  # `score_candidate`
    in_view: int = 0  # points in directions in which the other scan's free space is known
    visible: int = 0  # of these, not hidden behind the other scan's surfaces
    violation: float | None = None  # share of these within free space; None if no free space is known
    dense_violation: float | None = None  # the same of all points, not of a sample
    patch_gap: float | None = None  # between patches, in standard errors; None if it was not measured

    @classmethod
    def of(
        cls,
        score: PoseScore,
        degeneracy: Degeneracy,
        *,
        inliers: int,
        matches: int,
        votes: float,
        free_space: FreeSpace | None = None,
        dense_free_space: FreeSpace | None = None,
        patch_gap: PatchGap | None = None,
    ) -> Self:
        """Collect the evidence of a pose."""
        free, dense = free_space or FreeSpace(), dense_free_space or FreeSpace()
        return cls(
            overlap_min=min(score.overlap_source, score.overlap_target),
            overlap_max=max(score.overlap_source, score.overlap_target),
            weighted_overlap=min(score.weighted_overlap_source, score.weighted_overlap_target),
            aligned_normals=score.aligned_normals,
            uncrossed=score.uncrossed,
            not_hovering=score.not_hovering,
            curvature_similarity=score.curvature_similarity,
            detail_similarity=score.detail_similarity,
            tightness=score.tightness,
            misfit=score.misfit,
            conditioning=degeneracy.conditioning,
            inliers=inliers,
            matches=matches,
            votes=votes,
            score=score_candidate(score),
            in_view=free.in_view,
            visible=free.visible,
            violation=free.violation if free.in_view else None,
            dense_violation=dense.violation if dense.in_view else None,
            patch_gap=patch_gap.significance if patch_gap else None,
        )


# Name of each feature, in the order of `_features`, and whether a larger value raises (1) or lowers (−1) the
# confidence. The fit keeps these signs: an opposite effect in a sample of poses is chance.
FEATURES = {
    "overlap": 1,
    "weighted_overlap": 1,
    "not_hovering": 1,
    "curvature_similarity": 1,
    "detail_similarity": 1,
    "tightness": 1,
    "conditioning": 1,
    "inliers": 1,
    "relative_score": 1,
    "relative_votes": 1,
    "relative_tightness": 1,
    "relative_curvature_similarity": 1,
    "relative_detail_similarity": 1,
    "relative_misfit": -1,
    "violation": -1,
    "relative_violation": -1,
    "dense_violation": -1,
    "relative_dense_violation": -1,
    "overlapping_violation": -1,
    "relative_patch_gap": -1,
}


def features(candidates: Sequence[Evidence]) -> Floats:
    """Return the features (K, F) of all poses of one pair; NaN where a figure is unknown.

    The relative features compare a pose with the best other pose of the pair: at most one of them is right.
    """
    return np.array([_features(k, candidates) for k in range(len(candidates))]).reshape(-1, len(FEATURES))


def _features(k: int, candidates: Sequence[Evidence]) -> list[float]:
    own = candidates[k]
    others = [other for j, other in enumerate(candidates) if j != k]
    comparable = [other.misfit for other in others if other.score > COMPARABLE * own.score]
    return [
        *map(share_log_odds, (own.overlap_min, own.weighted_overlap, own.not_hovering)),
        *map(share_log_odds, (own.curvature_similarity, own.detail_similarity, own.tightness)),
        math.log10(max(own.conditioning, 1e-4)),
        math.log1p(own.inliers),
        _log_ratio(own.score, [other.score for other in others]),
        _log_ratio(own.votes, [other.votes for other in others]) if own.matches else math.nan,
        _log_ratio(own.tightness, [other.tightness for other in others]),
        _log_ratio(own.curvature_similarity, [other.curvature_similarity for other in others]),
        _log_ratio(own.detail_similarity, [other.detail_similarity for other in others]),
        -_log_ratio(1 / max(own.misfit, 1e-12), [1 / max(misfit, 1e-12) for misfit in comparable]),
        math.nan if own.violation is None else math.log10(max(own.violation, 1e-4)),
        _relative(own.violation, [other.violation for other in others], _LEAST_VIOLATION),
        math.nan if own.dense_violation is None else math.log10(max(own.dense_violation, _NO_VIOLATION)),
        _relative(own.dense_violation, [other.dense_violation for other in others], _LEAST_DENSE_VIOLATION),
        _overlapping_violation(own),
        _relative_gap(own.patch_gap, [other.patch_gap for other in others]),
    ]


def _overlapping_violation(own: Evidence) -> float:
    """Return the decimal logarithm of a violation above none, weighted by the overlap; NaN if unknown.

    Two scans of one place that overlap much agree about free space. Two equal parts of a place overlap as
    much, but a few things differ.
    """
    if own.dense_violation is None:
        return math.nan
    start, full = _MUCH_OVERLAP
    weight = min(max((own.overlap_min - start) / (full - start), 0.0), 1.0)
    return weight * math.log10(max(own.dense_violation, _NO_VIOLATION) / _NO_VIOLATION)


def _relative(own: float | None, others: Sequence[float | None], least: float) -> float:
    """Return the decimal logarithm of a figure over the least of the other poses; NaN if unknown."""
    given = [other for other in others if other is not None]
    return math.nan if own is None or not given else math.log10(max(own, least) / max(min(given), least))


def _relative_gap(own: float | None, others: Sequence[float | None]) -> float:
    """Return the decimal logarithm of a gap over the least of the other poses.

    NaN if it is unknown, or if noise does not explain even the least gap: scans that were fused from several
    positions are bent, so their gaps are large at right poses, too.
    """
    measured = [gap for gap in (own, *others) if gap is not None]
    return _relative(own, others, _LEAST_GAP) if measured and min(measured) <= _EXPLAINED_GAP else math.nan


def share_log_odds(share: float) -> float:
    """Return the log odds of a share, which is kept away from 0 and 1."""
    share = min(max(share, _MARGIN), 1 - _MARGIN)
    return math.log(share / (1 - share))


def _log_ratio(own: float, others: Sequence[float]) -> float:
    """Return the decimal logarithm of a figure over the largest of others; NaN without any."""
    if not others:
        return math.nan
    ratio = min(max(own, 1e-12), 1e12) / min(max(*others, 1e-12), 1e12)
    return math.log10(min(max(ratio, 1 / _MAX_RATIO), _MAX_RATIO))
