"""Gaps between points and their partners on the CPU."""

from __future__ import annotations

import numpy as np

from wsdesc.alignment.patch_gaps.constants import SAME_DIRECTION
from wsdesc.alignment.surface.cpu import CpuSurface
from wsdesc.core.geometry import Floats, transform


def find_gaps(
    source: CpuSurface, target: CpuSurface, T_target_source: Floats, distance: float
) -> tuple[Floats, Floats, Floats]:
    """Find the partners of the source's points, and how far each point is in front of its partner.

    Args:
        source, target: The surfaces.
        T_target_source: (4, 4) pose.
        distance: Within which partners are searched.

    Returns:
        Points (M, 3) in the frame of the target, normals (M, 3) of their partners, and gaps (M,) along these.
    """
    _, partner = target.nearest(source.points, distance, T_target_source)
    near = partner < len(target.points)
    partner = partner[near]
    points = transform(source.points[near], T_target_source)
    normals = target.normals[partner]
    cosine = np.einsum("mi,mi->m", source.normals[near] @ T_target_source[:3, :3].T, normals)
    used = np.abs(cosine) > SAME_DIRECTION
    points, normals = points[used], normals[used]
    return points, normals, np.einsum("mi,mi->m", points - target.points[partner[used]], normals)
