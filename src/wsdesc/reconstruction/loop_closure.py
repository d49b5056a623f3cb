"""Find triangles of edges, and reject edges whose triangles do not close.

Three scans that overlap pairwise form a triangle. If its three poses are right, their product is the
identity; two wrong poses hardly ever cancel. In a triangle that does not close, the edge with the least
support is rejected.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np

from wsdesc.core.geometry import Floats, inverse
from wsdesc.reconstruction.disambiguation import LOOP_TOLERANCE, MIN_CONFIDENCE
from wsdesc.reconstruction.pose_graph import Edge


class Loop(NamedTuple):
    """Three edges between three scans."""

    edges: tuple[int, int, int]
    closed: bool


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

    The edge with the least support is rejected first: edges below `MIN_CONFIDENCE` before others,
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
        return confidence[k] >= MIN_CONFIDENCE, votes[k], confidence[k], k

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
