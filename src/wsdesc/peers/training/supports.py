"""Random supports of random scans, drawn on the device of the training."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from wsdesc.cloud.sampling import voxel_downsample
from wsdesc.core.errors import InputError
from wsdesc.peers.training.clouds import TrainingClouds

_FAR = 1e6  # metres: coordinates of the points that fill up short scans; no support contains them
_MIN_POINTS = 100  # fewest points of a scan after downsampling


class SampledSupports(NamedTuple):
    """Supports of B keypoints with P points each; points may repeat."""

    keypoints: Tensor  # (B, 3)
    keypoint_normals: Tensor  # (B, 3)
    points: Tensor  # (B, P, 3)
    normals: Tensor  # (B, P, 3)


class SupportSampler:
    """Draw keypoints and the points around them.

    Args:
        clouds: Training scans.
        voxel: Voxel size in metres to which they are downsampled.
        radius: Radius of a support in metres.
        count: Points of a support.
        device: Device of the samples.
        estimate_normals: Computes the normals (N, 3) of points (N, 3); None: they are zero.

    Raises:
        InputError: All scans are too small.
    """

    def __init__(
        self,
        clouds: TrainingClouds,
        voxel: float,
        radius: float,
        count: int,
        device: torch.device,
        estimate_normals: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        reduced = [voxel_downsample(points, voxel) for points in clouds.clouds]
        kept = [points for points in reduced if len(points) >= _MIN_POINTS]
        if not kept:
            largest = max(map(len, reduced))
            raise InputError(
                f"all scans are too small: the largest has {largest} points at a voxel size of {voxel:g} m, "
                f"at least {_MIN_POINTS} are needed; check the unit of length"
            )
        self.radius, self.count, self.device = radius, count, device
        estimate = estimate_normals or torch.zeros_like
        self.points = pad_sequence(kept, batch_first=True, padding_value=_FAR).to(device)  # (S, N, 3)
        self.normals = pad_sequence([estimate(p) for p in kept], batch_first=True).to(device)
        self.lengths = torch.tensor([len(points) for points in kept], device=device)

    def sample(self, batch: int, generator: torch.Generator) -> SampledSupports:
        """Draw `batch` supports: without repetition of points where there are enough, else with it."""

        def uniform(*shape: int) -> Tensor:
            return torch.rand(shape, generator=generator, device=self.device)

        scan = (uniform(batch) * len(self.lengths)).long().clamp(max=len(self.lengths) - 1)
        lengths = self.lengths[scan]
        key = torch.minimum((uniform(batch) * lengths).long(), lengths - 1)
        points = self.points[scan]  # (B, N, 3)
        row = torch.arange(batch, device=self.device)
        keypoints = points[row, key]
        squared = (points - keypoints[:, None]).square().sum(-1)
        inside = (squared <= self.radius**2) & (squared > 0)
        numbers = inside.cumsum(1)  # (B, N), from 1 at the first point inside
        n = numbers[:, -1:]  # (B, 1)
        rank = torch.minimum((uniform(batch, self.count) * n).long(), (n - 1).clamp(min=0))
        largest = int(n.max())
        if largest > self.count:
            outside = torch.arange(largest, device=self.device) >= n
            distinct = uniform(batch, largest).masked_fill(outside, 2.0).argsort(1)[:, : self.count]
            rank = torch.where(n > self.count, distinct, rank)
        index = torch.searchsorted(numbers, rank + 1)
        index = torch.where(n > 0, index, key[:, None])  # an isolated keypoint is its own support
        row = row[:, None]
        normals = self.normals[scan[:, None], index]
        return SampledSupports(keypoints, self.normals[scan, key], points[row, index], normals)
