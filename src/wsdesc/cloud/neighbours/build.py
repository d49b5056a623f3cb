"""Construction of the neighbour grid: the order of the points and the balls around their groups."""

from __future__ import annotations

import torch
from torch import Tensor

LEAF = 32  # points in a leaf, and leaves in a branch
BITS = 21  # of a Morton key, per axis


def morton_keys(points: Tensor) -> Tensor:
    """Number the points (N, 3) along a Morton curve over their bounding cube; (N,) int64."""
    low = points.amin(0).double()
    side = (points.amax(0).double() - low).amax().clamp(min=torch.finfo(torch.float64).tiny)
    cell = ((points.double() - low) / side * (2**BITS - 1)).long()  # (N, 3)
    for shift, mask in (
        (32, 0x1F00000000FFFF),
        (16, 0x1F0000FF0000FF),
        (8, 0x100F00F00F00F00F),
        (4, 0x10C30C30C30C30C3),
        (2, 0x1249249249249249),
    ):
        cell = (cell | (cell << shift)) & mask  # two zero bits between any two of the 21
    axis = torch.arange(3, device=cell.device)
    keys: Tensor = (cell << axis).sum(-1)  # no two axes share a bit
    return keys


def enclosing_balls(centres: Tensor, radii: Tensor) -> tuple[Tensor, Tensor]:
    """Enclose each group of 32 consecutive balls in a ball.

    Args:
        centres: (N, 3).
        radii: (N,).

    Returns:
        Centres (G, 3) and radii (G,) with G = ceil(N / 32).
    """
    missing = -len(centres) % LEAF
    centres = torch.cat([centres, centres[-1:].expand(missing, 3)]).view(-1, LEAF, 3)
    radii = torch.cat([radii, radii[-1:].expand(missing)]).view(-1, LEAF)
    middle = (centres.amin(1) + centres.amax(1)) / 2
    distance = (centres - middle[:, None]).square().sum(-1).sqrt() + radii
    return middle, distance.amax(1)
