"""Deterministic consensus: poses from cliques of matches that preserve distances.

Each match is a seed. Cliques grow among the partners that share most neighbours with it (see
`compatibility`). The largest clique is fitted, and all matches vote on its pose. Nothing is random: one
inlier among a hundred outliers suffices without luck.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from wsdesc.alignment.consensus import cpu, cuda
from wsdesc.alignment.correspondences import match_weights, matched_points
from wsdesc.alignment.hypotheses import Filter, Hypothesis, check_count
from wsdesc.core.errors import InputError

__all__ = ["consensus"]


def consensus(
    source: Tensor,
    target: Tensor,
    *,
    weights: Tensor | None = None,
    threshold: float = 0.05,
    hypotheses: int = 8,
    limit: int = 5000,
    allow: Filter | None = None,
) -> list[Hypothesis]:
    """Find distinct rigid poses of matched points source[i] ↔ target[i], best first.

    There may be fewer poses than requested, and none where the matches determine none: fewer than three
    matches, points on a line, or points within a few thresholds of each other. On the CPU the result is the
    same to the bit on any number of threads. Moving the points moves the poses, and swapping the sides
    inverts them.

    Args:
        source, target: Matched points (M, 3). Points on a GPU are solved there.
        weights: Weights (M,) of the matches in votes and fits, not negative; None for equal weights.
        threshold: Distance, in the unit of the points, up to which a match is an inlier, and by which the
            distances between two matches may differ.
        hypotheses: Largest number of poses.
        limit: Largest number of matches that propose poses: those of largest weight, or evenly spaced ones if
            all weights are equal. All matches vote in the end. Time and memory grow with its square.
        allow: Tells which poses T_target_source (H, 4, 4) are allowed: (H,) bool. Others are dropped before
            they are counted. None allows all.

    Raises:
        InputError: An argument has a wrong shape or value.
    """
    p, q = matched_points(source, target)
    w = match_weights(weights, p.shape[1])
    check_count(hypotheses)
    if not (threshold > 0 and math.isfinite(threshold)):
        raise InputError(f"threshold must be positive and finite, not {threshold}")
    if limit < 3:
        raise InputError(f"limit must be at least 3, not {limit}")
    if source.is_cuda:
        on_device = torch.from_numpy(w).to(source.device)
        return cuda.consensus(source, target.to(source), on_device, threshold, hypotheses, limit, allow)
    return cpu.consensus(p, q, w, threshold, hypotheses, limit, allow)
