"""Deterministic consensus: motions from cliques of matches that keep each other's distances.

Every match is a seed. Among the partners that share most with it (see `compatibility`) cliques are grown, the
largest is fitted, and all matches vote on its motion. Nothing is drawn at random, so that among hundred
wrong matches for each right one it does not take luck to find the right ones.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from wsdesc.alignment.compatibility import (
    CLOSEST,
    closest_partners,
    compatibility_bits,
    is_set,
    ones,
    stretch,
)
from wsdesc.alignment.hypotheses import (
    Hypothesis,
    best_distinct,
    centred,
    check_count,
    distinct,
    uncentre,
)
from wsdesc.alignment.ransac import matched_points
from wsdesc.alignment.rigid import rigid_from_moments
from wsdesc.core.errors import InputError
from wsdesc.core.kernels import inline, kernel, run_in_chunks

SHORTEST = 4.0  # thresholds that an edge must be long; the members of a clique are that far apart
STARTS = 8  # cliques grown around a match
DECISIVE_SIZE = 24  # members of a clique that need no other beside it
CANDIDATES = 4  # distinct motions refitted for each one asked for; refitting changes their order


def consensus(
    source: Tensor,
    target: Tensor,
    *,
    weights: Tensor | None = None,
    threshold: float = 0.05,
    hypotheses: int = 8,
    limit: int = 5000,
) -> list[Hypothesis]:
    """Distinct rigid motions that matched points source[i] ↔ target[i] agree on, best first.

    There may be fewer than asked for, and none where nothing fixes a motion: fewer than three matches,
    points on a line, points that all lie within a few thresholds. The result is the same, bit for bit, on
    any number of threads; it moves with the points, and swapping the sides inverts it.

    Args:
        source, target: matched points (M, 3).
        weights: how much each match is trusted, (M,), not negative; None for equally. They count in the
            votes and the fits.
        threshold: distance, in the unit of the points, up to which a match is an inlier, and by which the
            lengths between two matches may differ.
        hypotheses: most motions to return.
        limit: matches that motions are sought among; of more those with the largest weights, without weights
            evenly spaced ones. All are counted in the end. Time and memory grow with the square of it.
    """
    p, q = matched_points(source, target)
    w = _weights(weights, p.shape[1])
    check_count(hypotheses)
    if not (threshold > 0 and math.isfinite(threshold)):
        raise InputError(f"threshold must be a positive length, not {threshold}")
    if limit < 3:
        raise InputError(f"limit must be at least 3, not {limit}")
    if source.is_cuda:
        from wsdesc.alignment import consensus_cuda

        trust = torch.from_numpy(w).to(source.device)
        return consensus_cuda.consensus(source, target.to(source), trust, threshold, hypotheses, limit)
    used = most_trusted(w, limit)
    if len(used) < 3:
        return []
    p, q, middle_p, middle_q = centred(p, q)
    some = (p[:, used], q[:, used], w[used])
    best = best_distinct(_candidates(*some, threshold, CANDIDATES * hypotheses), *some, threshold, hypotheses)
    if best and len(used) < len(w):  # all are counted, but only for motions that are worth it
        poses = np.stack([hypothesis.T_target_source.numpy() for hypothesis in best])
        best = best_distinct(poses, p, q, w, threshold, hypotheses)
    return [uncentre(hypothesis, middle_p, middle_q) for hypothesis in best]


def _weights(weights: Tensor | None, count: int) -> NDArray[np.float64]:
    if weights is None:
        return np.ones(count)
    weights = torch.as_tensor(weights)
    if weights.shape != (count,):
        raise InputError(f"weights of {count} matches must be ({count},), not {tuple(weights.shape)}")
    w: NDArray[np.float64] = weights.detach().to("cpu", torch.float64).numpy()
    if not (np.isfinite(w).all() and (w >= 0).all()):
        raise InputError("weights must be finite and not negative")
    return w


def most_trusted(w: NDArray[np.float64], limit: int) -> NDArray[np.int64]:
    """Which matches to look at, in their order; those without weight have nothing to say."""
    some = np.flatnonzero(w)
    if len(some) <= limit:
        return some
    if w[some].min() == w[some].max():
        return some[np.arange(limit) * len(some) // limit]
    return np.sort(some[np.argsort(-w[some], kind="stable")[:limit]])


def _candidates(
    p: NDArray[np.float64], q: NDArray[np.float64], w: NDArray[np.float64], threshold: float, most: int
) -> NDArray[np.float64]:
    """Distinct motions (S, 4, 4) of cliques, those with most votes first, not yet refitted."""
    p, q = np.ascontiguousarray(p), np.ascontiguousarray(q)
    count = p.shape[1]
    bits = compatibility_bits(p, q, threshold, SHORTEST * threshold)
    partners, _ = closest_partners(p, q, threshold, bits)
    sizes = np.zeros(count, dtype=np.int64)
    means = np.zeros((2, count, 3))
    cross = np.zeros((count, 3, 3))
    run_in_chunks(_grow_cliques, count, p, q, threshold, bits, partners, sizes, means, cross)

    # Members on a line leave the rotation about it open; thinner than a threshold, noise would choose it.
    across = np.linalg.svd(cross, compute_uv=False)[:, 1]
    firm = (sizes >= 3) & (across >= threshold * threshold)
    poses = rigid_from_moments(*(torch.from_numpy(x[firm]) for x in (*means, cross))).numpy()
    votes = np.zeros(len(poses))
    run_in_chunks(_vote, len(poses), poses, p, q, w, threshold * threshold, votes)
    poses = poses[np.argsort(-votes, kind="stable")]
    best: NDArray[np.float64] = poses[distinct(poses, p, q, threshold, most)]
    return best


@kernel
def _grow_cliques(
    start: int,
    stop: int,
    p: Any,
    q: Any,
    within: float,
    bits: Any,
    partners: Any,
    sizes: Any,
    means: Any,
    cross: Any,
) -> None:
    """Grow a clique around each match and each of its closest partners; size and moments of the largest."""
    links = np.zeros(CLOSEST, dtype=np.uint64)  # the graph among the partners
    strain = np.zeros((CLOSEST + 1, CLOSEST))  # of its edges; in the last row of those to the seed
    cost = np.zeros(CLOSEST)
    members = np.zeros(CLOSEST + 1, dtype=np.int64)
    best = np.zeros(CLOSEST + 1, dtype=np.int64)
    for i in range(start, stop):
        near = 0
        while near < CLOSEST and partners[i, near] >= 0:
            strain[CLOSEST, near] = stretch(p, q, within, i, partners[i, near])
            links[near] = np.uint64(0)
            near += 1
        for a in range(near):
            for b in range(a):
                if is_set(bits, partners[i, a], partners[i, b]):
                    links[a] |= np.uint64(1) << np.uint64(b)
                    links[b] |= np.uint64(1) << np.uint64(a)
                    strain[a, b] = stretch(p, q, within, partners[i, a], partners[i, b])
                    strain[b, a] = strain[a, b]
        size, best_value = 0, 0.0
        for first in range(min(near, STARTS)):
            n, value = _grow(first, near, links, strain, cost, members)
            if value > best_value:
                size, best_value = n, value
                best[0] = i
                for m in range(1, n):
                    best[m] = partners[i, members[m]]
            if size >= DECISIVE_SIZE:
                break
        sizes[i] = size
        if size >= 3:
            _write_moments(best[:size], p, q, means[0, i], means[1, i], cross[i])


@inline
def _grow(first: int, near: int, links: Any, strain: Any, cost: Any, members: Any) -> Any:
    """Add, one after another, the partner that leaves most candidates, until none is left.

    Of those that leave as many the one comes first whose edges to the members keep their lengths best;
    indices decide nothing, so that the order of the matches does not matter. Returns the size of the
    clique, the seed in `members[0]` included, and what it is worth: its size, less a fraction for strained
    edges. `cost` is work space.
    """
    for c in range(near):
        cost[c] = strain[CLOSEST, c]
    candidates, newest, n, total = links[first], first, 1, 0.0
    while True:
        total += cost[newest]
        members[n] = newest
        n += 1
        chosen, best_value = -1, -np.inf
        for c in range(near):
            if (candidates >> np.uint64(c)) & np.uint64(1):
                cost[c] += strain[newest, c]
                value = ones(candidates & links[c]) - cost[c] / (n + 1)
                if value > best_value:
                    chosen, best_value = c, value
        if chosen < 0:
            return n, n - total / (n * n)
        newest = chosen
        candidates &= links[newest]


@inline
def _write_moments(members: Any, p: Any, q: Any, mean_p: Any, mean_q: Any, cross: Any) -> None:
    """What a rigid fit of the members needs to know."""
    n = len(members)
    for k in members:
        for i in range(3):
            mean_p[i] += p[i, k] / n
            mean_q[i] += q[i, k] / n
    for k in members:
        for i in range(3):
            for j in range(3):
                cross[i, j] += (q[i, k] - mean_q[i]) * (p[j, k] - mean_p[j]) / n


@kernel
def _vote(
    start: int, stop: int, poses: Any, p: Any, q: Any, weights: Any, threshold_squared: float, votes: Any
) -> None:
    """Each motion's sum of w (1 − r² / threshold²) over its inliers."""
    for s in range(start, stop):
        T = poses[s]
        total = 0.0
        for k in range(p.shape[1]):
            x, y, z = p[0, k], p[1, k], p[2, k]
            dx = T[0, 0] * x + T[0, 1] * y + T[0, 2] * z + T[0, 3] - q[0, k]
            dy = T[1, 0] * x + T[1, 1] * y + T[1, 2] * z + T[1, 3] - q[1, k]
            dz = T[2, 0] * x + T[2, 1] * y + T[2, 2] * z + T[2, 3] - q[2, k]
            total += weights[k] * max(0.0, 1.0 - (dx * dx + dy * dy + dz * dz) / threshold_squared)
        votes[s] = total
