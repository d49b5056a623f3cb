"""DeepGMR (Yuan et al. 2020): clouds as Gaussian mixtures with matched components; trained with poses.

A network assigns each point to 16 components by features that do not change under rotation. The components of
the two clouds correspond, and their means give the pose. Clouds are centred, so both must show the same parts
of a shape: partial overlap is beyond the method.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from wsdesc.peers.pose_blocks import pointwise
from wsdesc.peers.pose_geometry import gather, invert, nearest, pose_of_moments, product
from wsdesc.peers.pose_network import WITH_POSES, NetworkPeer, PoseNetwork

_NEIGHBOURS = 20
_COMPONENTS = 16


class DeepGmr(PoseNetwork):
    """Rotation invariant input, PointNet, responsibilities of components, weighted rigid fit."""

    def __init__(self) -> None:
        super().__init__()
        self.local = pointwise(4 * _NEIGHBOURS, 64, 128, 256, 1024)
        self.assign = nn.Sequential(pointwise(2048, 512, 256, 128), nn.Linear(128, _COMPONENTS))

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Estimate T_target_source (B, 4, 4) of source (B, N, 3) and target (B, M, 3)."""
        return self._fit(self.mixture(source), self.mixture(target))

    def loss(self, source: Tensor, target: Tensor, T_target_source: Tensor) -> Tensor:
        """Compare the estimates in both directions with the true pose."""
        p, q = self.mixture(source), self.mixture(target)
        identity = torch.eye(4, device=source.device)
        forward = product(self._fit(p, q), invert(T_target_source)) - identity
        back = product(self._fit(q, p), T_target_source) - identity
        return forward.square().mean() + back.square().mean()

    def mixture(self, points: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Fit a mixture to points (B, N, 3): shares (B, J), means (B, J, 3), variances (B, J)."""
        centred = points - points.mean(1, keepdim=True)
        x = self.local(invariant_features(centred, _NEIGHBOURS))
        x = torch.cat([x, x.amax(1, keepdim=True).expand_as(x)], -1)
        gamma = self.assign(x).float().softmax(-1)  # (B, N, J)
        share = gamma.mean(1)
        weight = gamma / (gamma.sum(1, keepdim=True) + 1e-6)
        squares = product(weight.mT, centred.square()).sum(-1)
        variance = squares - product(weight.mT, centred).square().sum(-1)
        return share, product(weight.mT, points), variance.clamp_min(1e-4)

    @staticmethod
    def _fit(source: tuple[Tensor, Tensor, Tensor], target: tuple[Tensor, Tensor, Tensor]) -> Tensor:
        share, p, _ = source
        _, q, variance = target
        mean_p, mean_q = ((share[..., None] * x).sum(1) for x in (p, q))
        weighted = (q - mean_q[:, None]) * (share / variance)[..., None]
        return pose_of_moments(product((p - mean_p[:, None]).mT, weighted), mean_p, mean_q)


@torch.no_grad()
def invariant_features(points: Tensor, count: int) -> Tensor:
    """Describe centred points (B, N, 3) by their nearest points, unchanged by rotation: (B, N, 4 `count`).

    Each neighbour has four numbers: the lengths of the point and of the neighbour, the angle between them,
    and an angle about the point's direction. The last one is the smallest positive angle to another
    neighbour.
    """
    indices = nearest(points, points, count + 1)[1][..., 1:]
    if indices.shape[2] < count:  # tiny clouds: neighbours repeat
        repeats = math.ceil(count / indices.shape[2])
        indices = indices.repeat(1, 1, repeats)[..., :count]
    neighbour = gather(points, indices)  # (B, N, K, 3)
    centre = points[:, :, None].expand_as(neighbour)
    length, far = (x.norm(dim=-1) for x in (centre, neighbour))
    axis = centre / length.clamp_min(1e-9)[..., None]
    angle = torch.atan2(torch.linalg.cross(axis, neighbour).norm(dim=-1), (axis * neighbour).sum(-1))
    flat = neighbour - (axis * neighbour).sum(-1, keepdim=True) * axis  # across the axis
    first = flat[:, :, :1].expand_as(flat)
    turn = torch.atan2((torch.linalg.cross(first, flat) * axis).sum(-1), (first * flat).sum(-1))  # (B, N, K)
    ordered, order = turn.sort(-1)
    gap = (ordered.roll(-1, -1) - ordered).remainder(2 * math.pi)
    dihedral = torch.empty_like(gap).scatter_(-1, order, gap)
    return torch.stack([length, far, angle, dihedral], -1).flatten(2)


class DeepGmrPeer(NetworkPeer):
    """DeepGMR with rotation invariant input."""

    SOURCE = f"DeepGMR, {WITH_POSES}"
    FILES = ("deepgmr.safetensors",)

    @staticmethod
    def build() -> PoseNetwork:
        """Create the network with random weights."""
        return DeepGmr()
