"""Check placed scans by free space, by how the place repeats, by their candidates and by their gaps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from wsdesc.core.geometry import Floats, inverse
from wsdesc.reconstruction.challenge import challenge, pairs_inside
from wsdesc.reconstruction.disambiguation import DRIFT, LOOP_TOLERANCE, MIN_CONFIDENCE, displacements
from wsdesc.reconstruction.edge_result import MAY_REPEAT
from wsdesc.reconstruction.gaps import separate_by_gaps
from wsdesc.reconstruction.joining import join_groups
from wsdesc.reconstruction.layout import Checker, edges_in_view, separate, usual_violation
from wsdesc.reconstruction.placement import (
    PlacedEdge,
    Placement,
    accepted_edges,
    agreeing_candidate,
    describe_deviation,
)
from wsdesc.reconstruction.pose_graph import OUTLIER, Edge, connected_scans, group_numbers, solve

# Of the candidates of a group without known free space. Right groups of synthetic floors have up to 0.23,
# wrong ones 0.37 to 0.41.
MAX_DISAGREEMENT = 0.3
# Least confidence of the best edge between two groups of at least so many scans. In right groups of synthetic
# rooms and indoor training scans, these best edges have 0.947 and more; between two similar rooms, 0.908.
_MIN_BETWEEN_GROUPS, _GROUP = 0.93, 3
_ROUNDS = 5  # of separating groups, at most
_LARGE_GAPS = f"{MAY_REPEAT}: other scans fit its scans more tightly"
_WEAK = (
    f"no edge with a confidence of {MIN_CONFIDENCE} ({_MIN_BETWEEN_GROUPS} between two groups), or verified "
    "by free space, connects its scans"
)


def verify_layout(
    placement: Placement,
    pairs: Sequence[Sequence[Edge]],
    radii: Floats,
    check: Checker,
    *,
    distinct: bool = False,
) -> Placement:
    """Check placed scans by free space: separate groups that it contradicts, join groups that it confirms.

    Then reject edges of repetitive structure, unless the place is known to have no equal parts.

    Args:
        placement: Placed scans.
        pairs: P pairs with their candidate edges, as in `place_scans`.
        radii: (N,) of the scans, as in `place_scans`.
        check: Checks relative poses by free space.
        distinct: No parts of the place are equal.
    """
    placed = _separated(placement, radii, check)
    usual = usual_violation(list(accepted_edges(placed.edges).values()), check)
    graph = placed.graph
    groups, T = join_groups(pairs, graph.components, graph.T_world_scan, radii, check, usual)
    if len(groups) < len(placed.graph.components):
        placed = _separated(_joined(placed, pairs, radii, groups, T), radii, check)
    if distinct:
        return placed
    placed = _without_doubtful(_challenged(placed, pairs, radii, check), pairs, radii, check)
    return _without_weak_links(_without_large_gaps(placed, len(radii)), len(radii), check)


def _challenged(
    placement: Placement, pairs: Sequence[Sequence[Edge]], radii: Floats, check: Checker
) -> Placement:
    """Reject edges between parts that fit as well at another position."""
    graph, accepted = placement.graph, accepted_edges(placement.edges)
    rejected = challenge(pairs, accepted, graph.components, graph.T_world_scan, radii, check)
    return _rejected(placement, rejected, len(radii))


def _without_doubtful(
    placement: Placement, pairs: Sequence[Sequence[Edge]], radii: Floats, check: Checker
) -> Placement:
    """Reject the edges of groups whose pairs disagree too much, unless free space has verified the group.

    In repetitive structure without known free space, confidences are too high and wrong edges confirm each
    other. But then many candidates of the pairs of a group do not agree with its poses.
    """
    T, accepted = placement.graph.T_world_scan, accepted_edges(placement.edges)
    visible = edges_in_view(list(accepted.values()), check)
    seen = [edge for edge, in_view in zip(accepted.values(), visible, strict=True) if in_view]
    verified = group_numbers(connected_scans(len(radii), seen))
    rejected: dict[int, str] = {}
    components = placement.graph.components
    for scans, inside in zip(components, pairs_inside(pairs, components), strict=True):
        if len(scans) < 2 or len({verified[scan] for scan in scans}) == 1:
            continue
        share = disagreement(inside, T, radii)
        if share > MAX_DISAGREEMENT:
            reason = f"{MAY_REPEAT}: {share:.0%} of the candidates of its group disagree"
            rejected |= {p: reason for p, edge in accepted.items() if edge.source in scans}
    return _rejected(placement, rejected, len(radii))


def _without_large_gaps(placement: Placement, count: int) -> Placement:
    """Reject the edges between parts that do not fit as tightly as the scans inside them."""
    accepted = accepted_edges(placement.edges)
    groups = separate_by_gaps(list(accepted.values()), count)
    return _rejected(placement, dict.fromkeys(_between(groups, accepted), _LARGE_GAPS), count)


def _without_weak_links(placement: Placement, count: int, check: Checker) -> Placement:
    """Reject uncertain edges if nothing else connects their scans.

    All pairs between a scan and a group test one relative pose. Where a place is symmetric, a wrong pose
    agrees with all of them, so many uncertain edges are no better than one, unless free space verified them.
    Between two groups there are many pairs, each of which may be wrong, so their best edge must be better.
    """
    accepted = accepted_edges(placement.edges)
    in_view = dict(zip(accepted, edges_in_view(list(accepted.values()), check), strict=True))
    certain = [e for p, e in accepted.items() if in_view[p] or e.confidence >= _MIN_BETWEEN_GROUPS]
    size = {scan: len(scans) for scans in connected_scans(count, certain) for scan in scans}
    strong = [
        e
        for p, e in accepted.items()
        if in_view[p] or e.confidence >= (MIN_CONFIDENCE if _few(size, e) else _MIN_BETWEEN_GROUPS)
    ]
    weak = _between(connected_scans(count, strong), accepted)
    return _rejected(placement, dict.fromkeys(weak, _WEAK), count)


def _few(size: Mapping[int, int], edge: Edge) -> bool:
    """Return whether one of the groups that an edge connects is too small to count as a group."""
    return min(size[edge.source], size[edge.target]) < _GROUP


def _between(groups: Sequence[Sequence[int]], accepted: Mapping[int, Edge]) -> list[int]:
    """List the pairs whose accepted edge connects two groups."""
    number = group_numbers(groups)
    return [p for p, edge in accepted.items() if number[edge.source] != number[edge.target]]


def disagreement(pairs: Sequence[Sequence[Edge]], T_world_scan: Floats, radii: Floats) -> float:
    """Return the share of the candidates of pairs, weighted by confidence, that the poses contradict."""
    agreeing = total = 0.0
    for candidates in pairs:
        a, b = candidates[0].target, candidates[0].source
        T_a_b = inverse(T_world_scan[a]) @ T_world_scan[b]
        poses = np.stack([edge.T_target_source for edge in candidates])
        confidence = np.array([edge.confidence for edge in candidates])
        agrees = displacements(T_a_b[None], poses, radii[a], radii[b]) <= DRIFT * LOOP_TOLERANCE
        agreeing += float(confidence[agrees].sum())
        total += float(confidence.sum())
    return 1 - agreeing / total if total > 0 else 0.0


def _separated(placement: Placement, radii: Floats, check: Checker) -> Placement:
    """Reject edges until free space contradicts no two scans of a group."""
    for _ in range(_ROUNDS):
        accepted, graph = accepted_edges(placement.edges), placement.graph
        pairs = list(accepted)
        rejected = separate(list(accepted.values()), graph.components, graph.T_world_scan, radii, check)
        if not rejected:
            break
        reasons = {pairs[k]: reason for k, reason in rejected.items()}
        placement = _rejected(placement, reasons, len(radii))
    return placement


def _joined(
    placement: Placement,
    pairs: Sequence[Sequence[Edge]],
    radii: Floats,
    groups: Sequence[Sequence[int]],
    T: Floats,
) -> Placement:
    """Accept the candidates that agree with the poses (N, 4, 4) of joined groups."""
    group = group_numbers(groups)
    states = list(placement.edges)
    for p, candidates in enumerate(pairs):
        if not candidates or states[p].rejection is None:
            continue
        if group[candidates[0].source] != group[candidates[0].target]:
            continue
        if edge := agreeing_candidate(candidates, T, radii):
            states[p] = PlacedEdge(edge, None, None)
    return _solved(placement, states, len(radii))


def _rejected(placement: Placement, reasons: Mapping[int, str], count: int) -> Placement:
    """Reject the accepted edges of pairs, with reasons, and solve the pose graph of the others."""
    if not reasons:
        return placement
    states = list(placement.edges)
    for p, reason in reasons.items():
        states[p] = states[p]._replace(rejection=reason, deviation=None)
    return _solved(placement, states, count)


def _solved(placement: Placement, states: list[PlacedEdge], count: int) -> Placement:
    """Solve the pose graph of the accepted edges; reject those far from the poses."""
    while True:
        accepted = accepted_edges(states)
        graph = solve(count, list(accepted.values()))
        deviations = dict(zip(accepted, graph.deviations.tolist(), strict=True))
        outliers = [p for p, deviation in deviations.items() if deviation > OUTLIER]
        for p in outliers:
            states[p] = states[p]._replace(rejection=describe_deviation(deviations[p]), deviation=None)
        if not outliers:
            break
    for p, deviation in deviations.items():
        states[p] = states[p]._replace(deviation=deviation)
    return placement._replace(graph=graph, edges=states)
