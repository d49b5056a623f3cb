"""Poses and edges in formats of other programs: TUM and g2o."""

from __future__ import annotations

import numpy as np
from scipy.spatial.transform import Rotation

from wsdesc.core.geometry import Floats
from wsdesc.reconstruction.result import Reconstruction

_UPPER = np.triu_indices(6)


def tum_text(result: Reconstruction) -> str:
    """Return the poses of the first component in the TUM format, with the scan's number as the time."""
    lines = ["# number tx ty tz qx qy qz qw"]
    order = {name: number for number, name in enumerate(result.paths)}
    for name in sorted(result.components[0] if result.components else [], key=order.__getitem__):
        lines += [f"# {name}", f"{order[name]} {_numbers(result.T_world_scan[name])}"]
    return "\n".join(lines)


def g2o_text(result: Reconstruction) -> str:
    """Return poses and accepted edges in the g2o format, with the scan's number as the vertex.

    An edge between the vertices i and j is the pose of scan j in the coordinates of scan i. Its information
    is that of a small motion in the coordinates of scan j: translation, then the vector part of a quaternion,
    which is half of the rotation. The first scan of each component is fixed.
    """
    order = {name: number for number, name in enumerate(result.paths)}
    lines = [f"# {order[name]} {name}" for name in result.T_world_scan]
    lines += [f"VERTEX_SE3:QUAT {order[name]} {_numbers(T)}" for name, T in result.T_world_scan.items()]
    lines += [f"FIX {order[scans[0]]}" for scans in result.components]
    for edge in result.edges:
        if not edge.accepted or edge.T_target_source is None or edge.information is None:
            continue
        half = np.array([1, 1, 1, 2, 2, 2])
        information = (edge.information * np.outer(half, half))[_UPPER]
        ends = f"{order[edge.target]} {order[edge.source]}"
        numbers = " ".join(f"{value:.9g}" for value in information)
        lines.append(f"EDGE_SE3:QUAT {ends} {_numbers(edge.T_target_source)} {numbers}")
    return "\n".join(lines)


def _numbers(T: Floats) -> str:
    """Return translation and quaternion of a pose (4, 4) with all digits of map coordinates."""
    values = (*T[:3, 3], *Rotation.from_matrix(T[:3, :3]).as_quat())
    return " ".join(f"{value:.15g}" for value in values)
