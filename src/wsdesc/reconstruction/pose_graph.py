"""Pose graph: poses of all scans that satisfy the edges best, by robust least squares.

Each edge measures the relative pose of two scans. Its weight in each direction is how well the overlap
determines that direction.

All lengths are in model metres. The frame of a scan has its origin at the scan's centre.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from wsdesc.alignment.information import Information
from wsdesc.cloud.units import INDOOR_RESOLUTION
from wsdesc.core.geometry import Floats, inverse
from wsdesc.reconstruction.least_squares import Factor, Problem

# Scans are bent by some millimetres, which more points do not average out.
INDEPENDENT = 100  # points of an overlap whose errors count as independent
MIN_DEVIATION = 0.1 * INDOOR_RESOLUTION  # metres: least standard deviation of an edge in any direction
MIN_EIGENVALUE = 1e-3  # of the information: smaller ones count as undetermined directions
OUTLIER = 10.0  # standard deviations at which an edge has lost three quarters of its weight
MAX_STEPS = 60  # of the last minimization


Pair = tuple[int, int]  # indices of two scans, ascending


class Edge(NamedTuple):
    """A registered pair: the pose of one scan in the frame of another."""

    source: int
    target: int
    T_target_source: Floats  # (4, 4)
    confidence: float
    information: Information  # in the target's frame
    rmse: float  # point to plane, in the overlap
    ambiguous: bool = False  # another candidate of the pair is also plausible
    patch_gap: float | None = None  # between patches of both scans; None if unknown

    @property
    def ends(self) -> Pair:
        """Both scans."""
        return min(self.source, self.target), max(self.source, self.target)


class PoseGraph(NamedTuple):
    """Poses of all scans."""

    T_world_scan: Floats  # (N, 4, 4); the first scan of each component has the identity
    components: list[list[int]]  # scans that edges connect, largest first, ascending inside
    deviations: Floats  # (E,) distance of each edge from the poses, in standard deviations


def solve(count: int, edges: Sequence[Edge]) -> PoseGraph:
    """Find the poses of `count` scans that satisfy the edges best."""
    components = connected_scans(count, edges)
    start = poses_along_tree(count, edges, [scans[0] for scans in components])
    if not edges:
        return PoseGraph(start, components, np.zeros(0))
    fixed = np.array([scans[0] for scans in components])
    problem = Problem([edge_factor(edge) for edge in edges], fixed, count)
    T = problem.solve(start, MAX_STEPS)
    return PoseGraph(T, components, np.sqrt(problem.squared_errors(T)))


def edge_factor(edge: Edge) -> Factor:
    """Return the factor of an edge."""
    information = edge.information
    values, vectors = np.linalg.eigh(information.matrix)
    noise = max(min(edge.rmse, 4 * INDOOR_RESOLUTION), MIN_DEVIATION) ** 2 / INDEPENDENT
    variance = noise / np.maximum(values, MIN_EIGENVALUE) + MIN_DEVIATION**2
    root = np.asarray((vectors / np.sqrt(variance)).T)
    extent = max(information.extent, MIN_DEVIATION)
    return Factor(edge.source, edge.target, edge.T_target_source, information.centre, extent, root, OUTLIER)


def deviations(count: int, edges: Sequence[Edge], T_world_scan: Floats) -> Floats:
    """Return the distance (E,) of each edge from given poses (N, 4, 4), in standard deviations."""
    if not edges:
        return np.zeros(0)
    problem = Problem([edge_factor(edge) for edge in edges], fixed=np.arange(count), count=count)
    return np.asarray(np.sqrt(problem.squared_errors(T_world_scan)))


def connected_scans(count: int, edges: Sequence[Edge]) -> list[list[int]]:
    """Find the connected components of scans: the largest first, then by the first scan."""
    ends = np.array([(e.source, e.target) for e in edges], dtype=np.intp).reshape(-1, 2)
    graph = coo_array((np.ones(len(ends)), (ends[:, 0], ends[:, 1])), shape=(count, count))
    number, label = connected_components(graph, directed=False)
    components = [np.flatnonzero(label == component).tolist() for component in range(number)]
    return sorted(components, key=lambda scans: (-len(scans), scans[0]))


def group_numbers(groups: Sequence[Sequence[int]]) -> dict[int, int]:
    """Return the number of the group of each scan."""
    return {scan: number for number, scans in enumerate(groups) for scan in scans}


def poses_along_tree(count: int, edges: Sequence[Edge], roots: list[int]) -> Floats:
    """Chain poses (N, 4, 4) from the roots along the spanning tree of the most confident edges."""
    edges_of: list[list[int]] = [[] for _ in range(count)]
    for k, edge in enumerate(edges):
        edges_of[edge.source].append(k)
        edges_of[edge.target].append(k)
    T_world_scan = np.tile(np.eye(4), (count, 1, 1))
    for root in roots:
        reached = {root}
        queue = [(-edges[k].confidence, k) for k in edges_of[root]]
        heapq.heapify(queue)
        while queue:
            edge = edges[heapq.heappop(queue)[1]]
            new = [scan for scan in (edge.source, edge.target) if scan not in reached]
            if not new:
                continue
            forward = new[0] == edge.source
            T_old_new = edge.T_target_source if forward else inverse(edge.T_target_source)
            T_world_scan[new[0]] = T_world_scan[edge.target if forward else edge.source] @ T_old_new
            reached.add(new[0])
            for k in edges_of[new[0]]:
                heapq.heappush(queue, (-edges[k].confidence, k))
    return T_world_scan
