"""Place scans by the edges that agree with each other and with their loops."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from wsdesc.core.geometry import Floats, inverse
from wsdesc.reconstruction.disambiguation import (
    DRIFT,
    LOOP_TOLERANCE,
    MIN_CANDIDATE_CONFIDENCE,
    MIN_CONFIDENCE,
    CandidatePoses,
    displacements,
    first_layout,
)
from wsdesc.reconstruction.joint import REPEATS, Layout, find_layout
from wsdesc.reconstruction.pose_graph import OUTLIER, Edge, PoseGraph
from wsdesc.reconstruction.rigid_frames import RigidFrame, RigidFrames

_CONTRADICTS = "contradicts the pose that the other edges give"
_UNCONFIRMED = f"confidence below {MIN_CONFIDENCE}, and too few other pairs confirm it"


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
    poses = CandidatePoses.of(candidates)
    layout = find_layout(poses, radii, first_layout(candidates, poses, radii), kept)
    numbers = [p for p, edges in enumerate(candidates) if edges]
    certain = {k for k, p in enumerate(numbers) if p in kept}
    states = [_state(candidates[p], layout, radii) for p in numbers]
    edges, rejections = [state.edge for state in states], [state.rejection for state in states]
    contradictions = {k for k, rejection in enumerate(rejections) if rejection == _CONTRADICTS}
    edges = [pairs[p][kept[p].rank] if p in kept else edge for p, edge in zip(numbers, edges, strict=True)]
    contradicting: dict[int, str] = {}
    while True:
        accepted = [k for k, rejection in enumerate(rejections) if rejection is None]
        graph = rigid.solve([edges[k] for k in accepted])
        deviations = dict(zip(accepted, graph.deviations.tolist(), strict=True))
        outliers = {k: d for k, d in deviations.items() if d > OUTLIER and k not in certain}
        for k, deviation in outliers.items():
            rejections[k] = describe_deviation(deviation)
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


class _State(NamedTuple):
    edge: Edge
    rejection: str | None


def _state(candidates: Sequence[Edge], layout: Layout, radii: Floats) -> _State:
    """Choose the candidate of a pair that agrees with the layout; reject it if the layout is in doubt."""
    agreeing = agreeing_candidate(candidates, layout.T, radii)
    edge, agrees = agreeing or candidates[0], agreeing is not None
    connected = layout.group[edge.source] == layout.group[edge.target]
    if agrees and (connected or edge.ends not in layout.doubts):
        return _State(edge, None if connected else _UNCONFIRMED)
    if agrees:
        return _State(edge, layout.doubts[edge.ends])
    return _State(edge, _CONTRADICTS if edge.confidence >= MIN_CONFIDENCE or connected else _UNCONFIRMED)


def agreeing_candidate(candidates: Sequence[Edge], T_world_scan: Floats, radii: Floats) -> Edge | None:
    """Return the candidate of a pair that is nearest to the poses of its scans; None if none agrees."""
    likely = [edge for edge in candidates if edge.confidence >= MIN_CANDIDATE_CONFIDENCE]
    if not likely:
        return None
    a, b = likely[0].target, likely[0].source
    poses = np.stack([edge.T_target_source for edge in likely])
    error = displacements((inverse(T_world_scan[a]) @ T_world_scan[b])[None], poses, radii[a], radii[b])
    best = int(error.argmin())
    return likely[best] if error[best] <= DRIFT * LOOP_TOLERANCE else None


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
        if edge.confidence >= MIN_CONFIDENCE:
            fits = rejections[k] in (None, REPEATS)
            counter = accepted if fits else rejected if k in contradictions else None
            if counter is not None:
                counter.update({edge.source, edge.target} & set(scans))
    doubtful = [(rejected[s] - accepted[s], -s) for s in scans if 0 < accepted[s] <= rejected[s]]
    if not doubtful:
        return None
    scan = -max(doubtful)[1]
    total = accepted[scan] + rejected[scan]
    text = f"contradicts the other scans: {rejected[scan]} of its {total} confident edges do not fit"
    return _ContradictingScan(scan, f"{text} the remaining ones")


def accepted_edges(states: Sequence[PlacedEdge]) -> dict[int, Edge]:
    """Return the accepted edges, by the number of their pair."""
    return {p: state.edge for p, state in enumerate(states) if state.edge and state.rejection is None}


def describe_deviation(deviation: float) -> str:
    """Say how far an edge is from the poses, as the reason of its rejection."""
    return f"{deviation:.0f} standard deviations from the pose that the other edges give"
