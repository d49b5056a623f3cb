"""Hypotheses: distinct rigid poses proposed by matches, best first.

The pose with most inliers need not be right: floors, walls and rows of chairs support wrong poses. Several
hypotheses are therefore verified on the surfaces afterwards.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from wsdesc.alignment.correspondences import centred, matched_points, squared_residuals
from wsdesc.alignment.ransac import ransac
from wsdesc.alignment.rigid import rigid_from_moments
from wsdesc.core.errors import InputError
from wsdesc.core.geometry import Floats
from wsdesc.core.kernels import kernel, run_in_chunks

SAME_ANGLE = math.radians(10)  # poses closer than this angle and distance are one hypothesis
SAME_DISTANCE = 5  # thresholds
MAX_REFITS = 10
WIDE_BAND = 2.0  # thresholds within which the first refit uses matches


Filter = Callable[[Floats], NDArray[np.bool_]]  # from poses (H, 4, 4) to which of them are allowed (H,)


class Hypothesis(NamedTuple):
    """A pose proposed by matches, and its inliers; on the CPU."""

    T_target_source: Tensor  # (4, 4) float64
    inliers: Tensor  # (M,) bool: matches within the threshold
    votes: float  # Σ wᵢ (1 − rᵢ² / threshold²) over the inliers with residuals rᵢ


def ransac_hypotheses(
    source: Tensor,
    target: Tensor,
    *,
    threshold: float = 0.05,
    hypotheses: int = 8,
    edge_ratio: float = 0.9,
    iterations: int = 50_000,
    confidence: float = 0.999,
    seed: int = 0,
    allow: Filter | None = None,
) -> list[Hypothesis]:
    """Find distinct poses of matched points source[i] ↔ target[i], (M, 3), by repeated RANSAC; best first.

    Each run uses the matches that are not inliers of an earlier pose. There may be fewer poses than
    `hypotheses`, or none. `allow` drops poses that are known to be wrong. The other options are those of
    `ransac`; `iterations` is for each run.
    """
    check_count(hypotheses)
    p, q, mean_p, mean_q = centred(*matched_points(source, target))
    allow = centred_filter(allow, mean_p, mean_q)
    remaining = np.ones(p.shape[1], dtype=np.bool_)
    poses: list[Floats] = []
    for run in range(2 * hypotheses):  # some runs find the remaining inliers of an earlier pose
        result = ransac(
            torch.from_numpy(p[:, remaining].T),
            torch.from_numpy(q[:, remaining].T),
            threshold=threshold,
            edge_ratio=edge_ratio,
            iterations=iterations,
            confidence=confidence,
            seed=seed + run,
        )
        if not result.success:
            break
        T = result.T_target_source.numpy()
        remaining &= squared_residuals(T[None], p, q)[0] > (WIDE_BAND * threshold) ** 2
        if allow is None or allow(T[None])[0]:
            poses.append(T)
        if poses and len(distinct(np.stack(poses), p, q, threshold)) == hypotheses:
            break
    stacked = np.stack(poses) if poses else np.empty((0, 4, 4))
    best = best_distinct(stacked, p, q, np.ones(p.shape[1]), threshold, hypotheses, allow)
    return [uncentre(hypothesis, mean_p, mean_q) for hypothesis in best]


def check_count(hypotheses: int) -> None:
    """Raise an InputError if no hypothesis is requested."""
    if hypotheses < 1:
        raise InputError(f"hypotheses must be at least 1, not {hypotheses}")


def uncentre(hypothesis: Hypothesis, mean_p: Floats, mean_q: Floats) -> Hypothesis:
    """Turn the pose of centred matches into that of the matches themselves."""
    T = hypothesis.T_target_source.clone()
    T[:3, 3:] += torch.from_numpy(mean_q) - T[:3, :3] @ torch.from_numpy(mean_p)
    return hypothesis._replace(T_target_source=T)


def centred_filter(allow: Filter | None, mean_p: Floats, mean_q: Floats) -> Filter | None:
    """Turn a filter of poses into one of the poses of centred matches; the means are (3, 1)."""
    if allow is None:
        return None

    def allow_centred(poses: Floats) -> NDArray[np.bool_]:
        poses = poses.copy()
        poses[:, :3, 3:] += mean_q - poses[:, :3, :3] @ mean_p
        return allow(poses)

    return allow_centred


def best_distinct(
    poses: Floats,
    p: Floats,
    q: Floats,
    weights: Floats,
    threshold: float,
    count: int,
    allow: Filter | None = None,
) -> list[Hypothesis]:
    """Refit poses (S, 4, 4) to centred matches p, q (3, M); return at most `count` distinct ones."""
    if len(poses) == 0:
        return []
    poses, votes = _refit(poses, p, q, weights, threshold)
    inliers = squared_residuals(poses, p, q) <= threshold * threshold  # (S, M)
    order = np.argsort(-votes, kind="stable")
    order = order[(inliers & (weights > 0)).sum(axis=1)[order] >= 3]
    order = order if allow is None else order[allow(poses[order])]
    order = order[distinct(poses[order], p, q, threshold, count)]
    return [
        Hypothesis(torch.from_numpy(poses[k]), torch.from_numpy(inliers[k]), float(votes[k])) for k in order
    ]


def distinct(
    poses: Floats,
    p: Floats,
    q: Floats,
    threshold: float,
    count: int | None = None,
) -> NDArray[np.int64]:
    """Return indices of poses (S, 4, 4), best first, without those nearly equal to a better one.

    Poses are compared at the mean of the matches, because the origin may be far away. With the means of both
    sides the answer is the same for the inverse poses.
    """
    mean_p, mean_q = p.mean(axis=1), q.mean(axis=1)
    R, t = poses[:, :3, :3], poses[:, :3, 3]
    moved_p = np.einsum("sij,j->si", R, mean_p) + t
    moved_q = np.einsum("sji,sj->si", R, mean_q - t)
    # One row per coordinate, which NumPy compares several times faster than one per pose.
    R_rows, p_rows, q_rows = (np.ascontiguousarray(x.T) for x in (R.reshape(-1, 9), moved_p, moved_q))
    min_trace, max_squared = 1 + 2 * math.cos(SAME_ANGLE), (SAME_DISTANCE * threshold) ** 2
    remaining = np.ones(len(poses), np.bool_)
    kept: list[int] = []
    while remaining.any() and (count is None or len(kept) < count):
        best = int(remaining.argmax())
        kept.append(best)
        other = np.einsum("ks,k->s", R_rows, R_rows[:, best]) < min_trace  # trace of the relative rotation
        for rows in (p_rows, q_rows):
            offset = rows - rows[:, best, None]
            other |= np.einsum("ks,ks->s", offset, offset) > max_squared
        other[best] = False
        remaining &= other
    return np.array(kept, dtype=np.int64)


def _refit(
    poses: Floats,
    p: Floats,
    q: Floats,
    weights: Floats,
    threshold: float,
) -> tuple[Floats, Floats]:
    """Refit each pose to its inliers, first within a wider band; return its best state and votes."""
    p, q = np.ascontiguousarray(p), np.ascontiguousarray(q)
    best, best_votes = poses, np.full(len(poses), -np.inf)
    for step in range(MAX_REFITS + 1):
        band = threshold * max(1.0, WIDE_BAND - step / 2)
        votes, moments = np.zeros(len(poses)), np.zeros((len(poses), 5, 3))
        run_in_chunks(
            _sum_inliers, len(poses), poses, p, q, weights, threshold, band, votes, moments, chunk=8
        )
        better = votes > best_votes
        best = np.where(better[:, None, None], poses, best)
        best_votes = np.where(better, votes, best_votes)
        if step == MAX_REFITS or (band == threshold and not better.any()):
            break
        means_and_cross = (moments[:, 0], moments[:, 1], moments[:, 2:])
        poses = rigid_from_moments(*map(torch.from_numpy, means_and_cross)).numpy()
    return best, best_votes


@kernel(
    types="int64, int64, float64[:, :, ::1], float64[:, ::1], float64[:, ::1], float64[::1], float64, "
    "float64, float64[::1], float64[:, :, ::1]",
)
def _sum_inliers(
    start: int,
    stop: int,
    poses: Any,
    p: Any,
    q: Any,
    weights: Any,
    threshold: float,
    band: float,
    votes: Any,
    moments: Any,
) -> None:
    """Sum the votes of matches within the threshold, and the moments of matches within the band.

    The weight of a match in the moments falls to 0 at the edge of the band. A row of moments is the mean of
    p, the mean of q, and the mean product of q and p about these means (3 rows).
    """
    for s in range(start, stop):
        T = poses[s]
        mean_p, mean_q, product = moments[s, 0], moments[s, 1], moments[s, 2:]
        total, vote = 0.0, 0.0
        for k in range(p.shape[1]):
            squared = 0.0
            for i in range(3):
                residual = T[i, 3] - q[i, k]
                for j in range(3):
                    residual += T[i, j] * p[j, k]
                squared += residual * residual
            if squared >= band * band:  # most matches; the band is at least as wide as the threshold
                continue
            vote += weights[k] * max(0.0, 1.0 - squared / (threshold * threshold))
            share = weights[k] * (1.0 - squared / (band * band))
            if share > 0:
                total += share
                for i in range(3):
                    mean_p[i] += share * p[i, k]
                    mean_q[i] += share * q[i, k]
                    for j in range(3):
                        product[i, j] += share * q[i, k] * p[j, k]
        votes[s] = vote
        if total > 0:
            for row in range(5):  # an array expression would take 3 s to compile
                for axis in range(3):
                    moments[s, row, axis] /= total
            for i in range(3):
                for j in range(3):
                    product[i, j] -= mean_q[i] * mean_p[j]
