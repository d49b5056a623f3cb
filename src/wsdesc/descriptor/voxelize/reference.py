"""Voxelization in plain torch, on any device. The tests compare the kernels with it."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import softplus

from wsdesc.descriptor.voxelize.arguments import VoxelizeArguments

_POINTS_PER_CHUNK = 4096


def voxelize(points: Tensor, support: Tensor, arguments: VoxelizeArguments) -> Tensor:
    """Compute voxel grids (K, h, h, h) from points (N, 3) and supports (K,); autograd differentiates them.

    With `cutoff=None` every point acts on every voxel, as in the paper's product.
    """
    h = arguments.resolution
    centres = _cell_centres(h, points)
    grids = [
        _grid((points - keypoint) @ frame, side, centres, arguments)
        for keypoint, frame, side in zip(arguments.keypoints, arguments.frames, support, strict=True)
    ]
    return torch.stack(grids).view(-1, h, h, h)


def _cell_centres(resolution: int, like: Tensor) -> Tensor:
    """Compute the centres (h³, 3) of the cells of the unit cube about 0; the last axis varies fastest."""
    axis = (torch.arange(resolution, device=like.device, dtype=like.dtype) + 0.5) / resolution - 0.5
    return torch.stack(torch.meshgrid(axis, axis, axis, indexing="ij"), -1).view(-1, 3)


def _grid(local: Tensor, side: Tensor, centres: Tensor, arguments: VoxelizeArguments) -> Tensor:
    """Compute the values (h³,) of one grid of side `side` from points (N, 3) in the keypoint's frame."""
    radius = side / (2 * arguments.resolution)
    band = arguments.band
    near = local.detach().abs().amax(1) <= side.detach() / 2 + band
    exponent = torch.zeros_like(centres[:, 0])
    for part in local[near].split(_POINTS_PER_CHUNK):
        squared = (part[:, None] - side * centres).square().sum(-1)  # (n, h³)
        distance = squared.clamp(min=torch.finfo(squared.dtype).tiny).sqrt() - radius
        terms = softplus(-distance * distance.abs() / arguments.sigma)  # -log(1 - p)
        exponent = exponent + torch.where(distance <= band, terms, 0).sum(0)
    return -torch.expm1(-exponent)
