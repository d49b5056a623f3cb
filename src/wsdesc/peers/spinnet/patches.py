"""Supports of SpinNet: a fixed number of points around each keypoint, and the axis that orients them."""

from __future__ import annotations

import torch
from torch import Tensor


def gather_patches(cloud: Tensor, keypoints: Tensor, radius: float, size: int, repeat: bool = True) -> Tensor:
    """Gather `size` points around each keypoint, relative to it.

    Args:
        cloud: Points (N, 3) in random order, which therefore draws random points where there are too many.
        keypoints: Centres (B, 3).
        radius: Largest distance of a point.
        size: Number of rows of a patch.
        repeat: Repeat fewer points in the same order; otherwise the keypoint fills the patch.

    Returns:
        Patches (B, size, 3). The last row is the keypoint, also if there is no other point.
    """
    offsets = cloud[None] - keypoints[:, None]  # (B, N, 3)
    inside = offsets.square().sum(-1) < radius * radius
    counts = inside.sum(1)  # (B,)
    row = inside.nonzero(as_tuple=True)[1]
    rows = torch.cat([row, row.new_zeros(1)])  # one more, so that an empty list has a first element
    starts = counts.cumsum(0) - counts
    repeated = torch.arange(size, device=cloud.device) % counts.clamp(min=1)[:, None]  # (B, size)
    chosen = rows[(starts[:, None] + repeated).clamp(max=len(row))]
    patches = offsets.gather(1, chosen[..., None].expand(-1, -1, 3))
    filled = counts[:, None] > (0 if repeat else torch.arange(size, device=cloud.device))
    patches = torch.where(filled[..., None], patches, 0.0)
    patches[:, -1] = 0.0
    return patches


def align_with_z(patches: Tensor, towards: Tensor) -> Tensor:
    """Turn each patch by the shortest rotation that takes its normal to the z axis.

    Args:
        patches: Points (B, P, 3) relative to their keypoint.
        towards: Directions (B, 3) to which the normals point.
    """
    covariance = (patches.transpose(1, 2) @ patches).double()  # (B, 3, 3), about the keypoint
    normal = torch.linalg.eigh(covariance)[1][..., 0]  # of the smallest eigenvalue
    flip = (normal * towards.double()).sum(-1, keepdim=True) < 0
    R = _shortest_rotation_to_z(torch.where(flip, -normal, normal)).to(patches)
    return patches @ R.transpose(1, 2)


def _shortest_rotation_to_z(normal: Tensor) -> Tensor:
    """Return the rotations (B, 3, 3) of unit vectors (B, 3) to the z axis; half turns are about x."""
    x, y, z = normal.unbind(-1)
    w = 1 + z
    opposite = w < 1e-12
    w = w.clamp(min=1e-12)
    R = torch.stack(
        [1 - x * x / w, -x * y / w, -x, -x * y / w, 1 - y * y / w, -y, x, y, z], dim=-1
    ).unflatten(-1, (3, 3))
    half_turn = torch.diag(torch.tensor([1.0, -1.0, -1.0], dtype=R.dtype, device=R.device))
    return torch.where(opposite[:, None, None], half_turn, R)
