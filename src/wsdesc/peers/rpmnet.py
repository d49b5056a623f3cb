"""RPM-Net (Yew and Lee 2020): learned features, Sinkhorn matching with slack; trained with poses.

Our version estimates normals from the points, where the original has those of the meshes. They have no sign,
therefore the angles of the point pair features do not depend on it.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from wsdesc.peers.pose_geometry import estimate_normals, fit_pose, gather, move, nearest, product
from wsdesc.peers.pose_network import WITH_POSES, NetworkPeer, PoseNetwork

_RADIUS = 0.3  # radius of the neighbourhood of a point
_NEIGHBOURS = 64
_SINKHORN_ROUNDS = 5
_TRAIN_PASSES, _TEST_PASSES = 2, 5
_MATCHED = 0.01  # weight of the loss of unmatched points
_DISCOUNT = 0.5  # factor on the loss of a pass, relative to the next pass


class RpmNet(PoseNetwork):
    """Features of local neighbourhoods, soft matches annealed by a second network, weighted rigid fit."""

    def __init__(self) -> None:
        super().__init__()
        self.local = _layers(10, 96, 96, 192)
        self.feature = nn.Sequential(_layers(192, 192, 96), nn.Conv1d(96, 96, 1))
        self.cloud = _layers(4, 64, 64, 64, 128, 1024)
        self.annealing = nn.Sequential(_layers(1024, 512, 256), nn.Conv1d(256, 2, 1))

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Estimate T_target_source (B, 4, 4) of source (B, N, 3) and target (B, M, 3)."""
        return self.passes(source, target, _TEST_PASSES)[-1][0]

    def loss(self, source: Tensor, target: Tensor, T_target_source: Tensor) -> Tensor:
        """Compare the source under the estimated and the true pose, and ask for matches of all points."""
        truth = move(source, T_target_source)
        passes = self.passes(source, target, _TRAIN_PASSES)
        total = source.new_zeros(())
        for index, (T, matches) in enumerate(passes):
            distance = (move(source, T) - truth).abs().mean()
            unmatched = (1 - matches.sum(1)).mean() + (1 - matches.sum(2)).mean()
            total = total + _DISCOUNT ** (len(passes) - 1 - index) * (distance + _MATCHED * unmatched)
        return total

    def passes(self, source: Tensor, target: Tensor, count: int) -> list[tuple[Tensor, Tensor]]:
        """Estimate the pose (B, 4, 4) and matches (B, N, M) `count` times, each from the pose before."""
        normals, target_normals = estimate_normals(source), estimate_normals(target)
        target_features = self.describe(target, target_normals)
        moved, moved_normals = source, normals
        results = []
        for _ in range(count):
            features = self.describe(moved, moved_normals)
            alpha, beta = self._anneal(moved, target)
            distance = 2 - 2 * product(features, target_features.mT)  # squared, of unit vectors
            matches = sinkhorn(-beta * (distance - alpha), _SINKHORN_ROUNDS).exp()
            weights = matches.sum(2)
            soft = product(matches, target) / weights.clamp_min(1e-5)[..., None]
            T = fit_pose(source, soft, weights)
            results.append((T, matches))
            moved = move(source, T.detach())
            moved_normals = product(normals, T.detach()[:, :3, :3].mT)
        return results

    def describe(self, points: Tensor, normals: Tensor) -> Tensor:
        """Describe points (B, N, 3) with unit normals by unit vectors (B, N, 96)."""
        x = _local_input(points, normals)  # (B, 10, N, K)
        local = self.local(x.flatten(2)).view(len(x), -1, *x.shape[2:]).amax(3)
        return functional.normalize(self.feature(local).float(), dim=1).mT

    def _anneal(self, source: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """Estimate the threshold α and the sharpness β (B, 1, 1) of the matches."""
        clouds = [functional.pad(cloud, (0, 1), value=flag) for flag, cloud in enumerate((source, target))]
        pooled = self.cloud(torch.cat(clouds, 1).mT).amax(2, keepdim=True)
        values = functional.softplus(self.annealing(pooled).float())  # (B, 2, 1)
        return values[:, 1:], values[:, :1]


def sinkhorn(affinity: Tensor, rounds: int) -> Tensor:
    """Normalise log matches (B, N, M) by rows and columns in turn; a slack row and column take the rest."""
    x = functional.pad(affinity, (0, 1, 0, 1))
    for _ in range(rounds):
        x = torch.cat([x[:, :-1] - x[:, :-1].logsumexp(2, keepdim=True), x[:, -1:]], 1)
        x = torch.cat([x[..., :-1] - x[..., :-1].logsumexp(1, keepdim=True), x[..., -1:]], 2)
    return x[:, :-1, :-1]


def _layers(*widths: int) -> nn.Sequential:
    """Build layers for each column: convolution of width 1, group normalisation, ReLU."""
    layers: list[nn.Module] = []
    for before, after in pairwise(widths):
        layers += [nn.Conv1d(before, after, 1), nn.GroupNorm(8, after), nn.ReLU()]
    return nn.Sequential(*layers)


@torch.no_grad()
def _local_input(points: Tensor, normals: Tensor) -> Tensor:
    """Build the input (B, 10, N, K): the point, the step to a neighbour, angles and length of the step."""
    distance, indices = nearest(points, points, _NEIGHBOURS)
    indices = torch.where(distance <= _RADIUS, indices, indices[..., :1])  # the point itself
    step = gather(points, indices) - points[:, :, None]  # (B, N, K, 3)
    own, other = normals[:, :, None].expand_as(step), gather(normals, indices)
    length = step.norm(dim=-1)
    parts = [
        points[:, :, None].expand_as(step),
        step,
        torch.stack([_angle(own, step), _angle(other, step), _angle(own, other), length], -1),
    ]
    return torch.cat(parts, -1).permute(0, 3, 1, 2).contiguous()


def _angle(a: Tensor, b: Tensor) -> Tensor:
    """Compute the angle between lines (..., 3), from 0 to π/2, or 0 for a vector of length 0."""
    return torch.atan2(torch.linalg.cross(a, b).norm(dim=-1), (a * b).sum(-1).abs())


class RpmNetPeer(NetworkPeer):
    """RPM-Net with estimated normals."""

    SOURCE = f"RPM-Net, {WITH_POSES}"
    FILES = ("rpmnet.safetensors",)

    @staticmethod
    def build() -> PoseNetwork:
        """Create the network with random weights."""
        return RpmNet()
