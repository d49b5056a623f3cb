"""The point layer in plain torch on any device: all points against all voxels of a shell."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from wsdesc.peers.spinnet.point_layer import VoxelGrid

_TESTS = 2**28  # distances in memory at once


def point_layer(patches: Tensor, grid: VoxelGrid, weight: Tensor, bias: Tensor) -> Tensor:
    """Compute signals (B, 16, rad, ele, azi) of patches (B, P, 3)."""
    shape = (len(grid.elevations), len(grid.azimuths))
    shells = [_shell(patches, float(s), grid, weight, bias).unflatten(1, shape) for s in grid.distances]
    return (
        torch.stack(shells, dim=1).permute(0, 4, 1, 2, 3).relu().contiguous()
    )  # from (B, rad, ele, azi, 16)


def _shell(patches: Tensor, distance: float, grid: VoxelGrid, weight: Tensor, bias: Tensor) -> Tensor:
    """Compute features (B, V, 16) of the V voxels at one distance, before ReLU."""
    elevation, azimuth = grid.elevations[:, None], grid.azimuths[None]
    centres = distance * torch.stack(
        [
            elevation.sin() * azimuth.cos(),
            elevation.sin() * azimuth.sin(),
            elevation.cos().expand(-1, len(grid.azimuths)),
        ],
        dim=-1,
    ).flatten(0, 1)  # (V, 3)
    turns = grid.turns.repeat(len(grid.elevations))  # (V,)
    # Only rows near the shell can be in a voxel. They move to the front and keep their order.
    near = (patches.norm(dim=-1) - distance).abs() < grid.voxel_radius
    count = int(near.sum(1).max())
    order = (~near).to(torch.uint8).argsort(dim=1, stable=True)[:, :count]
    rows = patches.gather(1, order[..., None].expand(-1, -1, 3))  # (B, n, 3)
    step = max(1, _TESTS // max(1, len(patches) * count))
    parts = [
        _voxels(patches[:, 0], rows, centres[v : v + step], turns[v : v + step], grid, weight, bias)
        for v in range(0, len(centres), step)
    ]
    return torch.cat(parts, dim=1)


def _voxels(
    first: Tensor, rows: Tensor, centres: Tensor, turns: Tensor, grid: VoxelGrid, weight: Tensor, bias: Tensor
) -> Tensor:
    """Compute features (B, V, 16) of voxels from candidate rows (B, n, 3) and row 0 (B, 3) of the patches."""
    squared = sum(
        (rows[:, None, :, axis] - centres[None, :, None, axis]).square() for axis in range(3)
    )  # (B, V, n)
    inside = torch.as_tensor(squared) < grid.voxel_radius**2
    rank = inside.cumsum(-1, dtype=torch.int16)
    filled = rank[..., -1:] if inside.shape[-1] else rank.new_zeros(*rank.shape[:2], 1)
    patch, voxel, row = (inside & (rank <= grid.samples)).nonzero(as_tuple=True)
    result = torch.where(filled < grid.samples, bias, bias.new_tensor(-torch.inf))  # of offset zero
    wild = _features(first[:, None] - centres, turns, weight, bias)
    result = torch.where(filled == 0, torch.maximum(result, wild), result)
    hits = _features(rows[patch, row] - centres[voxel], turns[voxel], weight, bias)  # (hits, 16)
    index = (patch * len(centres) + voxel)[:, None].expand(-1, len(bias))
    reduced: Tensor = result.flatten(0, 1).scatter_reduce(0, index, hits, "amax")
    return reduced.view(*result.shape[:2], -1)


def _features(offsets: Tensor, turns: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Turn offsets (..., 3) back about z and apply the layer: (..., 16)."""
    x, y, z = offsets.unbind(-1)
    cosine, sine = turns.cos(), turns.sin()
    turned = torch.stack([cosine * x + sine * y, cosine * y - sine * x, z], dim=-1)
    return turned @ weight.T + bias
