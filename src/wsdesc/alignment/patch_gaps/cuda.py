"""Gaps between points and their partners on a GPU, in plain torch."""

from __future__ import annotations

import torch

from wsdesc.alignment.patch_gaps.constants import SAME_DIRECTION
from wsdesc.alignment.surface.cuda import CudaSurface, transform_with_normals
from wsdesc.core.geometry import Floats


def find_gaps(
    source: CudaSurface, target: CudaSurface, T_target_source: Floats, distance: float
) -> tuple[Floats, Floats, Floats]:
    """See `cpu.find_gaps`."""
    T = torch.from_numpy(T_target_source[None]).to(source.points.device)
    moved = transform_with_normals(source.points_with_normals, T)[0]  # (N, 6)
    partner = target.points_with_normals[target.nearest_to(moved[None, :, :3])[0]]
    points, normals = moved[:, :3], partner[:, 3:]
    offset = points - partner[:, :3]
    cosine = (moved[:, 3:] * normals).sum(1)
    used = (offset.square().sum(1) < distance * distance) & (cosine.abs() > SAME_DIRECTION)
    rows = torch.cat([points, normals, (offset * normals).sum(1, keepdim=True)], 1)[used].cpu().numpy()
    return rows[:, :3], rows[:, 3:6], rows[:, 6]
