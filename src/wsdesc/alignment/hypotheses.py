"""Several answers to one question: distinct rigid motions, the best supported first.

The motion that most matches agree on need not be the right one: floors, walls and rows of chairs agree with
wrong ones. A caller who can judge motions by more than matches wants the next best as well.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from wsdesc.alignment.ransac import matched_points, ransac
from wsdesc.alignment.rigid import rigid_from_moments
from wsdesc.core.errors import InputError

SAME_ANGLE = math.radians(10)  # motions that differ by less than this, and by less than that, are one
SAME_THRESHOLDS = 5
ROUNDS = 10  # of refitting
WIDE = 2.0  # thresholds within which matches are gathered in the first round


class Hypothesis(NamedTuple):
    """A motion and who agrees with it; on the CPU."""

    T_target_source: Tensor  # (4, 4) float64
    inliers: Tensor  # (M,) bool: matches within the threshold of it
    score: float  # Σ wᵢ (1 − rᵢ² / threshold²) over the inliers, rᵢ their residuals: larger is better


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
) -> list[Hypothesis]:
    """Distinct motions of matched points source[i] ↔ target[i], (M, 3), by repeated RANSAC; best first.

    Each run looks at the matches that no motion has explained so far. There may be fewer motions than asked
    for, or none. The other options are those of `ransac`; `iterations` is for each run.
    """
    check_count(hypotheses)
    p, q, middle_p, middle_q = centred(*matched_points(source, target))
    left = np.ones(p.shape[1], dtype=np.bool_)
    poses: list[NDArray[np.float64]] = []
    for run in range(2 * hypotheses):  # some runs find the rest of a motion that is known
        found = ransac(
            torch.from_numpy(p[:, left].T),
            torch.from_numpy(q[:, left].T),
            threshold=threshold,
            edge_ratio=edge_ratio,
            iterations=iterations,
            confidence=confidence,
            seed=seed + run,
        )
        if not found.success:
            break
        T = found.T_target_source.numpy()
        left &= squared_residuals(T[None], p, q)[0] > (WIDE * threshold) ** 2
        poses.append(T)
        if len(distinct(np.stack(poses), p, q, threshold)) == hypotheses:
            break
    found_poses = np.stack(poses) if poses else np.empty((0, 4, 4))
    best = best_distinct(found_poses, p, q, np.ones(p.shape[1]), threshold, hypotheses)
    return [uncentre(hypothesis, middle_p, middle_q) for hypothesis in best]


def check_count(hypotheses: int) -> None:
    if hypotheses < 1:
        raise InputError(f"hypotheses must be at least 1, not {hypotheses}")


def centred(p: NDArray[np.float64], q: NDArray[np.float64]) -> tuple[NDArray[np.float64], ...]:
    """Both sides (3, M) about their middles, and these, (3, 1): far from the origin digits would be lost."""
    middles = [x.mean(axis=1, keepdims=True) if x.shape[1] else np.zeros((3, 1)) for x in (p, q)]
    return p - middles[0], q - middles[1], *middles


def uncentre(
    hypothesis: Hypothesis, middle_p: NDArray[np.float64], middle_q: NDArray[np.float64]
) -> Hypothesis:
    """What was found for `centred` matches, for the matches themselves."""
    T = hypothesis.T_target_source.clone()
    T[:3, 3:] += torch.from_numpy(middle_q) - T[:3, :3] @ torch.from_numpy(middle_p)
    return hypothesis._replace(T_target_source=T)


def best_distinct(
    poses: NDArray[np.float64],
    p: NDArray[np.float64],
    q: NDArray[np.float64],
    weights: NDArray[np.float64],
    threshold: float,
    most: int,
) -> list[Hypothesis]:
    """Refit the motions (S, 4, 4) on `centred` matches p, q (3, M) and keep the best ones that differ."""
    if len(poses) == 0:
        return []
    poses, scores = _polish(poses, p, q, weights, threshold)
    agree = squared_residuals(poses, p, q) <= threshold * threshold  # (S, M)
    order = np.argsort(-scores, kind="stable")
    order = order[(agree & (weights > 0)).sum(axis=1)[order] >= 3]
    order = order[distinct(poses[order], p, q, threshold, most)]
    return [
        Hypothesis(torch.from_numpy(poses[k]), torch.from_numpy(agree[k]), float(scores[k])) for k in order
    ]


def distinct(
    poses: NDArray[np.float64],
    p: NDArray[np.float64],
    q: NDArray[np.float64],
    threshold: float,
    most: int | None = None,
) -> NDArray[np.int64]:
    """Which motions (S, 4, 4), best first, remain when each rules out all that nearly equal it.

    They are compared where the matches are, at the middle of either side, not at an origin that may be far
    away; with both middles the answer is the same for the inverse motions.
    """
    middle_p, middle_q = p.mean(axis=1), q.mean(axis=1)
    R, t = poses[:, :3, :3], poses[:, :3, 3]
    moved_p = np.einsum("sij,j->si", R, middle_p) + t
    moved_q = np.einsum("sji,sj->si", R, middle_q - t)
    left = np.arange(len(poses))
    kept: list[int] = []
    while len(left) and (most is None or len(kept) < most):
        best = left[0]
        kept.append(int(best))
        cosine = (np.einsum("ij,sij->s", R[best], R[left]) - 1) / 2
        apart = np.maximum(
            np.linalg.norm(moved_p[left] - moved_p[best], axis=1),
            np.linalg.norm(moved_q[left] - moved_q[best], axis=1),
        )
        other = (cosine < math.cos(SAME_ANGLE)) | (apart > SAME_THRESHOLDS * threshold)
        left = left[1:][other[1:]]
    return np.array(kept, dtype=np.int64)


def squared_residuals(
    poses: NDArray[np.float64], p: NDArray[np.float64], q: NDArray[np.float64]
) -> NDArray[np.float64]:
    """(S, M) of motions (S, 4, 4) and matches (3, M)."""
    residual = np.einsum("sij,jk->sik", poses[:, :3, :3], p) + poses[:, :3, 3:] - q
    squared: NDArray[np.float64] = np.einsum("sik,sik->sk", residual, residual)
    return squared


def _polish(
    poses: NDArray[np.float64],
    p: NDArray[np.float64],
    q: NDArray[np.float64],
    weights: NDArray[np.float64],
    threshold: float,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Refit each motion on what it brings together, first within a wider band; its best state and score.

    Sums by numpy, as those of torch and BLAS change with the number of threads.
    """
    best, best_scores = poses, np.full(len(poses), -np.inf)
    for step in range(ROUNDS + 1):
        squared = squared_residuals(poses, p, q)  # (S, M)
        scores = (weights * np.maximum(1 - squared / threshold**2, 0)).sum(axis=1)
        better = scores > best_scores
        best = np.where(better[:, None, None], poses, best)
        best_scores = np.where(better, scores, best_scores)
        band = threshold * max(1.0, WIDE - step / 2)
        if step == ROUNDS or (band == threshold and not better.any()):
            break
        share = weights * np.maximum(1 - squared / band**2, 0)  # the pull of a match fades towards the rim
        poses = _fits(share, p, q)
    return best, best_scores


def _fits(share: NDArray[np.float64], p: NDArray[np.float64], q: NDArray[np.float64]) -> NDArray[np.float64]:
    """Rigid fits (S, 4, 4) of matches (3, M) by their costs `share` (S, M)."""
    total = share.sum(axis=1, keepdims=True)
    share = share / np.where(total > 0, total, 1)
    mean_p, mean_q = np.einsum("sk,ik->si", share, p), np.einsum("sk,ik->si", share, q)
    cross = np.einsum("sik,jk->sij", share[:, None, :] * q, p) - mean_q[:, :, None] * mean_p[:, None, :]
    T: NDArray[np.float64] = rigid_from_moments(*map(torch.from_numpy, (mean_p, mean_q, cross))).numpy()
    return T
