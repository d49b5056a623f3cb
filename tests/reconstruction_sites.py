"""Simulated pose graphs of scans in a row, in map coordinates."""

from __future__ import annotations

import numpy as np
from scipy.spatial.transform import Rotation

from poses import random_motion
from wsdesc.alignment.information import Information
from wsdesc.core.geometry import inverse
from wsdesc.reconstruction.placement import PlacedEdge, Placement
from wsdesc.reconstruction.pose_graph import Edge, solve

UTM = np.array([448_123.0, 5_411_987.0, 312.0])  # metres


def make_site(rng, count=12, noise=0.002, cut=None, metre=1.0, level=False):
    """Simulate scans in a row of 3 m steps: true poses in the world, local frames, and noisy edges.

    Returns names, T_world_scan of the files, T_scan_local, and a placement. `cut` divides the row.
    """
    information = Information(0.3 * np.eye(6), np.zeros(3), 1.0, 0.5, 2000)
    T_world_local = np.stack([random_motion(rng, 2.0, 0.3) for _ in range(count)])  # model metres
    T_world_local[:, 0, 3] += 3.0 * np.arange(count)
    T_scan_local = []
    for k in range(count):
        T = random_motion(rng, 1.0, 2.0)
        if level:  # scans are level, with any heading
            T[:3, :3] = Rotation.from_rotvec([0, 0, k]).as_matrix() @ T_world_local[k, :3, :3]
        T_scan_local.append(T)
    pairs = [(i, i + d) for d in (1, 2) for i in range(count - d)]
    edges = []
    for i, j in pairs:
        if cut is None or (i < cut) == (j < cut):
            T = inverse(T_world_local[i]) @ T_world_local[j] @ random_motion(rng, noise, noise)
            edges.append(Edge(j, i, T, 0.95, information, 0.01))
    graph = solve(count, edges)
    placement = Placement(graph, [PlacedEdge(e, None, 0.0) for e in edges], {})
    T_world_scan = []
    for k in range(count):
        T_world = T_world_local[k].copy()
        T_world[:3, 3] *= metre
        T = T_world @ inverse(T_scan_local[k])
        T[:3, 3] += UTM
        T_world_scan.append(T)
    return [f"scan_{k:02}.laz" for k in range(count)], T_world_scan, T_scan_local, placement
