"""Join groups of scans by their edges and free space.

Two groups are tried in each relative pose that one of their edges proposes, also ambiguous edges and edges of
low confidence. If free space contradicts all poses but one, and several edges agree with it, it is accepted.

All lengths are in model metres.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from wsdesc.core.geometry import Floats, inverse
from wsdesc.reconstruction.disambiguation import (
    CHANCE,
    DRIFT,
    LOOP_TOLERANCE,
    MIN_CANDIDATE_CONFIDENCE,
    displacements,
)
from wsdesc.reconstruction.layout import CONTRADICTION, MIN_VISIBLE, Checker, near_pairs
from wsdesc.reconstruction.pose_graph import Edge, Pair

MIN_JOIN = 5.3  # log odds of a pose that joins two groups; a single edge reaches it at a confidence of 0.9
MIN_JOIN_MARGIN = 3.0  # log odds of that pose against the second best
_MIN_GAIN = 2.5  # log odds of the edges of a pose that is checked
_MAX_EDGES = 300  # between two groups that propose poses, those of the highest confidence
_PROPOSALS = 8  # poses of two groups that are checked, those with the best edges
_MAX_SUPPORT = 1.5  # sum of positive log odds of many pairs, which are not independent


class Join(NamedTuple):
    """A pose that joins two groups of scans."""

    T: Floats  # (4, 4) moves the second group into the frame of the first
    log_odds: float
    margin: float  # log odds against the second best pose

    @property
    def accepted(self) -> bool:
        """True if the pose is right beyond doubt."""
        return self.log_odds >= MIN_JOIN and self.margin >= MIN_JOIN_MARGIN


def join_groups(
    pairs: Sequence[Sequence[Edge]],
    components: Sequence[Sequence[int]],
    T_world_scan: Floats,
    radii: Floats,
    check: Checker,
    usual: float,
) -> tuple[list[list[int]], Floats]:
    """Join groups of scans, the most certain first, by their edges and free space.

    Args:
        pairs: Candidate edges of each pair, best first.
        components: Groups of scans.
        T_world_scan: (N, 4, 4) poses of the scans, in the frame of their group.
        radii: (N,) of the scans.
        check: Checks poses by free space.
        usual: Share of violating points at right poses; see `usual_violation`.

    Returns:
        The groups, and the poses of the scans in the frames of their groups.
    """
    T = T_world_scan.copy()
    groups = {number: sorted(scans) for number, scans in enumerate(components)}
    between = _edges_between(pairs, groups)
    joins = {key: _best_join(groups, own, T, radii, check, usual, *key) for key, own in between.items()}
    while joins:
        key = max(joins, key=lambda k: (joins[k].accepted, min(joins[k].log_odds, joins[k].margin), k))
        join = joins.pop(key)
        if not join.accepted:
            break
        a, b = key
        T[groups[b]] = join.T @ T[groups[b]]
        groups[a] = sorted(groups[a] + groups.pop(b))
        between = _edges_between(pairs, groups)
        joins = {k: j for k, j in joins.items() if not {a, b} & set(k)}
        for k, own in between.items():
            if a in k:
                joins[k] = _best_join(groups, own, T, radii, check, usual, *k)
    return sorted(groups.values(), key=lambda scans: (-len(scans), scans[0])), T


def _edges_between(
    pairs: Sequence[Sequence[Edge]], groups: Mapping[int, Sequence[int]]
) -> dict[Pair, list[Sequence[Edge]]]:
    """Return the pairs of scans with candidates between every two groups."""
    group = {scan: number for number, scans in groups.items() for scan in scans}
    between: dict[Pair, list[Sequence[Edge]]] = {}
    for candidates in pairs:
        likely = [edge for edge in candidates if edge.confidence >= MIN_CANDIDATE_CONFIDENCE]
        if likely:
            a, b = sorted((group[likely[0].source], group[likely[0].target]))
            if a != b:
                between.setdefault((a, b), []).append(likely)
    return {
        ends: own
        for ends, own in between.items()
        if sum(np.log1p(edges[0].confidence / CHANCE) for edges in own) >= _MIN_GAIN
    }


def _best_join(
    groups: Mapping[int, Sequence[int]],
    pairs: Sequence[Sequence[Edge]],
    T: Floats,
    radii: Floats,
    check: Checker,
    usual: float,
    a: int,
    b: int,
) -> Join:
    """Find the best pose of group b in the frame of group a."""
    likely = sorted(pairs, key=lambda candidates: -candidates[0].confidence)[:_MAX_EDGES]
    moves, gains = _proposals(likely, set(groups[a]), T, radii)
    odds, support = gains.copy(), np.zeros(len(moves))
    wanted: dict[Pair, list[tuple[int, Floats]]] = {}
    for number, move in enumerate(moves):
        moved = T.copy()
        moved[groups[b]] = move @ T[groups[b]]
        for i, j in near_pairs(groups[a], groups[b], moved, radii):
            wanted.setdefault((i, j), []).append((number, inverse(moved[i]) @ moved[j]))
    visibilities = check({pair: np.stack([pose for _, pose in poses]) for pair, poses in wanted.items()})
    seen = np.zeros(len(moves), dtype=bool)
    contradicted = np.zeros(len(moves), dtype=bool)
    for pair, poses in wanted.items():
        for (number, _), visibility in zip(poses, visibilities[pair], strict=True):
            value = visibility.log_odds(usual)
            support[number] += max(value, 0.0)
            odds[number] += min(value, 0.0)
            seen[number] |= visibility.visible >= MIN_VISIBLE
            contradicted[number] |= value <= CONTRADICTION
    odds += np.minimum(support, _MAX_SUPPORT)
    order = np.argsort(-odds, kind="stable")
    best = order[0]
    second = max(0.0, odds[order[1]]) if len(order) > 1 else 0.0  # 0: none of the poses is right
    valid = seen[best] and not contradicted[best]
    return Join(moves[best], float(odds[best]) if valid else -np.inf, float(odds[best] - second))


def _proposals(
    pairs: Sequence[Sequence[Edge]], first: set[int], T: Floats, radii: Floats
) -> tuple[Floats, Floats]:
    """Return distinct moves (M, 4, 4) of the second group, and the log odds (M,) of the edges for each."""
    moves, weights, numbers, ends = [], [], [], []
    for k, candidates in enumerate(pairs):
        for edge in candidates:
            inner, outer, pose = edge.source, edge.target, edge.T_target_source
            if inner in first:
                inner, outer, pose = outer, inner, inverse(pose)
            moves.append(T[outer] @ pose @ inverse(T[inner]))
            weights.append(edge.confidence)
            numbers.append(k)
            ends.append((outer, inner))
    stacked, number, scans = np.stack(moves), np.array(numbers), np.array(ends)
    gain = np.log1p(np.array(weights) / CHANCE)
    T_inner = T[scans[:, 1]]
    own = stacked @ T_inner  # poses of the inner scans that each edge proposes
    # (M, M): distance of each edge from each move
    error = displacements(
        inverse(T[scans[:, 0]])[None] @ stacked[:, None] @ T_inner[None],
        (inverse(T[scans[:, 0]]) @ own)[None],
        radii[scans[:, 0]],
        radii[scans[:, 1]],
    )
    agrees = error <= DRIFT * LOOP_TOLERANCE
    odds = np.zeros(len(stacked))
    for pair in range(len(pairs)):
        of_pair = number == pair
        odds += np.where(agrees[:, of_pair], gain[of_pair], 0.0).max(axis=1)
    chosen: list[int] = []
    for k in np.argsort(-odds, kind="stable").tolist():
        if len(chosen) < _PROPOSALS and not any(agrees[n, k] for n in chosen):
            chosen.append(k)
    return stacked[chosen], odds[chosen]
