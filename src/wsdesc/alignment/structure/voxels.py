"""Coarse voxels of a scan along its three axes, and the 24 rotations that map axes to axes."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import avg_pool3d, max_pool3d, pad

from wsdesc.alignment.free_space import LIMITS
from wsdesc.alignment.surface import Surface
from wsdesc.cloud.range_image import RangeImage, range_cells
from wsdesc.core.geometry import Floats

_STEPS = 2.0**40  # of integers that stand for squares of cosines

# (24, 3, 3) rotations that permute and flip axes; four in a row have the same order of the axes.
ROTATIONS = np.array(
    [
        R
        for order in itertools.permutations(range(3))
        for signs in itertools.product((1.0, -1.0), repeat=3)
        if np.linalg.det(R := np.diag(signs)[:, order]) > 0
    ]
)


@dataclass(frozen=True, eq=False)
class Voxels:
    """Coarse voxels of a scan along its axes."""

    size: float
    origin: Floats  # (3,) corner of the grid, in the frame of the axes
    surface: Tensor  # (3, X, Y, Z) share of each axis in the normals of a voxel's surface; 0 without any
    wide: Tensor  # (3, X, Y, Z) largest surface of the neighbourhood of 3³ voxels
    free: Tensor  # (X, Y, Z) 1 where the scanner saw through a voxel, and no surface is in its neighbourhood

    @classmethod
    def of(
        cls, surface: Surface, image: RangeImage | None, axes: Floats, voxel: float, resolution: float
    ) -> Self:
        """Voxelize a surface and the free space of its range image.

        Args:
            surface: Points and normals of the scan.
            image: Its range image; None without a viewpoint.
            axes: (3, 3) one per row, in the frame of the surface.
            voxel: Side length of a voxel, in the unit of the surface.
            resolution: Working resolution, in the same unit.
        """
        points = torch.as_tensor(surface.points)
        M = torch.from_numpy(axes).to(points)
        along = points @ M.T
        origin = along.amin(0) - voxel
        index = ((along - origin) / voxel).long()
        shape = (index.amax(0) + 2).tolist()
        flat = (index[:, 0] * shape[1] + index[:, 1]) * shape[2] + index[:, 2]
        # Integers, because a GPU adds numbers in any order.
        sums = torch.zeros(shape[0] * shape[1] * shape[2], 3, dtype=torch.int64, device=points.device)
        sums.index_add_(0, flat, ((torch.as_tensor(surface.normals) @ M.T).square() * _STEPS).long())
        shares = _shares(sums.T.reshape(3, *shape).double()).float()
        free = torch.zeros(shape, device=points.device)
        if image is not None:
            steps = [torch.arange(0.5, n, dtype=points.dtype, device=points.device) for n in shape]
            centres = (origin + voxel * torch.cartesian_prod(*steps)) @ M
            rays = centres - torch.from_numpy(image.viewpoint).to(points)
            ranges = torch.from_numpy(image.free).to(points)
            end = ranges.view(-1)[range_cells(rays, ranges.shape[1])]
            margin = voxel * 3**0.5 / 2 + LIMITS.margin * resolution
            free = (rays.norm(dim=1) < end * (1 - LIMITS.relative_margin) - margin).float().view(shape)
        return cls.build(voxel, np.asarray(origin.cpu()), shares, free)

    @classmethod
    def build(cls, size: float, origin: Floats, surface: Tensor, free: Tensor) -> Self:
        """Make voxels of surface (3, X, Y, Z) and of space (X, Y, Z) that the scanner saw through."""
        wide = max_pool3d(surface[None], 3, 1, 1)[0]
        return cls(size, origin, surface, wide, free * (wide.amax(0) == 0))

    def coarser(self) -> Self:
        """Join 2³ voxels to one."""
        padding = [side for n in reversed(self.free.shape) for side in (0, n % 2)]
        surface = avg_pool3d(pad(self.surface, padding)[None], 2)[0]
        hidden = max_pool3d(1 - pad(self.free, padding)[None], 2)[0]
        return self.build(2 * self.size, self.origin, _shares(surface), 1 - hidden)

    def cubic(self) -> Self:
        """Add empty voxels behind the last ones, until all sides are equal."""
        side = max(self.free.shape)
        padding = [edge for n in reversed(self.free.shape) for edge in (0, side - n)]
        grids = (pad(grid, padding) for grid in (self.surface, self.wide, self.free))
        return type(self)(self.size, self.origin, *grids)

    def turned_origin(self, rotation: Floats) -> Floats:
        """Return the corner (3,) of the turned grid."""
        order, flipped = axes_of(rotation)
        end = self.origin + self.size * np.array(self.free.shape)
        return np.where(flipped, -end[order], self.origin[order])

    def turned(self, rotation: Floats) -> Voxels:
        """Turn the grid by one of the 24 rotations (3, 3)."""
        order, flipped = axes_of(rotation)
        axes, mirrored = order.tolist(), np.flatnonzero(flipped).tolist()

        def turn(grid: Tensor) -> Tensor:
            return grid.permute(axes).flip(mirrored)

        surface, wide = (
            torch.stack([turn(grid[axis]) for axis in axes]) for grid in (self.surface, self.wide)
        )
        return Voxels(self.size, self.turned_origin(rotation), surface, wide, turn(self.free))


def axes_of(rotation: Floats) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """Return the axis that becomes each axis of the turned grid (3,), and whether it is reversed (3,)."""
    return np.abs(rotation).argmax(axis=1), rotation.sum(axis=1) < 0


def _shares(sums: Tensor) -> Tensor:
    """Divide the channels (3, X, Y, Z) of each voxel by their sum; 0 stays 0."""
    return sums / sums.sum(0).clamp(min=1e-12)
