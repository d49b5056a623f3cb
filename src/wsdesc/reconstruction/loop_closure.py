"""Reject edges whose triangles do not close, and place the scans by the others.

Three scans that overlap pairwise form a triangle. If its three poses are right, their product is the
identity; two wrong poses hardly ever cancel. So an edge in a closed triangle is accepted at a lower
confidence. In a triangle that does not close, the edge with the least support is rejected.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np

from wsdesc.core.geometry import Floats, inverse
from wsdesc.reconstruction.disambiguation import LOOP_TOLERANCE, MIN_CONFIDENCE, choose_candidates
from wsdesc.reconstruction.pose_graph import OUTLIER, Edge, PoseGraph, solve

# One wrong edge that no loop checks bends the whole model.
MIN_CONFIDENCE_UNCONFIRMED = MIN_CONFIDENCE  # of an edge in no closed triangle
MIN_CONFIDENCE_CONFIRMED = 0.3  # of an edge in a closed triangle
# With repetitive structure, wrong poses close triangles, too.
MIN_CONFIDENCE_AMBIGUOUS = 0.6  # of an ambiguous edge in a closed triangle
MIN_MARGIN = math.log(4)  # log odds of a scan's position against its second best


class Loop(NamedTuple):
    """Three edges between three scans."""

    edges: tuple[int, int, int]
    closed: bool


class PlacedEdge(NamedTuple):
    """The state of a pair in the pose graph."""

    edge: Edge | None  # the chosen candidate; None if the pair has none
    rejection: str | None  # why the edge was rejected; None if it was accepted
    deviation: float | None  # from the final poses, in standard deviations; None if it was rejected


class Placement(NamedTuple):
    """Poses of all scans, and the state of each pair."""

    graph: PoseGraph
    edges: list[PlacedEdge]  # (P,)


def place_scans(pairs: Sequence[Sequence[Edge]], radii: Floats) -> Placement:
    """Place scans by the edges that agree with each other.

    Loops of more than three edges are checked by their deviations from the pose graph, as errors add up.

    Args:
        pairs: P pairs, each with candidate edges between the same two scans, best first.
        radii: (N,) root mean square distance of each scan's points from its centre, in model metres.
    """
    chosen, margin = choose_candidates(pairs, radii)
    numbers = [p for p, candidates in enumerate(pairs) if candidates]
    edges = [pairs[p][chosen[p]] for p in numbers]
    rejections = check_edges(edges, radii)
    for k, edge in enumerate(edges):
        least = min(margin[edge.source], margin[edge.target])
        if rejections[k] is None and edge.confidence < MIN_CONFIDENCE_UNCONFIRMED and least < MIN_MARGIN:
            rejections[k] = "one of the scans fits nearly as well at another position"
    while True:
        accepted = [k for k, rejection in enumerate(rejections) if rejection is None]
        graph = solve(len(radii), [edges[k] for k in accepted])
        deviations = dict(zip(accepted, graph.deviations.tolist(), strict=True))
        outliers = {k: deviation for k, deviation in deviations.items() if deviation > OUTLIER}
        if not outliers:
            break
        for k, deviation in outliers.items():
            rejections[k] = f"{deviation:.0f} standard deviations from the pose that the other edges give"
    placed = {p: PlacedEdge(edges[k], rejections[k], deviations.get(k)) for k, p in enumerate(numbers)}
    no_candidate = PlacedEdge(None, "no alignment found", None)
    return Placement(graph, [placed.get(p, no_candidate) for p in range(len(pairs))])


def check_edges(edges: Sequence[Edge], radii: Floats) -> list[str | None]:
    """Check edges by confidence and triangles; return why each is rejected, or None.

    Args:
        edges: Edges, at most one per pair of scans.
        radii: (N,) root mean square distance of each scan's points from its centre, in model metres.
    """
    required = [MIN_CONFIDENCE_AMBIGUOUS if e.ambiguous else MIN_CONFIDENCE_CONFIRMED for e in edges]
    rejections: list[str | None] = [
        None if edge.confidence >= least else f"confidence below {least}"
        for edge, least in zip(edges, required, strict=True)
    ]
    loops = find_loops([k for k, rejection in enumerate(rejections) if rejection is None], edges, radii)
    contradicting, confirmed = reject_contradictions(loops, [edge.confidence for edge in edges])
    for k, count in contradicting.items():
        rejections[k] = f"contradicts other edges in {count} of its triangles"
    for k, edge in enumerate(edges):
        if rejections[k] is None and edge.confidence < MIN_CONFIDENCE_UNCONFIRMED and k not in confirmed:
            rejections[k] = f"confidence below {MIN_CONFIDENCE_UNCONFIRMED}, and no loop confirms it"
    return rejections


def find_loops(selected: Sequence[int], edges: Sequence[Edge], radii: Floats) -> list[Loop]:
    """Find all triangles of the selected edges. Of two edges between the same scans the later one counts."""
    between: dict[tuple[int, int], int] = {}
    neighbours: dict[int, set[int]] = {}
    for k in selected:
        a, b = sorted((edges[k].source, edges[k].target))
        between[a, b] = k
        neighbours.setdefault(a, set()).add(b)
    loops = []
    for a in sorted(neighbours):
        for b, c in combinations(sorted(neighbours[a]), 2):
            if (b, c) in between:
                triangle = (between[a, b], between[b, c], between[a, c])
                error = loop_error((a, b, c), triangle, edges, radii)
                loops.append(Loop(triangle, error <= LOOP_TOLERANCE))
    return loops


def loop_error(
    scans: tuple[int, int, int], loop: tuple[int, int, int], edges: Sequence[Edge], radii: Floats
) -> float:
    """Measure how far the product of the three poses of a triangle moves points; the largest of all scans."""
    a, b, c = scans
    T_a_b, T_b_c, T_a_c = (
        _pose_between(edges[k], *ends) for k, ends in zip(loop, ((a, b), (b, c), (a, c)), strict=True)
    )
    T_c_a = inverse(T_a_c)
    products = {a: T_a_b @ T_b_c @ T_c_a, b: T_b_c @ T_c_a @ T_a_b, c: T_c_a @ T_a_b @ T_b_c}
    return max(displacement(T, float(radii[scan])) for scan, T in products.items())


def displacement(T: Floats, radius: float) -> float:
    """Bound the distance that a transformation moves points within `radius` of the origin."""
    cosine = np.clip((np.trace(T[:3, :3]) - 1) / 2, -1.0, 1.0)
    return float(np.linalg.norm(T[:3, 3]) + 2 * radius * np.sqrt((1 - cosine) / 2))


def _pose_between(edge: Edge, a: int, b: int) -> Floats:
    """Return T_a_b of an edge between a and b, in either direction."""
    return edge.T_target_source if (edge.target, edge.source) == (a, b) else inverse(edge.T_target_source)


def reject_contradictions(
    loops: Sequence[Loop], confidence: Sequence[float]
) -> tuple[dict[int, int], set[int]]:
    """Reject edges one by one until all remaining loops are closed.

    The edge with the least support is rejected first: edges below `MIN_CONFIDENCE_UNCONFIRMED` before others,
    then by the number of closed minus open loops, then by confidence. With repetitive structure many
    uncertain edges agree with each other, so they must not outvote confident ones.

    Returns:
        Rejected edges with the number of their open loops at that moment, and the edges in closed loops.
    """
    loops_of: dict[int, list[int]] = {}
    votes: dict[int, int] = {}  # closed minus open loops
    open_loops: dict[int, int] = {}
    for number, loop in enumerate(loops):
        for k in loop.edges:
            loops_of.setdefault(k, []).append(number)
            votes[k] = votes.get(k, 0) + (1 if loop.closed else -1)
            open_loops[k] = open_loops.get(k, 0) + (not loop.closed)

    def priority(k: int) -> tuple[bool, int, float, int]:
        return confidence[k] >= MIN_CONFIDENCE_UNCONFIRMED, votes[k], confidence[k], k

    queue = [priority(k) for k in loops_of]
    heapq.heapify(queue)
    remains = [True] * len(loops)
    rejected: dict[int, int] = {}
    while queue:
        _, vote, _, worst = heapq.heappop(queue)
        if vote != votes[worst] or not open_loops[worst]:
            continue  # an outdated entry, or an edge without open loops
        rejected[worst] = open_loops[worst]
        for number in loops_of[worst]:
            if not remains[number]:
                continue
            remains[number] = False
            for k in loops[number].edges:
                votes[k] -= 1 if loops[number].closed else -1
                open_loops[k] -= not loops[number].closed
                heapq.heappush(queue, priority(k))
    return rejected, {k for loop, left in zip(loops, remains, strict=True) if left for k in loop.edges}
