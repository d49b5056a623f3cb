"""Arguments of a voxelization that have no gradient; all backends receive them."""

from __future__ import annotations

import math
from typing import NamedTuple

from torch import Tensor

from wsdesc.cloud.neighbours import NeighbourGrid


class VoxelizeArguments(NamedTuple):
    """Constants of one voxelization."""

    grid: NeighbourGrid | None  # of the points; None: built by the backends that need it
    keypoints: Tensor  # (K, 3)
    frames: Tensor  # (K, 3, 3)
    resolution: int  # h, voxels per axis
    sigma: float  # softness of a voxel's surface, a squared length
    cutoff: float | None  # smallest probability that counts
    min_support: float  # smallest of the supports

    @property
    def band(self) -> float:
        """Distance from a voxel's surface up to which a point acts."""
        return band_width(self.sigma, self.cutoff)

    def grid_of(self, points: Tensor) -> NeighbourGrid:
        """Return the grid, or build it from `points` if it is None."""
        return self.grid or NeighbourGrid.of(points)


def band_width(sigma: float, cutoff: float | None) -> float:
    """Compute the distance from a voxel's surface at which a point's probability is `cutoff`."""
    return math.inf if cutoff is None else math.sqrt(sigma * math.log(1 / cutoff - 1))
