"""The point layer of SpinNet: each spherical voxel keeps the maximum of 16 linear features of its points.

A voxel's points are the first `samples` rows of the patch within its radius. A point is given relative to the
voxel's centre, turned by the voxel's azimuth. A voxel with fewer points also holds its centre, offset zero. A
voxel without any point holds its centre and row 0 of the patch, however far away: the network was trained
with these.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from wsdesc.peers.spinnet.point_layer import cpu, reference

__all__ = ["VoxelGrid", "point_layer"]


@dataclass(frozen=True)
class VoxelGrid:
    """Spherical voxels of a support."""

    distances: Tensor  # (rad,) of the centres from the keypoint
    elevations: Tensor  # (ele,) angles from the z axis
    azimuths: Tensor  # (azi,) of the centres
    turns: Tensor  # (azi,) angles by which the voxels are turned back
    voxel_radius: float
    samples: int

    @classmethod
    def of(
        cls,
        radius: float,
        cells: tuple[int, int, int],
        voxel_radius: float,
        samples: int,
        device: torch.device,
    ) -> VoxelGrid:
        """Divide a ball evenly along radius, elevation and azimuth."""
        rad, ele, azi = (torch.arange(count, device=device, dtype=torch.float64) for count in cells)
        turns = 2 * math.pi * azi / cells[2]
        return cls(
            (radius * (rad + 0.5) / cells[0]).float(),
            (math.pi * (ele + 0.5) / cells[1]).float(),
            (turns + math.pi / cells[2]).float(),
            turns.float(),
            voxel_radius,
            samples,
        )


def point_layer(patches: Tensor, grid: VoxelGrid, weight: Tensor, bias: Tensor) -> Tensor:
    """Compute the signals (B, 16, rad, ele, azi) of patches (B, P, 3), after ReLU.

    Args:
        patches: Points relative to the keypoint, with the z axis along the normal.
        grid: Voxels.
        weight: Weights (16, 3) of the layer.
        bias: Biases (16,).
    """
    compute = cpu.point_layer if patches.device.type == "cpu" else reference.point_layer
    return compute(patches, grid, weight, bias)
