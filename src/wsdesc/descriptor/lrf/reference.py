"""Local reference frames in plain torch: what the fast ones are measured against, and what runs elsewhere."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

FEWEST = 8  # neighbours of a reliable keypoint
SHARPNESS = 1e-3  # a direction is reliable where it stands out from its sum of lengths by this share
FLATNESS = 1e-4  # a mean height over the tangent plane below this share of the radius is rounding

_PAIRS_AT_ONCE = 1 << 22


class LocalFrames(NamedTuple):
    """Frames of K keypoints."""

    axes: Tensor  # (K, 3, 3), the columns are x, y, z
    reliable: Tensor  # (K,) bool


def local_frames(points: Tensor, keypoints: Tensor, radius: float) -> LocalFrames:
    """points (N, 3), keypoints (K, 3), any device. Memory is bounded by chunks of keypoints."""
    chunk = max(1, _PAIRS_AT_ONCE // len(points))
    parts = [_frames(points, some, radius) for some in keypoints.split(chunk)]
    return LocalFrames(torch.cat([p.axes for p in parts]), torch.cat([p.reliable for p in parts]))


def _frames(points: Tensor, keypoints: Tensor, radius: float) -> LocalFrames:
    offset = points - keypoints[:, None]  # (K, N, 3)
    squared = offset.square().sum(-1)
    near = (squared <= radius * radius) & (squared > 0)
    offset = (offset * near[..., None]).double()  # all zero outside: adds nothing below
    covariance = offset.mT @ offset  # (K, 3, 3)
    z, thin = thinnest(covariance)
    height = (offset @ z[..., None]).squeeze(-1)  # (K, N)
    weight = (radius - offset.norm(dim=-1)).square() * height.square() * near
    tangent = offset - height[..., None] * z[:, None]
    pull = (weight[..., None] * tangent).sum(1)
    strength = (weight * tangent.norm(dim=-1)).sum(1)
    z, side = point_away(z, offset.sum(1), height.abs().sum(1), FLATNESS * radius * near.sum(1))
    return assemble(z, pull, strength, near.sum(1), thin & side, keypoints.dtype)


def thinnest(covariance: Tensor) -> tuple[Tensor, Tensor]:
    """Direction of least spread of (K, 3, 3) covariances: (K, 3), and whether it stands out (K,)."""
    values, vectors = torch.linalg.eigh(covariance)
    clear = values[:, 1] - values[:, 0] > SHARPNESS * values[:, 2]
    return vectors[:, :, 0], clear


def point_away(z: Tensor, total: Tensor, heights: Tensor, least: Tensor) -> tuple[Tensor, Tensor]:
    """Turn z (K, 3) away from the neighbours, whose offsets add up to `total` (K, 3) and whose unsigned
    heights along z to `heights` (K,); also whether its sign stands out (K,), for which the heights must
    be more than rounding: `least` (K,)."""
    height = (z * total).sum(-1)
    clear = (height.abs() > SHARPNESS * heights) & (heights > least)
    return torch.where((height > 0)[:, None], -z, z), clear


def assemble(
    z: Tensor, pull: Tensor, strength: Tensor, count: Tensor, reliable: Tensor, dtype: torch.dtype
) -> LocalFrames:
    """Frames from z (K, 3) and where x is pulled to (K, 3), the sum of terms whose lengths add up to
    `strength` (K,), by `count` (K,) neighbours."""
    length = pull.norm(dim=-1)
    fixed = length > SHARPNESS * strength
    spare = torch.nn.functional.one_hot(z.abs().argmin(-1), 3).to(z.dtype)
    x = torch.where(fixed[:, None], pull / length[:, None], spare)  # a small unit makes a tiny pull
    y = torch.nn.functional.normalize(torch.linalg.cross(z, x), dim=-1)
    axes = torch.stack([torch.linalg.cross(y, z), y, z], dim=-1)
    alone = (count == 0)[:, None, None]
    axes = torch.where(alone, torch.eye(3, dtype=z.dtype, device=z.device), axes)
    return LocalFrames(axes.to(dtype), reliable & fixed & (count >= FEWEST))
