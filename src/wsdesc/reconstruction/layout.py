"""Check a layout of scans by free space, and use it to separate and to join groups of scans.

The poses of a group predict how every two of its scans lie to each other, also of scans that no edge
connects. If a surface of one scan then lies in space that the scanner of the other one saw through, the two
scans contradict each other, and one of the edges between them is wrong. In repetitive structure, wrong edges
confirm each other: equal bays end up on top of each other. Free space contradicts that.

It also resolves ambiguous edges. Two groups are tried in each relative pose that one of their edges
proposes. If free space contradicts all poses but one, that one is right.

All lengths are in model metres.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import breadth_first_order, maximum_flow
from scipy.spatial import cKDTree

from wsdesc.core.geometry import Floats, inverse
from wsdesc.reconstruction.disambiguation import (
    CHANCE,
    DRIFT,
    LOOP_TOLERANCE,
    MIN_CANDIDATE_CONFIDENCE,
    displacements,
)
from wsdesc.reconstruction.pose_graph import Edge

Pair = tuple[int, int]  # indices of two scans, ascending

NEAR = 2.0  # times the radii of two scans: scans further apart do not see the same space
_NEAREST = 20  # scans that each scan is checked with
MIN_VISIBLE = 100  # points that must be visible from the other scan; fewer tell nothing
# Shares of visible points that violate free space at right poses: 0 in synthetic buildings, 0.06 % (median)
# and 0.5 % (largest) in a real one, up to 6 % in streets, where things move. At wrong poses in equal bays
# they start at 0.5 %. So the share is compared with that of the accepted edges of the same scans.
_MIN_USUAL, _MAX_USUAL = 0.002, 0.02  # limits of the share that counts as usual
_USUAL_QUANTILE = 0.75  # of the accepted edges, whose share counts twice
_RATIOS = np.log10([0.5, 1.0, 3.0, 10.0])  # of a share and the usual one
_LOG_ODDS = np.array([0.3, 0.0, -3.0, -8.0])  # that the pose is right
_MAX_SUPPORT = 1.5  # sum of positive log odds of many pairs, which are not independent
CONTRADICTION = -3.0  # log odds at which two scans contradict each other
MIN_JOIN = 5.0  # log odds of a pose that joins two groups
MIN_JOIN_MARGIN = 3.0  # log odds of that pose against the second best
_MIN_GAIN = 2.5  # log odds of the edges of a pose that is checked
_MAX_EDGES = 300  # between two groups that propose poses, those of the highest confidence
_PROPOSALS = 8  # poses of two groups that are checked, those with the best edges
_MAX_WEIGHT = 5.0  # log odds of an edge against cutting it
_MIN_WEIGHT = 0.1
_FLOW = 1000  # integer units of capacity per log odds


class Visibility(NamedTuple):
    """Points of two scans that the other scanner could see, at one relative pose."""

    visible: int  # at the other scan's surface, or in its free space
    violating: int  # of these, in its free space
    share: float  # of visible points that violate, 0 … 1

    def log_odds(self, usual: float) -> float:
        """Return the log odds that the pose is right; 0 if hardly a point is visible.

        Args:
            usual: Share of violating points at right poses of these scans.
        """
        if self.visible < MIN_VISIBLE:
            return 0.0
        return float(np.interp(np.log10(max(self.share / usual, 1e-3)), _RATIOS, _LOG_ODDS))


Checks = Mapping[Pair, Sequence[Visibility]]
Checker = Callable[[Mapping[Pair, Floats]], Checks]
"""Check poses T_i_j (H, 4, 4) of pairs (i, j); one result per pose."""


def near_pairs(first: Sequence[int], second: Sequence[int], T: Floats, radii: Floats) -> list[Pair]:
    """Return the pairs between two sets of scans that may see the same space.

    Args:
        first: Scans.
        second: Scans, the same or others.
        T: (N, 4, 4) poses.
        radii: (N,) of the scans.

    Returns:
        Pairs, ascending; the `_NEAREST` nearest ones of each scan of the second set.
    """
    centres = T[:, :3, 3]
    tree = cKDTree(centres[first])
    distance, index = tree.query(centres[second], min(len(first), _NEAREST + 1))
    pairs = set()
    for j, distances, numbers in zip(
        second, distance.reshape(len(second), -1), index.reshape(len(second), -1), strict=True
    ):
        for d, number in zip(distances.tolist(), numbers.tolist(), strict=True):
            i = first[number]
            if i != j and d < NEAR * (radii[i] + radii[j]):
                pairs.add((min(i, j), max(i, j)))
    return sorted(pairs)


def edges_in_view(edges: Sequence[Edge], check: Checker) -> list[bool]:
    """Return for each edge whether free space was checked: its scans see enough of each other."""
    return [visibility.visible >= MIN_VISIBLE for visibility in _check_edges(edges, check)]


def usual_violation(edges: Sequence[Edge], check: Checker) -> float:
    """Measure the share of violating points that accepted edges have."""
    found = _check_edges(edges, check)
    shares = [visibility.share for visibility in found if visibility.visible >= MIN_VISIBLE]
    usual = 2 * np.quantile(shares, _USUAL_QUANTILE) if shares else 0.0
    return float(np.clip(usual, _MIN_USUAL, _MAX_USUAL))


def _check_edges(edges: Sequence[Edge], check: Checker) -> list[Visibility]:
    poses = {}
    for edge in edges:
        T = edge.T_target_source if edge.target < edge.source else inverse(edge.T_target_source)
        poses[_ends(edge)] = T[None]
    found = check(poses)
    return [found[_ends(edge)][0] for edge in edges]


def separate(
    edges: Sequence[Edge], components: Sequence[Sequence[int]], T: Floats, radii: Floats, check: Checker
) -> dict[int, str]:
    """Find edges to reject, so that scans that contradict each other by free space are in different groups.

    The cheapest cut is taken: of the edges between two scans that contradict each other, those of the lowest
    confidence.

    Args:
        edges: Accepted edges.
        components: Scans that the edges connect.
        T: (N, 4, 4) poses of the scans, in the frame of their component.
        radii: (N,) of the scans.
        check: Checks poses by free space.

    Returns:
        Rejected edges with reasons.
    """
    pairs = [pair for scans in components for pair in near_pairs(scans, scans, T, radii)]
    found = check({(i, j): (inverse(T[i]) @ T[j])[None] for i, j in pairs})
    usual = usual_violation(edges, check)
    odds = {pair: found[pair][0].log_odds(usual) for pair in pairs}
    rejected: dict[int, str] = {}
    for pair in sorted((p for p in pairs if odds[p] <= CONTRADICTION), key=lambda p: (odds[p], p)):
        kept = [k for k in range(len(edges)) if k not in rejected]
        cut, side = _cheapest_cut([edges[k] for k in kept], odds, len(radii), *pair)
        gain = -sum(value for (i, j), value in odds.items() if side[i] != side[j] and value < 0)
        cost = sum(_weight(edges[kept[k]], odds) for k in cut)
        if cut and cost < gain:
            share = found[pair][0].share
            for k in cut:
                rejected[kept[k]] = f"free space contradicts: {share:.1%} of the visible points"
    return rejected


def _weight(edge: Edge, odds: Mapping[Pair, float]) -> float:
    """Return the log odds of an edge, with those of its free space."""
    confidence = min(edge.confidence, 0.999)
    own = np.log(confidence / (1 - confidence)) + odds.get(_ends(edge), 0.0)
    return float(np.clip(own, _MIN_WEIGHT, _MAX_WEIGHT))


def _cheapest_cut(
    edges: Sequence[Edge], odds: Mapping[Pair, float], count: int, source: int, sink: int
) -> tuple[list[int], np.ndarray]:
    """Find the edges of least total weight that separate two scans, and the side (N,) of each scan.

    No edges are returned if the two scans are separate already.
    """
    ends = np.array([_ends(edge) for edge in edges], dtype=np.intp).reshape(-1, 2)
    capacity = np.array([int(_FLOW * _weight(edge, odds)) for edge in edges], dtype=np.int32)
    both = np.concatenate([ends, ends[:, ::-1]])
    graph = coo_array((np.tile(capacity, 2), (both[:, 0], both[:, 1])), shape=(count, count)).tocsr()
    flow = maximum_flow(graph, source, sink)
    rest = graph - flow.flow
    rest.data = np.maximum(rest.data, 0)
    rest.eliminate_zeros()
    side = np.zeros(count, dtype=bool)
    side[breadth_first_order(rest, source, return_predecessors=False)] = True
    cut = [k for k, (i, j) in enumerate(ends) if side[i] != side[j]]
    return ([] if side[sink] or flow.flow_value == 0 else cut), side


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
    found = check({pair: np.stack([pose for _, pose in poses]) for pair, poses in wanted.items()})
    seen = np.zeros(len(moves), dtype=bool)
    contradicted = np.zeros(len(moves), dtype=bool)
    for pair, poses in wanted.items():
        for (number, _), visibility in zip(poses, found[pair], strict=True):
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


def _ends(edge: Edge) -> Pair:
    return min(edge.source, edge.target), max(edge.source, edge.target)
