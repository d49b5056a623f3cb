"""Local reference frames in plain torch, on any device. The tests compare the kernels with it."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from wsdesc.cloud.neighbours import NeighbourGrid

MIN_NEIGHBOURS = 8  # of a reliable frame
SHARPNESS = 1e-3  # smallest relative margin by which a direction of a reliable frame is determined
FLATNESS = 1e-4  # mean height over the tangent plane, in radii, below which rounding dominates

_MATRICES_AT_ONCE = 2048  # the eigenvalue solver of CUDA takes half a megabyte for each
_PAIRS_PER_CHUNK = 1 << 22  # pairs of point and keypoint


class LocalFrames(NamedTuple):
    """Frames of K keypoints."""

    frames: Tensor  # (K, 3, 3), the columns are x, y, z
    reliable: Tensor  # (K,) bool


def local_frames(grid: NeighbourGrid, keypoints: Tensor, radius: float, outer: float) -> LocalFrames:
    """See `wsdesc.local_frames`; `outer` is the orientation radius. Chunks of keypoints limit the memory."""
    chunk = max(1, _PAIRS_PER_CHUNK // len(grid.points))
    parts = [_frames(grid.points, part, radius, outer) for part in keypoints.split(chunk)]
    return LocalFrames(torch.cat([p.frames for p in parts]), torch.cat([p.reliable for p in parts]))


def _frames(points: Tensor, keypoints: Tensor, radius: float, outer: float) -> LocalFrames:
    offset = points - keypoints[:, None]  # (K, N, 3)
    squared = offset.square().sum(-1)
    inner = (squared <= radius * radius) & (squared > 0)
    near = (squared <= outer * outer) & (squared > 0)
    offset = (offset * near[..., None]).double()  # zero for points that are not neighbours
    covariance = (offset * inner[..., None]).mT @ offset  # (K, 3, 3)
    z, unique = smallest_eigenvectors(covariance)
    height = (offset @ z[..., None]).squeeze(-1)  # (K, N)
    weight = (outer - offset.norm(dim=-1)).square() * height.square() * near
    tangent = offset - height[..., None] * z[:, None]
    x_sum = (weight[..., None] * tangent).sum(1)
    x_lengths = (weight * tangent.norm(dim=-1)).sum(1)
    z, signed = orient_z(z, offset.sum(1), height.abs().sum(1), FLATNESS * outer * near.sum(1))
    return build_frames(z, x_sum, x_lengths, inner.sum(1), unique & signed, keypoints.dtype)


def smallest_eigenvectors(covariance: Tensor) -> tuple[Tensor, Tensor]:
    """Compute the eigenvectors (K, 3) of the smallest eigenvalues, and whether these are unique (K,)."""
    parts = [torch.linalg.eigh(part) for part in covariance.split(_MATRICES_AT_ONCE)]
    values, vectors = (torch.cat(x) for x in zip(*parts, strict=True))
    unique = values[:, 1] - values[:, 0] > SHARPNESS * values[:, 2]
    return vectors[:, :, 0], unique


def orient_z(z: Tensor, offset_sum: Tensor, height_sum: Tensor, min_height: Tensor) -> tuple[Tensor, Tensor]:
    """Turn z away from the neighbours.

    Args:
        z: Axes (K, 3) of arbitrary sign.
        offset_sum: Sums (K, 3) of the neighbours' offsets.
        height_sum: Sums (K,) of |z·offset|.
        min_height: Smallest `height_sum` (K,) that is more than rounding.

    Returns:
        z (K, 3), and whether its sign is determined (K,).
    """
    height = (z * offset_sum).sum(-1)
    signed = (height.abs() > SHARPNESS * height_sum) & (height_sum > min_height)
    return torch.where((height > 0)[:, None], -z, z), signed


def build_frames(
    z: Tensor, x_sum: Tensor, x_lengths: Tensor, count: Tensor, reliable: Tensor, dtype: torch.dtype
) -> LocalFrames:
    """Build frames from z and the weighted sum for x.

    Args:
        z: Unit vectors (K, 3).
        x_sum: Weighted sums (K, 3) of the neighbours' offsets in the tangent plane.
        x_lengths: Sums (K,) of the lengths of the terms of `x_sum`.
        count: Numbers of neighbours (K,) that gave z.
        reliable: Whether z is reliable (K,).
        dtype: Number type of the frames.
    """
    length = x_sum.norm(dim=-1)
    determined = length > SHARPNESS * x_lengths
    fallback = torch.nn.functional.one_hot(z.abs().argmin(-1), 3).to(z.dtype)
    # Divide by the length first: in a small unit, the sums are tiny.
    x = torch.where(determined[:, None], x_sum / length[:, None], fallback)
    y = torch.nn.functional.normalize(torch.linalg.cross(z, x), dim=-1)
    frames = torch.stack([torch.linalg.cross(y, z), y, z], dim=-1)
    isolated = (count == 0)[:, None, None]
    frames = torch.where(isolated, torch.eye(3, dtype=z.dtype, device=z.device), frames)
    return LocalFrames(frames.to(dtype), reliable & determined & (count >= MIN_NEIGHBOURS))
