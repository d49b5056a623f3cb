"""Check a layout of scans by free space, and separate groups that it contradicts.

The poses of a group predict how every two of its scans lie to each other, also of scans that no edge
connects. If a surface of one scan then lies in space that the scanner of the other one saw through, the two
scans contradict each other, and one of the edges between them is wrong. In repetitive structure, wrong edges
confirm each other: equal bays end up on top of each other. Free space contradicts that.

All lengths are in model metres.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import maximum_flow
from scipy.spatial import cKDTree

from wsdesc.core.geometry import Floats, inverse
from wsdesc.reconstruction.cuts import FLOW_UNITS, Part, source_side
from wsdesc.reconstruction.pose_graph import Edge, Pair

NEAR = 2.0  # times the radii of two scans: scans further apart do not see the same space
_NEAREST = 20  # scans that each scan is checked with
MIN_VISIBLE = 500  # points that must be visible from the other scan; fewer are no evidence
# Shares of visible points that violate free space at right poses: 0 in synthetic buildings, 0.06 % (median)
# and 0.5 % (largest) in a real one, up to 6 % in streets, where things move. At wrong poses in equal bays
# they start at 0.5 %. So the share is compared with that of the accepted edges of the same scans.
_MIN_USUAL, _MAX_USUAL = 0.0012, 0.02  # limits of the share that counts as usual
_STRAY = 10  # violating points that are no evidence: they may be one thin object
_UNKNOWN_USUAL = 0.002  # without any accepted edge
_USUAL_QUANTILE = 0.75  # of the visible points of accepted edges; their share counts twice
_RATIOS = np.log10([0.5, 1.0, 3.0, 10.0])  # of a share and the usual one
_LOG_ODDS = np.array([0.3, 0.0, -3.0, -8.0])  # that the pose is right
CONTRADICTION = -3.0  # log odds at which two scans contradict each other
_MAX_WEIGHT = 5.0  # log odds of an edge against cutting it
_MIN_WEIGHT = 0.1


class Visibility(NamedTuple):
    """Points of two scans that the other scanner could see, at one relative pose."""

    visible: int  # at the other scan's surface, or in its free space
    violating: int  # of these, in its free space
    share: float  # of visible points that violate, 0 … 1
    overlap: float = 0.0  # of the scan where it is smaller, within four resolutions

    def log_odds(self, usual: float) -> float:
        """Return the log odds that the pose is right; 0 if hardly a point is visible.

        Args:
            usual: Share of violating points at right poses of these scans.
        """
        if self.visible < MIN_VISIBLE:
            return 0.0
        share = max(self.violating - _STRAY, 0) / self.visible
        return float(np.interp(np.log10(max(share / usual, 1e-3)), _RATIOS, _LOG_ODDS))


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
    return [visibility.visible >= MIN_VISIBLE for visibility in check_edges_of(edges, check)]


def usual_violation(edges: Sequence[Edge], check: Checker) -> float:
    """Measure the share of violating points of accepted edges; those with a large overlap count more."""
    seen = [v for v in check_edges_of(edges, check) if v.visible >= MIN_VISIBLE]
    if not seen:
        return _UNKNOWN_USUAL
    seen.sort(key=lambda visibility: visibility.share)
    weights = np.cumsum([visibility.visible for visibility in seen])
    middle = int(np.searchsorted(weights, _USUAL_QUANTILE * weights[-1]))
    return float(np.clip(2 * seen[middle].share, _MIN_USUAL, _MAX_USUAL))


def check_edges_of(edges: Sequence[Edge], check: Checker) -> list[Visibility]:
    """Check edges at their own poses."""
    poses = {}
    for edge in edges:
        T = edge.T_target_source if edge.target < edge.source else inverse(edge.T_target_source)
        poses[edge.ends] = T[None]
    visibilities = check(poses)
    return [visibilities[edge.ends][0] for edge in edges]


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
    visibilities = check({(i, j): (inverse(T[i]) @ T[j])[None] for i, j in pairs})
    usual = usual_violation(edges, check)
    odds = {pair: visibilities[pair][0].log_odds(usual) for pair in pairs}
    rejected: dict[int, str] = {}
    for pair in sorted((p for p in pairs if odds[p] <= CONTRADICTION), key=lambda p: (odds[p], p)):
        kept = [k for k in range(len(edges)) if k not in rejected]
        cut, side = _cheapest_cut([edges[k] for k in kept], odds, len(radii), *pair)
        gain = -sum(value for (i, j), value in odds.items() if side[i] != side[j] and value < 0)
        cost = sum(_weight(edges[kept[k]], odds) for k in cut)
        if cut and cost < gain:
            share = visibilities[pair][0].share
            for k in cut:
                rejected[kept[k]] = f"free space contradicts: {share:.1%} of the visible points"
    return rejected


def _weight(edge: Edge, odds: Mapping[Pair, float]) -> float:
    """Return the log odds of an edge, with those of its free space."""
    confidence = min(edge.confidence, 0.999)
    own = np.log(confidence / (1 - confidence)) + odds.get(edge.ends, 0.0)
    return float(np.clip(own, _MIN_WEIGHT, _MAX_WEIGHT))


def _cheapest_cut(
    edges: Sequence[Edge], odds: Mapping[Pair, float], count: int, source: int, sink: int
) -> tuple[list[int], Part]:
    """Find the edges of least total weight that separate two scans, and the side (N,) of each scan.

    No edges are returned if the two scans are separate already.
    """
    ends = np.array([edge.ends for edge in edges], dtype=np.intp).reshape(-1, 2)
    capacity = np.array([int(FLOW_UNITS * _weight(edge, odds)) for edge in edges], dtype=np.int32)
    both = np.concatenate([ends, ends[:, ::-1]])
    graph = coo_array((np.tile(capacity, 2), (both[:, 0], both[:, 1])), shape=(count, count)).tocsr()
    flow = maximum_flow(graph, source, sink)
    side = source_side(graph, flow.flow, source)
    cut = [k for k, (i, j) in enumerate(ends) if side[i] != side[j]]
    return ([] if side[sink] or flow.flow_value == 0 else cut), side
