"""Reject edges whose triangles do not close, and place the scans by the others.

Three scans that overlap pairwise form a triangle. If its three poses are right, their product is the
identity; two wrong poses hardly ever cancel. So an edge in a closed triangle is accepted at a lower
confidence. In a triangle that does not close, the edge with the least support is rejected.

Ambiguous edges do not confirm each other. Where a scan fits at several positions, it is matched with the same
wrong position by all its neighbours, and these poses close triangles. So at most one edge of a triangle that
confirms its edges is ambiguous.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import combinations
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from wsdesc.core.geometry import Floats, inverse
from wsdesc.reconstruction.disambiguation import LOOP_TOLERANCE, MIN_CONFIDENCE, choose_candidates
from wsdesc.reconstruction.pose_graph import OUTLIER, Edge, PoseGraph
from wsdesc.reconstruction.rigid_frames import RigidFrame, RigidFrames

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


class KeptEdge(NamedTuple):
    """The state of a pair in an earlier model."""

    rank: int  # of the chosen candidate
    rejection: str | None  # None if the edge was accepted


class Placement(NamedTuple):
    """Poses of all scans, and the state of each pair."""

    graph: PoseGraph
    edges: list[PlacedEdge]  # (P,)
    contradicting: Mapping[int, str] = MappingProxyType({})  # new scans that contradict the others, and why


def place_scans(
    pairs: Sequence[Sequence[Edge]],
    radii: Floats,
    *,
    frames: Sequence[RigidFrame] = (),
    kept: Mapping[int, KeptEdge] = MappingProxyType({}),
    new: Collection[int] = (),
) -> Placement:
    """Place scans by the edges that agree with each other.

    Loops of more than three edges are checked by their deviations from the pose graph, as errors add up.

    Args:
        pairs: P pairs, each with candidate edges between the same two scans, best first.
        radii: (N,) root mean square distance of each scan's points from its centre, in model metres.
        frames: Scans of an earlier model whose relative poses stay fixed.
        kept: State of the pairs inside these frames, by number.
        new: Scans that are added to an earlier model. If half of the confident edges of such a scan
            contradict its pose, all its edges are rejected.
    """
    rigid = RigidFrames(len(radii), frames)
    candidates = [list(edges) for edges in pairs]
    for p, state in kept.items():
        candidates[p] = [] if state.rejection else [rigid.fixed(pairs[p][state.rank])]
    chosen, margin = choose_candidates(candidates, radii)
    numbers = [p for p, edges in enumerate(candidates) if edges]
    certain = {k for k, p in enumerate(numbers) if p in kept}
    edges = [candidates[p][chosen[p]] for p in numbers]
    rejections, contradictions = _check(edges, radii, certain)
    for k, edge in enumerate(edges):
        least = min(margin[edge.source], margin[edge.target])
        if rejections[k] is None and edge.confidence < MIN_CONFIDENCE_UNCONFIRMED and least < MIN_MARGIN:
            rejections[k] = "one of the scans fits nearly as well at another position"
    edges = [pairs[p][kept[p].rank] if p in kept else edge for p, edge in zip(numbers, edges, strict=True)]
    contradicting: dict[int, str] = {}
    while True:
        accepted = [k for k, rejection in enumerate(rejections) if rejection is None]
        graph = rigid.solve([edges[k] for k in accepted])
        deviations = dict(zip(accepted, graph.deviations.tolist(), strict=True))
        outliers = {k: d for k, d in deviations.items() if d > OUTLIER and k not in certain}
        for k, deviation in outliers.items():
            rejections[k] = f"{deviation:.0f} standard deviations from the pose that the other edges give"
            contradictions.add(k)
        if outliers:
            continue
        scan = _most_contradicting(edges, rejections, contradictions, set(new) - contradicting.keys())
        if scan is None:
            break
        contradicting[scan.number] = scan.reason
        for k, edge in enumerate(edges):
            if rejections[k] is None and scan.number in (edge.source, edge.target):
                rejections[k] = "one of the scans contradicts the others"
    placed = {p: PlacedEdge(edges[k], rejections[k], deviations.get(k)) for k, p in enumerate(numbers)}
    placed |= {p: PlacedEdge(pairs[p][s.rank], s.rejection, None)
               for p, s in kept.items() if s.rejection and pairs[p]}  # fmt: skip
    no_candidate = PlacedEdge(None, "no alignment found", None)
    return Placement(graph, [placed.get(p, no_candidate) for p in range(len(pairs))], contradicting)


class _ContradictingScan(NamedTuple):
    number: int
    reason: str


def _most_contradicting(
    edges: Sequence[Edge],
    rejections: Sequence[str | None],
    contradictions: Collection[int],
    scans: Collection[int],
) -> _ContradictingScan | None:
    """Find the scan of which the most confident edges contradict, if these are at least half of them."""
    accepted, rejected = Counter[int](), Counter[int]()
    for k, edge in enumerate(edges):
        if edge.confidence >= MIN_CONFIDENCE_UNCONFIRMED:
            counter = accepted if rejections[k] is None else rejected if k in contradictions else None
            if counter is not None:
                counter.update({edge.source, edge.target} & set(scans))
    found = [(rejected[s] - accepted[s], -s) for s in scans if 0 < accepted[s] <= rejected[s]]
    if not found:
        return None
    scan = -max(found)[1]
    total = accepted[scan] + rejected[scan]
    text = f"contradicts the other scans: {rejected[scan]} of its {total} confident edges do not fit"
    return _ContradictingScan(scan, f"{text} the remaining ones")


def check_edges(edges: Sequence[Edge], radii: Floats) -> list[str | None]:
    """Check edges by confidence and triangles; return why each is rejected, or None.

    Args:
        edges: Edges, at most one per pair of scans.
        radii: (N,) root mean square distance of each scan's points from its centre, in model metres.
    """
    return _check(edges, radii, ())[0]


def _check(
    edges: Sequence[Edge], radii: Floats, certain: Collection[int]
) -> tuple[list[str | None], set[int]]:
    """Return why each edge is rejected, or None, and the edges that contradict others.

    Edges that are `certain` are not rejected.
    """
    required = [MIN_CONFIDENCE_AMBIGUOUS if e.ambiguous else MIN_CONFIDENCE_CONFIRMED for e in edges]
    rejections: list[str | None] = [
        None if edge.confidence >= least else f"confidence below {least}"
        for edge, least in zip(edges, required, strict=True)
    ]
    loops = find_loops([k for k, rejection in enumerate(rejections) if rejection is None], edges, radii)
    contradicting, _ = reject_contradictions(loops, [edge.confidence for edge in edges], certain)
    for k, count in contradicting.items():
        rejections[k] = f"contradicts other edges in {count} of its triangles"
    closed = [loop.edges for loop in loops if loop.closed and not contradicting.keys() & set(loop.edges)]
    confirmed = {k for loop in closed if sum(edges[n].ambiguous for n in loop) <= 1 for k in loop}
    for k, edge in enumerate(edges):
        if rejections[k] is None and edge.confidence < MIN_CONFIDENCE_UNCONFIRMED and k not in confirmed:
            rejections[k] = f"confidence below {MIN_CONFIDENCE_UNCONFIRMED}, and no loop confirms it"
    return rejections, set(contradicting)


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
    loops: Sequence[Loop], confidence: Sequence[float], certain: Collection[int] = ()
) -> tuple[dict[int, int], set[int]]:
    """Reject edges one by one until all remaining loops are closed.

    The edge with the least support is rejected first: edges below `MIN_CONFIDENCE_UNCONFIRMED` before others,
    then by the number of closed minus open loops, then by confidence. With repetitive structure many
    uncertain edges agree with each other, so they must not outvote confident ones. Edges that are `certain`
    are not rejected.

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

    queue = [priority(k) for k in loops_of if k not in certain]
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
                if k not in certain:
                    heapq.heappush(queue, priority(k))
    return rejected, {k for loop, left in zip(loops, remains, strict=True) if left for k in loop.edges}
