"""Verification on a GPU: the sums of the CPU for all poses at once."""

from __future__ import annotations

import torch
from torch import Tensor

from wsdesc.alignment.surface.cuda import CudaSurface, poses_and_inverses, transform_with_normals
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
from wsdesc.core.devices import has_triton
from wsdesc.core.geometry import Floats


def verify(
    source: CudaSurface, target: CudaSurface, poses: Floats, distance: float, *, coarse: bool = False
) -> list[PoseScore]:
    """Measure poses T_target_source (H, 4, 4); see `wsdesc.alignment.verify.verify`."""
    if len(poses) == 0:
        return []
    rows = sum_sides(source, target, poses, distance, coarse).tolist()
    return [combine_sides(SideSums(*a), SideSums(*b), distance) for a, b in rows]


def sum_sides(
    source: CudaSurface, target: CudaSurface, poses: Floats, distance: float, coarse: bool
) -> Tensor:
    """Sum over both samples in each of H poses: (H, 2, fields of `SideSums`). On CUDA in one kernel."""
    if source.points.is_cuda and has_triton():
        from wsdesc.alignment.verify import fused

        return fused.sum_sides(source, target, poses, distance, coarse)
    return sum_sides_plainly(source, target, poses, distance, coarse)


def sum_sides_plainly(
    source: CudaSurface, target: CudaSurface, poses: Floats, distance: float, coarse: bool
) -> Tensor:
    """Sum over both samples in each pose, in plain torch."""
    T_target_source, T_source_target = poses_and_inverses(poses, source)
    source_sides = _sum_side(source, target, T_target_source, distance, coarse)
    target_sides = _sum_side(target, source, T_source_target, distance, coarse)
    return torch.stack([source_sides, target_sides], dim=1)


def _sum_side(
    sampled: CudaSurface, searched: CudaSurface, T_searched_sampled: Tensor, distance: float, coarse: bool
) -> Tensor:
    """Sum over one sample in each of H poses: (H, fields of `SideSums`)."""
    sample, weights = sampled.sample, sampled.direction_weights
    if coarse:
        sample, weights = sample[sampled.coarse], weights[sampled.coarse]
        weights = weights / weights.sum().clamp(min=1e-300)
    moved = transform_with_normals(sampled.points_with_normals[sample], T_searched_sampled)  # (H, S, 6)
    partner = searched.nearest_to(moved[..., :3])  # (H, S)
    partner_normals, gap = searched.normals[partner], moved[..., :3] - searched.points[partner]
    distances = gap.square().sum(-1).sqrt()
    near, overlapping = distances < HOVER_DISTANCE * distance, distances <= distance
    plane_distance = torch.where(partner_normals.any(-1), (gap * partner_normals).sum(-1).abs(), distances)
    cosine = (moved[..., 3:] * partner_normals).sum(-1).abs()  # 0 where one has no normal

    curvature, partner_curvature = sampled.curvature[sample], searched.curvature[partner]
    has_normals = overlapping & sampled.normals[sample].any(-1) & partner_normals.any(-1)
    low, high = torch.minimum(curvature, partner_curvature), torch.maximum(curvature, partner_curvature)
    flat, curved = has_normals & (high < FLAT), overlapping & (high >= FLAT)
    level = weights * (flat & (cosine > ALIGNED))
    hovering = near & ~overlapping & (plane_distance > FACING * distances)
    sums = {
        "sampled": torch.ones_like(overlapping),
        "overlapping": overlapping,
        "weighted": weights * overlapping,
        "aligned": has_normals & (cosine > ALIGNED),
        "flat": flat,
        "crossed": flat & (cosine < CROSSED),
        "level": level,
        "level_offset": plane_distance.sqrt() * level,
        "hovering": hovering,
        "curvature_min": low * has_normals,
        "curvature_max": high * has_normals,
        "detail_min": low * curved,
        "detail_max": high * curved + (hovering & (curvature >= FLAT)),
        "plane_squared": plane_distance.square() * overlapping,
        "distance_squared": distances.square() * overlapping,
    }
    return torch.stack([sums[name].to(distances.dtype) for name in SideSums._fields]).sum(-1).T
