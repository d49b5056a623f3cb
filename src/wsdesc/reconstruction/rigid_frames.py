"""Rigid frames: groups of scans whose relative poses stay fixed while a model grows.

The scans of a frame move as one body. In the pose graph a frame is one node, and each edge of one of its
scans becomes an edge of that node.

All lengths are in model metres.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from wsdesc.core.geometry import Floats, inverse
from wsdesc.reconstruction.pose_graph import Edge, PoseGraph, deviations, solve


class RigidFrame(NamedTuple):
    """Scans with fixed relative poses."""

    scans: list[int]
    T_frame_scan: Floats  # (n, 4, 4)


class RigidFrames:
    """Pose graph of scans and rigid frames.

    Args:
        count: Number of scans.
        frames: Disjoint frames.
    """

    def __init__(self, count: int, frames: Sequence[RigidFrame] = ()) -> None:
        self.frames = frames
        self.frame = np.full(count, -1)  # of each scan; -1: none
        self.T_node_scan = np.tile(np.eye(4), (count, 1, 1))
        for number, frame in enumerate(frames):
            self.frame[frame.scans] = number
            self.T_node_scan[frame.scans] = frame.T_frame_scan
        free = np.flatnonzero(self.frame < 0)
        self.node = self.frame.copy()  # node of each scan: frames first, then the other scans
        self.node[free] = len(frames) + np.arange(len(free))
        self.nodes = len(frames) + len(free)

    def inside(self, edge: Edge) -> bool:
        """Return whether an edge is inside a frame."""
        return self.frame[edge.source] >= 0 and bool(self.frame[edge.source] == self.frame[edge.target])

    def fixed(self, edge: Edge) -> Edge:
        """Return an edge inside a frame with the fixed pose, which is certain."""
        T = inverse(self.T_node_scan[edge.target]) @ self.T_node_scan[edge.source]
        return edge._replace(T_target_source=T, confidence=1.0, ambiguous=False)

    def solve(self, edges: Sequence[Edge]) -> PoseGraph:
        """Find the poses of all scans that satisfy the edges best, with frames as rigid bodies."""
        count = len(self.node)
        if not len(self.frames):
            return solve(count, edges)
        graph = solve(self.nodes, [self._between_nodes(e) for e in edges if not self.inside(e)])
        scans_of: list[list[int]] = [[] for _ in range(self.nodes)]
        for scan, node in enumerate(self.node.tolist()):
            scans_of[node].append(scan)
        components = [sorted(s for node in nodes for s in scans_of[node]) for nodes in graph.components]
        components.sort(key=lambda scans: (-len(scans), scans[0]))
        T_world_scan = graph.T_world_scan[self.node] @ self.T_node_scan
        for scans in components:  # the first scan has the identity
            T_world_scan[scans] = inverse(T_world_scan[scans[0]]) @ T_world_scan[scans]
        return PoseGraph(T_world_scan, components, deviations(count, edges, T_world_scan))

    def _between_nodes(self, edge: Edge) -> Edge:
        """Express an edge between two scans as one between their nodes."""
        T_source, T_target = self.T_node_scan[edge.source], self.T_node_scan[edge.target]
        return edge._replace(
            source=int(self.node[edge.source]),
            target=int(self.node[edge.target]),
            T_target_source=T_target @ edge.T_target_source @ inverse(T_source),
            information=edge.information.seen_from_source(inverse(T_target)),
        )
