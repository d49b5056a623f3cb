"""Support, the side length of the voxel grid: one for all keypoints, learned or fixed, or one for each."""

from __future__ import annotations

import math
from itertools import pairwise

import torch
from torch import Tensor, nn

from wsdesc.cloud.neighbours import NeighbourGrid
from wsdesc.descriptor.options import DescriptorOptions

_PATCH = 256  # neighbours per keypoint that the local PointNet sees


class UniversalSupport(nn.Module):
    """One learned support for all keypoints (the paper's WSDesc)."""

    def __init__(self, start: float, low: float, high: float) -> None:
        super().__init__()
        self.low, self.high = low, high
        self.size = nn.Parameter(torch.tensor(start))

    def forward(self, grid: NeighbourGrid, keypoints: Tensor, frames: Tensor) -> Tensor:
        """Return the support of all keypoints, a scalar."""
        return self.size

    @torch.no_grad()
    def keep_in_range(self) -> None:
        """Clamp the support to its bounds; call this after each step of an optimizer."""
        self.size.clamp_(self.low, self.high)


class FixedSupport(nn.Module):
    """The cube inscribed in the ball of the frame's neighbourhood: 2 r/√3 (the paper's "w/o LLS")."""

    def __init__(self, radius: float) -> None:
        super().__init__()
        self.register_buffer("size", torch.tensor(2 * radius / math.sqrt(3)), persistent=False)

    def forward(self, grid: NeighbourGrid, keypoints: Tensor, frames: Tensor) -> Tensor:
        """Return the support of all keypoints, a scalar."""
        size: Tensor = self.size  # type: ignore[assignment]
        return size


class _BoundedOutput(nn.Module):
    """Map the features of a PointNet to a support within bounds; before training it is `start`."""

    def __init__(self, features: int, start: float, low: float, high: float) -> None:
        super().__init__()
        self.low, self.high = low, high
        self.last = nn.Linear(features, 1)
        share = min(max((start - low) / max(high - low, 1e-9), 0.01), 0.99)
        nn.init.normal_(self.last.weight, std=1e-3)
        nn.init.constant_(self.last.bias, math.log(share / (1 - share)))

    def forward(self, features: Tensor) -> Tensor:
        return self.low + (self.high - self.low) * torch.sigmoid(self.last(features)).squeeze(-1)


def _shared_mlp(*widths: int) -> nn.Sequential:
    """Build an MLP that is applied to each point."""
    layers: list[nn.Module] = []
    for before, after in pairwise(widths):
        layers += [nn.Linear(before, after), nn.LayerNorm(after), nn.ReLU()]
    return nn.Sequential(*layers)


class LocalSupport(nn.Module):
    """A mini-PointNet on each keypoint's neighbourhood, in the keypoint's frame (the paper's "w/ LP")."""

    def __init__(self, radius: float, start: float, low: float, high: float) -> None:
        super().__init__()
        self.radius = radius
        self.points = _shared_mlp(3, 64, 128, 256)
        self.size = nn.Sequential(_shared_mlp(256, 128), _BoundedOutput(128, start, low, high))

    def forward(self, grid: NeighbourGrid, keypoints: Tensor, frames: Tensor) -> Tensor:
        """Compute the supports (K,) of keypoints (K, 3) with frames (K, 3, 3)."""
        patch, exists = self._patches(grid, keypoints)
        features = self.points((patch @ frames) / self.radius)  # (K, P, 256)
        features = features.masked_fill(~exists[..., None], 0)  # 0 never exceeds a maximum after a ReLU
        supports: Tensor = self.size(features.amax(1))
        return supports

    def _patches(self, grid: NeighbourGrid, keypoints: Tensor) -> tuple[Tensor, Tensor]:
        """Choose up to 256 neighbours evenly: their offsets (K, P, 3), and whether they exist (K, P)."""
        near = grid.within(keypoints, self.radius)
        original = torch.empty_like(grid.points)
        original[grid.order] = grid.points
        count = near.starts.diff()
        slot = torch.arange(min(_PATCH, max(1, int(count.max()))), device=keypoints.device)
        stride = (count[:, None].double() / len(slot)).clamp(min=1)
        position = (slot * stride).long()
        exists = position < count[:, None]
        if len(near.indices):
            last = len(near.indices) - 1
            index = near.indices[(near.starts[:-1, None] + position).clamp(max=last)]
        else:
            index = position * 0
        return original[index] - keypoints[:, None], exists


class GlobalSupport(nn.Module):
    """PointNet's segmentation network over the whole scan, read at the keypoints (the paper's "w/ GP")."""

    def __init__(self, start: float, low: float, high: float) -> None:
        super().__init__()
        self.near = _shared_mlp(3, 64, 64)
        self.far = _shared_mlp(64, 64, 128, 1024)
        self.size = nn.Sequential(
            _shared_mlp(64 + 1024, 512, 256, 128), _BoundedOutput(128, start, low, high)
        )

    def forward(self, grid: NeighbourGrid, keypoints: Tensor, frames: Tensor) -> Tensor:
        """Compute the supports (K,) of keypoints (K, 3)."""
        centre = grid.points.mean(0)
        scan = self.far(self.near(grid.points - centre)).amax(0)  # (1024,)
        local = self.near(keypoints - centre)  # (K, 64)
        supports: Tensor = self.size(torch.cat([local, scan.expand(len(local), -1)], dim=1))
        return supports


Support = UniversalSupport | FixedSupport | LocalSupport | GlobalSupport


def make_support(options: DescriptorOptions) -> Support:
    """Create the support module that `options.support` names."""
    bounds = (options.support_start, *options.support_range)
    match options.support:
        case "universal":
            return UniversalSupport(*bounds)
        case "fixed":
            return FixedSupport(options.frame_radius)
        case "local":
            return LocalSupport(options.frame_radius, *bounds)
        case "global":
            return GlobalSupport(*bounds)
