"""Challenge weak links of a layout: does a scan fit as well at another position of a repetitive structure?

A scan of a room overlaps the scans of the corridor little, and fits at every door of equal bays. Its edges
are confident, as a registration compares few poses, and neighbouring scans confirm them. But the scans of
the corridor tell how the place repeats: other candidates of their pairs move one bay onto another. A weakly
linked part is moved in the same way. If it fits there as well, and free space does not contradict, its link
is rejected.

All lengths are in model metres.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from wsdesc.core.geometry import Floats, inverse
from wsdesc.reconstruction.disambiguation import (
    DRIFT,
    LOOP_TOLERANCE,
    MIN_CANDIDATE_CONFIDENCE,
    displacements,
)
from wsdesc.reconstruction.layout import Checker, check_edges_of, near_pairs
from wsdesc.reconstruction.pose_graph import Edge, connected_scans

Pair = tuple[int, int]  # indices of two scans, ascending

STRONG_OVERLAP = 0.35  # of the scan where it is smaller: such edges are not challenged
EQUAL_FIT = 0.8  # share of the overlap at which another position fits as well
MIN_ADVANTAGE = 3.0  # log odds of free space against another position
_MOTIONS = 24  # positions of a part that are compared
_LEAST = 3 * DRIFT * LOOP_TOLERANCE  # metres between two positions


def challenge(
    pairs: Sequence[Sequence[Edge]],
    accepted: Mapping[int, Edge],
    components: Sequence[Sequence[int]],
    T_world_scan: Floats,
    radii: Floats,
    check: Checker,
    usual: float,
) -> dict[int, str]:
    """Find accepted edges that link parts of a group weakly and not uniquely.

    Args:
        pairs: Candidate edges of each pair.
        accepted: Accepted edges, by the number of their pair.
        components: Groups of scans that the edges connect.
        T_world_scan: (N, 4, 4) poses of the scans, in the frame of their group.
        radii: (N,) of the scans.
        check: Checks poses by free space and overlap.
        usual: Share of violating points at right poses.

    Returns:
        Edges to reject, by the number of their pair, with reasons.
    """
    found = check_edges_of(list(accepted.values()), check)
    strong = [e for e, v in zip(accepted.values(), found, strict=True) if v.overlap >= STRONG_OVERLAP]
    part = {scan: n for n, scans in enumerate(connected_scans(len(radii), strong)) for scan in scans}
    rejected: dict[int, str] = {}
    for scans, inside in zip(components, pairs_inside(pairs, components), strict=True):
        parts: dict[int, list[int]] = {}
        for scan in scans:
            parts.setdefault(part[scan], []).append(scan)
        largest_last = sorted(parts.values(), key=lambda own: (len(own), own[0]))
        for own in largest_last[:-1]:
            others = [scan for scan in scans if scan not in own]
            moves = _motions(inside, others, own[0], T_world_scan, radii)
            if len(moves) and _fits_elsewhere(own, others, moves, T_world_scan, radii, check, usual):
                for p, edge in accepted.items():
                    if (edge.source in own) != (edge.target in own):
                        rejected[p] = "a scan fits as well at another position of the repetitive structure"
    return rejected


def pairs_inside(
    pairs: Sequence[Sequence[Edge]], components: Sequence[Sequence[int]]
) -> list[list[Sequence[Edge]]]:
    """Return the pairs with candidates inside each group."""
    group = {scan: number for number, scans in enumerate(components) for scan in scans}
    inside: list[list[Sequence[Edge]]] = [[] for _ in components]
    for candidates in pairs:
        if candidates and group[candidates[0].source] == group[candidates[0].target]:
            inside[group[candidates[0].source]].append(candidates)
    return inside


def _motions(
    pairs: Sequence[Sequence[Edge]], scans: Sequence[int], moved: int, T: Floats, radii: Floats
) -> Floats:
    """Find motions (M, 4, 4) under which the place repeats, by other candidates of pairs of these scans.

    Motions that put the scan `moved` at the same position count once; those of most candidates come first.
    """
    inside, proposed = set(scans), []
    for candidates in pairs:
        if candidates and candidates[0].source in inside and candidates[0].target in inside:
            for edge in candidates:
                if edge.confidence < MIN_CANDIDATE_CONFIDENCE:
                    continue
                G = T[edge.target] @ edge.T_target_source @ inverse(T[edge.source])
                proposed += [G, inverse(G), G @ G, inverse(G @ G)]
    if not proposed:
        return np.zeros((0, 4, 4))
    motions = np.stack(proposed)
    places = motions @ T[moved]
    radius = float(radii[moved])
    distinct: list[int] = []
    votes: list[int] = []
    away = displacements(places, T[moved][None], radius, radius) > _LEAST
    for k in np.flatnonzero(away).tolist():
        near = displacements(places[distinct], places[k][None], radius, radius) < _LEAST if distinct else ()
        same = np.flatnonzero(near)
        if len(same):
            votes[int(same[0])] += 1
        else:
            distinct.append(k)
            votes.append(1)
    order = np.argsort(-np.array(votes), kind="stable")[:_MOTIONS]
    return motions[[distinct[k] for k in order]]


def _fits_elsewhere(
    own: Sequence[int],
    others: Sequence[int],
    moves: Floats,
    T: Floats,
    radii: Floats,
    check: Checker,
    usual: float,
) -> bool:
    """Return whether a part fits the other scans as well after one of the moves (M, 4, 4)."""
    wanted: dict[Pair, list[tuple[int, Floats]]] = {}
    for number, move in enumerate([np.eye(4), *moves]):
        moved = T.copy()
        moved[own] = move @ T[own]
        for i, j in near_pairs(others, own, moved, radii):
            wanted.setdefault((i, j), []).append((number, inverse(moved[i]) @ moved[j]))
    found = check({pair: np.stack([pose for _, pose in poses]) for pair, poses in wanted.items()})
    fit, odds = np.zeros(len(moves) + 1), np.zeros(len(moves) + 1)
    for pair, poses in wanted.items():
        for (number, _), visibility in zip(poses, found[pair], strict=True):
            fit[number] += visibility.overlap
            odds[number] += min(visibility.log_odds(usual), 0.0)
    return bool(((fit[1:] >= EQUAL_FIT * fit[0]) & (odds[1:] > odds[0] - MIN_ADVANTAGE)).any())
