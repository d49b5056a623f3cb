"""Which relative poses to believe, judged by one another: round a loop of right ones, everything comes home.

Three scans that overlap pairwise make a triangle. If its three poses are right, going round it moves nothing;
a wrong one moves the scan somewhere else, and hardly ever do two wrong ones cancel. So an edge in a triangle
that closes is believed sooner than its own confidence would allow, and where a triangle does not
close, the edge goes for which least speaks.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np

from wsdesc.core.geometry import Floats, inverse
from wsdesc.reconstruction.disambiguation import LOOP_TOLERANCE, MIN_CONFIDENCE, choose
from wsdesc.reconstruction.pose_graph import OUTLIER, Edge, PoseGraph, solve

MIN_CONFIDENCE_UNCONFIRMED = MIN_CONFIDENCE  # of an edge that no loop confirms
CONFIRMED = 0.3  # of one that a triangle confirms,
CONFIRMED_ALIKE = 0.6  # and where places repeat: a bay further, wrong poses close their triangles as well
MARGIN = math.log(4)  # log odds of a scan's place against its second best


class Loop(NamedTuple):
    """Three edges round a triangle of scans."""

    edges: tuple[int, int, int]
    closed: bool


def judge_edges(edges: Sequence[Edge], radii: Floats) -> list[str | None]:
    """For each edge why it is not believed; None where it is.

    `radii` (N,): how far the points of a scan typically are from its middle, in metres of the model.
    """
    least = [CONFIRMED_ALIKE if edge.alike else CONFIRMED for edge in edges]
    verdicts: list[str | None] = [
        None if edge.confidence >= enough else f"confidence below {enough}"
        for edge, enough in zip(edges, least, strict=True)
    ]
    loops = find_loops([k for k, verdict in enumerate(verdicts) if verdict is None], edges, radii)
    against, confirmed = reject_contradictions(loops, [edge.confidence for edge in edges])
    for k, count in against.items():
        verdicts[k] = f"contradicts other edges in {count} of the triangles it is part of"
    for k, edge in enumerate(edges):
        if verdicts[k] is None and edge.confidence < MIN_CONFIDENCE_UNCONFIRMED and k not in confirmed:
            verdicts[k] = f"confidence below {MIN_CONFIDENCE_UNCONFIRMED}, and no loop confirms it"
    return verdicts


class Placed(NamedTuple):
    """Where the scans are, and for each pair what became of it."""

    graph: PoseGraph
    edges: list[Edge | None]  # the pose of each pair that was considered; None where it has none
    verdicts: list[str | None]  # why it is not believed; None where it is
    deviations: list[float | None]  # from the poses of all, in standard deviations; None where not believed


def place(pairs: Sequence[Sequence[Edge]], radii: Floats) -> Placed:
    """Poses from those edges that agree with each other, of the poses of each pair the one that does.

    A pair is a list of poses of the same two scans, best first. Loops of more than three edges are judged
    here: their errors add up, so only the poses of all can tell.
    """
    picked, margin = choose(pairs, radii)
    numbers = [p for p, poses in enumerate(pairs) if poses]
    edges = [pairs[p][picked[p]] for p in numbers]
    verdicts = judge_edges(edges, radii)
    for k, edge in enumerate(edges):
        doubt = min(margin[edge.source], margin[edge.target])
        if verdicts[k] is None and edge.confidence < MIN_CONFIDENCE_UNCONFIRMED and doubt < MARGIN:
            verdicts[k] = "one of the scans fits nearly as well elsewhere"
    while True:
        kept = [k for k, verdict in enumerate(verdicts) if verdict is None]
        graph = solve(len(radii), [edges[k] for k in kept])
        far = {k: d for k, d in zip(kept, graph.deviations.tolist(), strict=True) if d > OUTLIER}
        if not far:
            break
        for k, deviation in far.items():
            verdicts[k] = f"{deviation:.0f} standard deviations from where the other edges put it"
    deviations = dict(zip(kept, graph.deviations.tolist(), strict=True))
    told: dict[int, tuple[Edge, str | None, float | None]] = {
        p: (edges[k], verdicts[k], deviations.get(k)) for k, p in enumerate(numbers)
    }
    nothing = (None, "no motion brings the scans together", None)
    columns = zip(*(told.get(p, nothing) for p in range(len(pairs))), strict=True)
    return Placed(graph, *(list(column) for column in columns) if pairs else ([], [], []))


def find_loops(chosen: Sequence[int], edges: Sequence[Edge], radii: Floats) -> list[Loop]:
    """All triangles of the chosen edges. Of two edges between the same scans the later one counts."""
    between: dict[tuple[int, int], int] = {}
    neighbours: dict[int, set[int]] = {}
    for k in chosen:
        a, b = sorted((edges[k].source, edges[k].target))
        between[a, b] = k
        neighbours.setdefault(a, set()).add(b)
    found = []
    for a in sorted(neighbours):
        for b, c in combinations(sorted(neighbours[a]), 2):
            if (b, c) in between:
                loop = (between[a, b], between[b, c], between[a, c])
                found.append(Loop(loop, loop_error((a, b, c), loop, edges, radii) <= LOOP_TOLERANCE))
    return found


def loop_error(
    scans: tuple[int, int, int], loop: tuple[int, int, int], edges: Sequence[Edge], radii: Floats
) -> float:
    """How far a scan's points are, typically, from where they began, after going round; the worst scan's."""
    a, b, c = scans
    T_a_b, T_b_c, T_a_c = (
        _between(edges[k], *ends) for k, ends in zip(loop, ((a, b), (b, c), (a, c)), strict=True)
    )
    T_c_a = inverse(T_a_c)
    rounds = {a: T_a_b @ T_b_c @ T_c_a, b: T_b_c @ T_c_a @ T_a_b, c: T_c_a @ T_a_b @ T_b_c}
    return max(displacement(T, float(radii[scan])) for scan, T in rounds.items())


def displacement(T: Floats, radius: float) -> float:
    """How far a motion moves points that are `radius` from the origin, at most."""
    cosine = np.clip((np.trace(T[:3, :3]) - 1) / 2, -1.0, 1.0)
    return float(np.linalg.norm(T[:3, 3]) + 2 * radius * np.sqrt((1 - cosine) / 2))


def _between(edge: Edge, a: int, b: int) -> Floats:
    """T_a_b of an edge between a and b, whichever its source is."""
    return edge.T_target_source if (edge.target, edge.source) == (a, b) else inverse(edge.T_target_source)


def reject_contradictions(
    loops: Sequence[Loop], confidence: Sequence[float]
) -> tuple[dict[int, int], set[int]]:
    """Edges to give up until no loop is open, with their open loops then; and those in loops that are closed.

    Each time the edge goes for which least speaks: the fewest closed loops less open ones, then confidence.
    Doubtful ones go before sure ones: where places repeat they agree with each other, and are many.
    """
    at: dict[int, list[int]] = {}
    votes: dict[int, int] = {}
    open_: dict[int, int] = {}
    for number, loop in enumerate(loops):
        for k in loop.edges:
            at.setdefault(k, []).append(number)
            votes[k] = votes.get(k, 0) + (1 if loop.closed else -1)
            open_[k] = open_.get(k, 0) + (not loop.closed)
    waiting = [(confidence[k] >= MIN_CONFIDENCE_UNCONFIRMED, votes[k], confidence[k], k) for k in at]
    heapq.heapify(waiting)
    standing = [True] * len(loops)
    against: dict[int, int] = {}
    while waiting:
        _, vote, _, worst = heapq.heappop(waiting)
        if vote != votes[worst] or not open_[worst]:
            continue  # what was said of it is out of date, or nobody accuses it
        against[worst] = open_[worst]
        for number in at[worst]:
            if not standing[number]:
                continue
            standing[number] = False
            for k in loops[number].edges:
                votes[k] -= 1 if loops[number].closed else -1
                open_[k] -= not loops[number].closed
                heapq.heappush(
                    waiting, (confidence[k] >= MIN_CONFIDENCE_UNCONFIRMED, votes[k], confidence[k], k)
                )
    return against, {k for loop, stands in zip(loops, standing, strict=True) if stands for k in loop.edges}
