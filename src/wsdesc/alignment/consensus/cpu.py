"""Consensus on the CPU: graph of matches as bits, cliques and votes in compiled kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from wsdesc.alignment.consensus.compatibility import (
    MAX_PARTNERS,
    best_partners,
    compatibility_bits,
    count_bits,
    is_set,
    stretch,
)
from wsdesc.alignment.consensus.constants import DECISIVE_SIZE, MIN_EDGE, STARTS, refitted_poses
from wsdesc.alignment.correspondences import centred, most_weighted
from wsdesc.alignment.hypotheses import Filter, Hypothesis, best_distinct, centred_filter, distinct, uncentre
from wsdesc.alignment.rigid import rigid_from_moments
from wsdesc.core.geometry import Floats
from wsdesc.core.kernels import inline, kernel, run_in_chunks


def consensus(
    p: Floats,
    q: Floats,
    w: Floats,
    threshold: float,
    hypotheses: int,
    limit: int,
    allow: Filter | None = None,
) -> list[Hypothesis]:
    """Solve matches (3, M) with weights (M,); see `wsdesc.alignment.consensus.consensus`."""
    used = most_weighted(w, limit)
    if len(used) < 3:
        return []
    p, q, mean_p, mean_q = centred(p, q)
    allow = centred_filter(allow, mean_p, mean_q)
    proposing = (p[:, used], q[:, used], w[used])
    poses = _clique_poses(*proposing, threshold, refitted_poses(hypotheses), allow)
    best = best_distinct(poses, *proposing, threshold, hypotheses, allow)
    if best and len(used) < len(w):  # all matches vote, but only on the best poses
        poses = np.stack([hypothesis.T_target_source.numpy() for hypothesis in best])
        best = best_distinct(poses, p, q, w, threshold, hypotheses, allow)
    return [uncentre(hypothesis, mean_p, mean_q) for hypothesis in best]


def _clique_poses(
    p: Floats, q: Floats, w: Floats, threshold: float, count: int, allow: Filter | None
) -> Floats:
    """Fit distinct poses (S, 4, 4), at most `count`, to cliques; most votes first."""
    p, q = np.ascontiguousarray(p), np.ascontiguousarray(q)
    matches = p.shape[1]
    bits = compatibility_bits(p, q, threshold, MIN_EDGE * threshold)
    partners, _ = best_partners(p, q, threshold, bits)
    sizes = np.zeros(matches, dtype=np.int64)
    means = np.zeros((2, matches, 3))
    cross = np.zeros((matches, 3, 3))
    run_in_chunks(_grow_cliques, matches, p, q, threshold, bits, partners, sizes, means, cross)

    # Members on a line do not determine the rotation about it; within a threshold of a line, noise would.
    across = np.linalg.svd(cross, compute_uv=False)[:, 1]
    determined = (sizes >= 3) & (across >= threshold * threshold)
    poses = rigid_from_moments(*(torch.from_numpy(x[determined]) for x in (*means, cross))).numpy()
    poses = poses if allow is None else poses[allow(poses)]
    votes = np.zeros(len(poses))
    run_in_chunks(_vote, len(poses), poses, p, q, w, threshold * threshold, votes)
    poses = poses[np.argsort(-votes, kind="stable")]
    best: Floats = poses[distinct(poses, p, q, threshold, count)]
    return best


@kernel(
    types="int64, int64, float64[:, ::1], float64[:, ::1], float64, uint64[:, ::1], int32[:, ::1], "
    "int64[::1], float64[:, :, ::1], float64[:, :, ::1]",
)
def _grow_cliques(
    start: int,
    stop: int,
    p: Any,
    q: Any,
    tolerance: float,
    bits: Any,
    partners: Any,
    sizes: Any,
    means: Any,
    cross: Any,
) -> None:
    """Grow cliques around each match and its best partners; write size and moments of the best clique."""
    links = np.empty(MAX_PARTNERS, dtype=np.uint64)  # graph of the partners, as bits
    strain = np.empty((MAX_PARTNERS + 1, MAX_PARTNERS))  # of its edges; the last row: edges to the seed
    cost = np.empty(MAX_PARTNERS)
    partner = np.empty(MAX_PARTNERS, dtype=np.int64)
    members = np.empty(MAX_PARTNERS + 1, dtype=np.int64)
    best = np.empty(MAX_PARTNERS + 1, dtype=np.int64)
    for i in range(start, stop):
        near = 0
        while near < MAX_PARTNERS and partners[i, near] >= 0:
            partner[near] = partners[i, near]
            strain[MAX_PARTNERS, near] = stretch(p, q, tolerance, i, partner[near])
            links[near] = np.uint64(0)
            near += 1
        for a in range(near):
            for b in range(a):
                if is_set(bits, partner[a], partner[b]):
                    links[a] |= np.uint64(1) << np.uint64(b)
                    links[b] |= np.uint64(1) << np.uint64(a)
                    strain[a, b] = stretch(p, q, tolerance, partner[a], partner[b])
                    strain[b, a] = strain[a, b]
        size, best_value = 0, 0.0
        for first in range(min(near, STARTS)):
            n, value = _grow(first, near, links, strain, cost, members)
            if value > best_value:
                size, best_value = n, value
                best[0] = i
                for m in range(1, n):
                    best[m] = partner[members[m]]
            if size >= DECISIVE_SIZE:
                break
        sizes[i] = size
        if size >= 3:
            _write_moments(best[:size], p, q, means[0, i], means[1, i], cross[i])


@inline
def _grow(first: int, near: int, links: Any, strain: Any, cost: Any, members: Any) -> Any:
    """Add the partner that leaves most candidates, until none is left.

    Among equals, the partner whose edges to the members preserve their lengths best is added. Indices do not
    decide, so the order of the matches does not matter. Returns the size of the clique, the seed in
    `members[0]` included, and its value: the size less a fraction for strained edges. `cost` is work space.
    """
    for c in range(near):
        cost[c] = strain[MAX_PARTNERS, c]
    candidates, newest, n, total = links[first], first, 1, 0.0
    while True:
        total += cost[newest]
        members[n] = newest
        n += 1
        chosen, best_value = -1, -np.inf
        for c in range(near):
            if (candidates >> np.uint64(c)) & np.uint64(1):
                cost[c] += strain[newest, c]
                value = count_bits(candidates & links[c]) - cost[c] / (n + 1)
                if value > best_value:
                    chosen, best_value = c, value
        if chosen < 0:
            return n, n - total / (n * n)
        newest = chosen
        candidates &= links[newest]


@inline
def _write_moments(members: Any, p: Any, q: Any, mean_p: Any, mean_q: Any, cross: Any) -> None:
    """Write the moments of the members from which a rigid fit follows."""
    n = len(members)
    for k in members:
        for i in range(3):
            mean_p[i] += p[i, k] / n
            mean_q[i] += q[i, k] / n
    for k in members:
        for i in range(3):
            for j in range(3):
                cross[i, j] += (q[i, k] - mean_q[i]) * (p[j, k] - mean_p[j]) / n


@kernel(
    types="int64, int64, float64[:, :, ::1], float64[:, ::1], float64[:, ::1], float64[::1], float64, "
    "float64[::1]",
    fastmath={"nsz", "reassoc"},  # the compiler can vectorize the sum
)
def _vote(
    start: int, stop: int, poses: Any, p: Any, q: Any, weights: Any, threshold_squared: float, votes: Any
) -> None:
    """Sum w (1 − r² / threshold²) over the inliers of each pose."""
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
