"""Pairs of partial shapes in batches, made on the device where networks train.

They follow the rules of `partial_pair` (PRNet protocol) and `independent_pair` (RPM-Net protocol).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from wsdesc.core.errors import InputError


class PairBatch(NamedTuple):
    """Pairs of clouds, and the poses of the sources in the frames of the targets."""

    source: Tensor  # (B, K, 3)
    target: Tensor  # (B, K, 3)
    T_target_source: Tensor  # (B, 4, 4)


def partial_pairs(
    shapes: Tensor,
    generator: torch.Generator,
    *,
    keep: int = 768,
    noise: Tensor | float = 0.0,
    max_angle: float = 45.0,
    max_shift: float = 0.5,
) -> PairBatch:
    """Make pairs with the same samples (PRNet protocol).

    Args:
        shapes: Points (B, N, 3).
        generator: Source of all random numbers, on the device of the shapes.
        keep: Number of points of each cloud.
        noise: Standard deviation of the noise, for all pairs or for each (B,); clipped at five times that.
        max_angle: Largest angle about each axis, in degrees.
        max_shift: Largest translation along each axis.
    """
    count, points = shapes.shape[:2]
    if not 1 <= keep <= points:
        raise InputError(f"keep must be between 1 and the number of points ({points}), not {keep}")
    T = random_poses(count, generator, max_angle, max_shift)
    source = _permute(shapes, generator)
    target = _permute(source @ T[:, :3, :3].mT + T[:, None, :3, 3], generator)
    source, target = (_add_noise(cloud, noise, generator) for cloud in (source, target))
    sign = torch.randint(0, 2, (count, 1), generator=generator, device=shapes.device) * 2 - 1
    far = 500.0 * sign + torch.rand(count, 3, generator=generator, device=shapes.device)
    # ‖x − far‖² without ‖far‖²: float32 would lose the digits
    source, target = (
        _smallest(cloud, cloud.square().sum(-1) - 2 * (cloud @ far[..., None]).squeeze(-1), keep)
        for cloud in (source, target)
    )
    return PairBatch(source, target, T)


def independent_pairs(
    shapes: Tensor,
    generator: torch.Generator,
    *,
    keep: float = 0.7,
    noise: Tensor | float = 0.01,
    max_angle: float = 45.0,
    max_shift: float = 0.5,
) -> PairBatch:
    """Make pairs with independent samples (RPM-Net protocol): each cloud is a part of half of the points.

    Args:
        shapes: Points (B, N, 3), N ≥ 2.
        generator: Source of all random numbers, on the device of the shapes.
        keep: Share of the points that each cloud keeps.
        noise: Standard deviation of the noise, for all pairs or for each (B,); clipped at five times that.
        max_angle: Largest angle about each axis, in degrees.
        max_shift: Largest translation along each axis.
    """
    if not 0 < keep <= 1 or shapes.shape[1] < 2:
        raise InputError(f"keep must be above 0 and at most 1, not {keep}, and shapes need 2 points")
    count, half = len(shapes), shapes.shape[1] // 2
    mixed = _permute(shapes, generator)
    clouds = []
    for cloud in (mixed[:, :half], mixed[:, half : 2 * half]):
        normal = torch.randn(count, 3, 1, generator=generator, device=shapes.device)
        clouds.append(_smallest(cloud, (cloud @ normal).squeeze(-1), math.ceil(keep * half)))
    source, target = clouds
    T_source_target = random_poses(count, generator, max_angle, max_shift)
    R, t = T_source_target[:, :3, :3], T_source_target[:, :3, 3]
    source = _add_noise(source @ R.mT + t[:, None], noise, generator)
    target = _add_noise(target, noise, generator)
    T = torch.eye(4, device=shapes.device).repeat(count, 1, 1)
    T[:, :3, :3], T[:, :3, 3] = R.mT, -(R.mT @ t[..., None]).squeeze(-1)
    return PairBatch(source, target, T)


def random_poses(count: int, generator: torch.Generator, max_angle: float, max_shift: float) -> Tensor:
    """Draw poses (B, 4, 4): Rx Ry Rz, angles U[0, max_angle] in degrees, shifts U[−max_shift, max_shift]³."""
    device = generator.device
    angles = torch.rand(count, 3, generator=generator, device=device) * math.radians(max_angle)
    T = torch.eye(4, device=device).repeat(count, 1, 1)
    R = T[:, :3, :3].clone()
    for axis in range(3):
        i, j = (axis + 1) % 3, (axis + 2) % 3
        turn = torch.eye(3, device=device).repeat(count, 1, 1)
        sine, cosine = angles[:, axis].sin(), angles[:, axis].cos()
        turn[:, i, i], turn[:, j, j], turn[:, i, j], turn[:, j, i] = cosine, cosine, -sine, sine
        R = R @ turn
    T[:, :3, :3] = R
    T[:, :3, 3] = (torch.rand(count, 3, generator=generator, device=device) * 2 - 1) * max_shift
    return T


def _permute(points: Tensor, generator: torch.Generator) -> Tensor:
    order = torch.rand(points.shape[:2], generator=generator, device=points.device).argsort(1)
    return points.gather(1, order[..., None].expand_as(points))


def _add_noise(points: Tensor, noise: Tensor | float, generator: torch.Generator) -> Tensor:
    sigma = torch.as_tensor(noise, dtype=points.dtype, device=points.device).reshape(-1, 1, 1)
    normal = torch.randn(points.shape, generator=generator, device=points.device).clamp(-5, 5)
    return points + sigma * normal


def _smallest(points: Tensor, distance: Tensor, keep: int) -> Tensor:
    """Select the `keep` points (B, K, 3) with the smallest distances (B, N), in their order."""
    order = distance.topk(keep, largest=False).indices.sort(1).values
    return points.gather(1, order[..., None].expand(-1, -1, 3))
