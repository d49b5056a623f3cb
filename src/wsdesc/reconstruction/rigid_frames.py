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
from wsdesc.reconstruction.pose_graph import Edge, PoseGraph, connected_scans, deviations, solve


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
        self._solved: dict[tuple[int, ...], Floats] = {}  # poses of the nodes, by edges of a component

    def inside(self, edge: Edge) -> bool:
        """Return whether an edge is inside a frame."""
        return self.frame[edge.source] >= 0 and bool(self.frame[edge.source] == self.frame[edge.target])

    def fixed(self, edge: Edge) -> Edge:
        """Return an edge inside a frame with the fixed pose, which is certain."""
        T = inverse(self.T_node_scan[edge.target]) @ self.T_node_scan[edge.source]
        return edge._replace(T_target_source=T, confidence=1.0, ambiguous=False)

    def solve(self, edges: Sequence[Edge]) -> PoseGraph:
        """Find the poses of all scans that satisfy the edges best, with frames as rigid bodies.

        Components are solved one by one. Those with the same edges as in an earlier call are not solved
        again.
        """
        outer = [edge for edge in edges if not self.inside(edge)]
        between = [self._between_nodes(edge) for edge in outer]
        T_world_node = np.tile(np.eye(4), (self.nodes, 1, 1))
        nodes_of = connected_scans(self.nodes, between)
        component = np.empty(self.nodes, dtype=np.intp)
        for number, nodes in enumerate(nodes_of):
            component[nodes] = number
        own: list[list[int]] = [[] for _ in nodes_of]
        for k, edge in enumerate(between):
            own[component[edge.source]].append(k)
        solved = {}
        for nodes, numbers in zip(nodes_of, own, strict=True):
            if len(nodes) > 1:
                key = tuple(id(outer[k]) for k in numbers)
                poses = self._solved.get(key)
                solved[key] = (
                    _solve_component(nodes, [between[k] for k in numbers]) if poses is None else poses
                )
                T_world_node[nodes] = solved[key]
        self._solved = solved

        scans_of: list[list[int]] = [[] for _ in range(self.nodes)]
        for scan, node in enumerate(self.node.tolist()):
            scans_of[node].append(scan)
        components = [sorted(s for node in nodes for s in scans_of[node]) for nodes in nodes_of]
        components.sort(key=lambda scans: (-len(scans), scans[0]))
        T_world_scan = T_world_node[self.node] @ self.T_node_scan
        if self.frames:
            for scans in components:  # the first scan has the identity
                T_world_scan[scans] = inverse(T_world_scan[scans[0]]) @ T_world_scan[scans]
        return PoseGraph(T_world_scan, components, deviations(len(self.node), edges, T_world_scan))

    def _between_nodes(self, edge: Edge) -> Edge:
        """Express an edge between two scans as one between their nodes."""
        if not self.frames:
            return edge
        T_source, T_target = self.T_node_scan[edge.source], self.T_node_scan[edge.target]
        return edge._replace(
            source=int(self.node[edge.source]),
            target=int(self.node[edge.target]),
            T_target_source=T_target @ edge.T_target_source @ inverse(T_source),
            information=edge.information.seen_from_source(inverse(T_target)),
        )


def _solve_component(nodes: Sequence[int], edges: Sequence[Edge]) -> Floats:
    """Find the poses (n, 4, 4) of connected nodes, in the frame of the first."""
    number = {node: k for k, node in enumerate(nodes)}
    renumbered = [e._replace(source=number[e.source], target=number[e.target]) for e in edges]
    return solve(len(nodes), renumbered).T_world_scan
