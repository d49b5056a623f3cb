"""How large the voxel grid is: one size for all keypoints, learned or fixed, or one each by a PointNet."""

from __future__ import annotations

import math
from itertools import pairwise

import torch
from torch import Tensor, nn

from wsdesc.cloud.neighbours import NeighbourGrid
from wsdesc.descriptor.options import DescriptorOptions

_PATCH = 256  # points of a neighbourhood that the mini-PointNet looks at


class UniversalSupport(nn.Module):
    """One learnable size."""

    def __init__(self, start: float, low: float, high: float) -> None:
        super().__init__()
        self.low, self.high = low, high
        self.size = nn.Parameter(torch.tensor(start))

    def forward(self, grid: NeighbourGrid, keypoints: Tensor, axes: Tensor) -> Tensor:
        """One size for all keypoints: a scalar."""
        return self.size

    @torch.no_grad()
    def keep_in_range(self) -> None:
        """Bring the size back into its bounds; to be called after each step of an optimiser."""
        self.size.clamp_(self.low, self.high)


class FixedSupport(nn.Module):
    """The cube inside the ball of the frame's neighbourhood: 2r/√3, nothing to learn."""

    def __init__(self, radius: float) -> None:
        super().__init__()
        self.register_buffer("size", torch.tensor(2 * radius / math.sqrt(3)), persistent=False)

    def forward(self, grid: NeighbourGrid, keypoints: Tensor, axes: Tensor) -> Tensor:
        """One size for all keypoints: a scalar."""
        size: Tensor = self.size  # type: ignore[assignment]
        return size


class _Bounded(nn.Module):
    """A number from a PointNet's last layer as a size within bounds, `start` before training."""

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
    """The same layers for every point."""
    layers: list[nn.Module] = []
    for before, after in pairwise(widths):
        layers += [nn.Linear(before, after), nn.LayerNorm(after), nn.ReLU()]
    return nn.Sequential(*layers)


class LocalSupport(nn.Module):
    """A mini-PointNet on each keypoint's neighbourhood, seen in the keypoint's frame."""

    def __init__(self, radius: float, start: float, low: float, high: float) -> None:
        super().__init__()
        self.radius = radius
        self.points = _shared_mlp(3, 64, 128, 256)
        self.size = nn.Sequential(_shared_mlp(256, 128), _Bounded(128, start, low, high))

    def forward(self, grid: NeighbourGrid, keypoints: Tensor, axes: Tensor) -> Tensor:
        """A size for each of keypoints (K, 3) with axes (K, 3, 3): (K,)."""
        patch, there = self._patches(grid, keypoints)
        features = self.points((patch @ axes) / self.radius)  # (K, P, 256)
        features = features.masked_fill(~there[..., None], 0)  # after a ReLU nothing is below
        sizes: Tensor = self.size(features.amax(1))
        return sizes

    def _patches(self, grid: NeighbourGrid, keypoints: Tensor) -> tuple[Tensor, Tensor]:
        """Offsets of up to 256 neighbours, spread evenly over all of them (K, P, 3), and who is there."""
        near = grid.within(keypoints, self.radius)
        original = torch.empty_like(grid.points)
        original[grid.order] = grid.points
        count = near.starts.diff()
        slot = torch.arange(min(_PATCH, max(1, int(count.max()))), device=keypoints.device)
        stretch = (count[:, None].double() / len(slot)).clamp(min=1)
        place = (slot * stretch).long()
        there = place < count[:, None]
        last = max(len(near.indices) - 1, 0)
        index = (
            near.indices[(near.starts[:-1, None] + place).clamp(max=last)] if len(near.indices) else place * 0
        )
        return original[index] - keypoints[:, None], there


class GlobalSupport(nn.Module):
    """PointNet's segmentation network over the whole cloud, read off at the keypoints."""

    def __init__(self, start: float, low: float, high: float) -> None:
        super().__init__()
        self.near = _shared_mlp(3, 64, 64)
        self.far = _shared_mlp(64, 64, 128, 1024)
        self.size = nn.Sequential(_shared_mlp(64 + 1024, 512, 256, 128), _Bounded(128, start, low, high))

    def forward(self, grid: NeighbourGrid, keypoints: Tensor, axes: Tensor) -> Tensor:
        """A size for each of keypoints (K, 3), from the cloud about its middle: (K,)."""
        middle = grid.points.mean(0)
        scene = self.far(self.near(grid.points - middle)).amax(0)  # (1024,)
        local = self.near(keypoints - middle)  # (K, 64)
        sizes: Tensor = self.size(torch.cat([local, scene.expand(len(local), -1)], dim=1))
        return sizes


Support = UniversalSupport | FixedSupport | LocalSupport | GlobalSupport


def make_support(options: DescriptorOptions) -> Support:
    """The support that `options` ask for."""
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
