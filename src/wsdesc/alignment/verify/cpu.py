"""Verification on the CPU: one pose per thread."""

from __future__ import annotations

import numpy as np

from wsdesc.alignment.surface.cpu import Contacts, CpuSurface, find_contacts
from wsdesc.alignment.verify.score import (
    ALIGNED,
    CROSSED,
    FACING,
    FLAT,
    HOVER_DISTANCE,
    PoseScore,
    SideSums,
    combine_sides,
)
from wsdesc.core.geometry import Floats, inverse
from wsdesc.core.kernels import run_each


def verify(source: CpuSurface, target: CpuSurface, poses: Floats, distance: float) -> list[PoseScore]:
    """Measure poses T_target_source (H, 4, 4); see `wsdesc.alignment.verify.verify`."""
    return run_each(lambda T: verify_pose(source, target, T, distance), list(poses))


def verify_pose(
    source: CpuSurface, target: CpuSurface, T_target_source: Floats, distance: float
) -> PoseScore:
    """Measure one pose (4, 4)."""
    T, farthest = T_target_source, HOVER_DISTANCE * distance
    source_side = _sum_side(find_contacts(source, target, T, farthest), source, target, distance)
    target_side = _sum_side(find_contacts(target, source, inverse(T), farthest), target, source, distance)
    return combine_sides(source_side, target_side, distance)


def _sum_side(c: Contacts, sampled: CpuSurface, searched: CpuSurface, distance: float) -> SideSums:
    overlapping = c.distance <= distance
    curvature, partner_curvature = sampled.curvature[sampled.sample], searched.curvature[c.partner]
    has_normals = (
        overlapping & sampled.normals[sampled.sample].any(axis=1) & searched.normals[c.partner].any(axis=1)
    )
    flat = has_normals & (np.maximum(curvature, partner_curvature) < FLAT)
    hovering = np.isfinite(c.distance) & ~overlapping & (c.plane_distance > FACING * c.distance)
    low, high = np.minimum(curvature, partner_curvature), np.maximum(curvature, partner_curvature)
    curved = overlapping & (high >= FLAT)
    level = sampled.direction_weights * (flat & (c.cosine > ALIGNED))
    level_offset = level * np.sqrt(np.where(overlapping, c.plane_distance, 0.0))
    return SideSums(
        sampled=len(overlapping),
        overlapping=overlapping.sum(),
        weighted=sampled.direction_weights[overlapping].sum(),
        aligned=(has_normals & (c.cosine > ALIGNED)).sum(),
        flat=flat.sum(),
        crossed=(flat & (c.cosine < CROSSED)).sum(),
        level=level.sum(),
        level_offset=np.where(level > 0, level_offset, 0.0).sum(),
        hovering=hovering.sum(),
        curvature_min=low[has_normals].sum(),
        curvature_max=high[has_normals].sum(),
        detail_min=low[curved].sum(),
        detail_max=high[curved].sum() + (hovering & (curvature >= FLAT)).sum(),
        plane_squared=np.square(c.plane_distance[overlapping]).sum(),
        distance_squared=np.square(c.distance[overlapping]).sum(),
    )
