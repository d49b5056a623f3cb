"""What the kernels are given beside the points and the support."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from wsdesc.cloud.neighbours import NeighbourGrid


class Task(NamedTuple):
    """The constants of one voxelization."""

    grid: NeighbourGrid  # of the points
    keypoints: Tensor  # (K, 3)
    frames: Tensor  # (K, 3, 3)
    resolution: int  # h
    sigma: float
    band: float  # how far outside a voxel a point still acts
    smallest: float  # of the supports
