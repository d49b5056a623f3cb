"""The voxelization layer in plain torch, a keypoint at a time: slow, exact, and easy to check by eye."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import softplus

_POINTS_AT_ONCE = 4096


def band_width(sigma: float, cutoff: float | None) -> float:
    """How far outside a voxel a point still acts: there its probability falls to `cutoff`."""
    return math.inf if cutoff is None else math.sqrt(sigma * math.log(1 / cutoff - 1))


def cell_centres(resolution: int, like: Tensor) -> Tensor:
    """Centres of the h³ cells of the unit cube about 0: (h³, 3), the last axis running fastest."""
    axis = (torch.arange(resolution, device=like.device, dtype=like.dtype) + 0.5) / resolution - 0.5
    return torch.stack(torch.meshgrid(axis, axis, axis, indexing="ij"), -1).view(-1, 3)


def voxelize(
    points: Tensor,
    keypoints: Tensor,
    frames: Tensor,
    support: Tensor,
    resolution: int,
    sigma: float,
    cutoff: float | None,
) -> Tensor:
    """points (N, 3), keypoints (K, 3), frames (K, 3, 3), support (K,) → (K, h, h, h), by autograd.

    With `cutoff=None` every point of the cloud acts on every voxel, as in the paper's product.
    """
    centres = cell_centres(resolution, points)
    grids = [
        _grid((points - keypoint) @ frame, side, centres, resolution, sigma, cutoff)
        for keypoint, frame, side in zip(keypoints, frames, support, strict=True)
    ]
    return torch.stack(grids).view(-1, resolution, resolution, resolution)


def _grid(
    local: Tensor, side: Tensor, centres: Tensor, resolution: int, sigma: float, cutoff: float | None
) -> Tensor:
    """Values of one grid of side `side` from points in the keypoint's frame (N, 3): (h³,)."""
    radius = side / (2 * resolution)
    band = band_width(sigma, cutoff)
    near = local.detach().abs().amax(1) <= side.detach() / 2 + band
    exponent = torch.zeros_like(centres[:, 0])
    for some in local[near].split(_POINTS_AT_ONCE):
        squared = (some[:, None] - side * centres).square().sum(-1)  # (n, h³)
        distance = squared.clamp(min=torch.finfo(squared.dtype).tiny).sqrt() - radius
        acts = softplus(-distance * distance.abs() / sigma)  # -log(1 - p)
        exponent = exponent + torch.where(distance <= band, acts, 0).sum(0)
    return -torch.expm1(-exponent)
