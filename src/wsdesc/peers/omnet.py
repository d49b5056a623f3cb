"""OMNet (Xu et al. 2021): regress poses from global features of the overlap; trained with ground truth poses.

Four passes with own weights move the source step by step. Each pass also estimates which points lie in the
overlap; from the third pass on, only these count.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from wsdesc.peers.pose_blocks import pointwise
from wsdesc.peers.pose_geometry import move, nearest, poses, product, rotation_of_quaternion
from wsdesc.peers.pose_network import WITH_POSES, NetworkPeer, PoseNetwork

_PASSES = 4
_MASKED_FROM = 2  # first pass that uses the masks of the pass before
_OVERLAP = 0.1  # distance of points in the overlap
_CLASS_WEIGHTS = (0.7, 0.3)  # weights in the cross-entropy: outside and inside the overlap
_TRANSLATION = 4.0  # weight of the loss of translations


class _Result(NamedTuple):
    quaternion: Tensor  # (B, 4) accumulated, w first
    translation: Tensor  # (B, 3) accumulated
    source_mask: Tensor  # (B, N, 2) logits: outside and inside the overlap
    target_mask: Tensor  # (B, M, 2)


class _Pass(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.low = pointwise(3, 64, 64)
        self.high = pointwise(64, 64, 128, 1024)
        self.fuse = pointwise(64 + 2 * 1024, 1024, 1024, 512)
        self.mask = nn.ModuleList([pointwise(512, 512), pointwise(512, 256), pointwise(256, 256)])
        self.overlap = nn.Linear(256, 2)
        self.regress = nn.Sequential(pointwise(3072, 2048, 1024, 512, 256), nn.Linear(256, 7))
        with torch.no_grad():  # the first guess is the identity
            last = self.regress[-1]
            assert isinstance(last, nn.Linear)
            last.weight.mul_(0.1)
            last.bias.copy_(torch.tensor([1.0, 0, 0, 0, 0, 0, 0]))

    def forward(
        self, clouds: tuple[Tensor, Tensor], masks: tuple[Tensor, Tensor]
    ) -> tuple[Tensor, list[Tensor]]:
        low = [self.low(cloud) for cloud in clouds]
        pooled = [(self.high(x) * mask).amax(1) for x, mask in zip(low, masks, strict=True)]  # (B, 1024)
        maxima, logits = [], []
        for own, other in ((0, 1), (1, 0)):
            context = torch.cat([pooled[own], pooled[other]], -1)[:, None].expand(-1, low[own].shape[1], -1)
            parts = [self.fuse(torch.cat([low[own], context], -1))]
            for layer in self.mask:
                parts.append(layer(parts[-1]))
            maxima.append((torch.cat(parts, -1) * masks[own]).amax(1))  # (B, 1536)
            logits.append(self.overlap(parts[-1]).float())
        return self.regress(torch.cat(maxima, -1)).float(), logits


class OmNet(PoseNetwork):
    """Global features with overlap masks, poses as quaternions and translations, four passes."""

    def __init__(self) -> None:
        super().__init__()
        self.steps = nn.ModuleList([_Pass() for _ in range(_PASSES)])

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Estimate T_target_source (B, 4, 4) of source (B, N, 3) and target (B, M, 3)."""
        last = self.passes(source, target)[-1]
        return poses(rotation_of_quaternion(last.quaternion), last.translation)

    def loss(self, source: Tensor, target: Tensor, T_target_source: Tensor) -> Tensor:
        """Compare poses and masks of all passes with the truth."""
        truth = quaternion_of_rotation(T_target_source[:, :3, :3])
        moved = move(source, T_target_source)
        inside = [
            (nearest(a, b, 1)[0].squeeze(-1) < _OVERLAP).long() for a, b in ((moved, target), (target, moved))
        ]
        class_weights = torch.tensor(_CLASS_WEIGHTS, device=source.device)
        total = source.new_zeros(())
        for step in self.passes(source, target):
            sign = torch.where((step.quaternion * truth).sum(-1, keepdim=True) < 0, -1.0, 1.0)
            rotation = (step.quaternion - sign * truth).abs().mean()
            translation = (step.translation - T_target_source[:, :3, 3]).square().mean()
            masks = sum(
                functional.cross_entropy(logits.flatten(0, 1), label.flatten(), class_weights)
                for logits, label in zip((step.source_mask, step.target_mask), inside, strict=True)
            )
            total = total + masks + rotation + _TRANSLATION * translation
        return total

    def passes(self, source: Tensor, target: Tensor) -> list[_Result]:
        """Estimate the pose and the masks four times, each after the source has been moved."""
        quaternion = torch.tensor([1.0, 0, 0, 0], device=source.device).expand(len(source), 4)
        translation = source.new_zeros(len(source), 3)
        ones = source.new_ones(*source.shape[:2], 1), target.new_ones(*target.shape[:2], 1)
        masks, results = ones, []
        for index, step in enumerate(self.steps):
            T = poses(rotation_of_quaternion(quaternion), translation).detach()
            pose, logits = step((move(source, T), target), masks if index >= _MASKED_FROM else ones)
            turn = functional.normalize(pose[:, :4], dim=-1)
            quaternion = multiply(turn, quaternion)
            turned = product(rotation_of_quaternion(turn), translation[..., None]).squeeze(-1)
            translation = turned + pose[:, 4:]
            p, q = (x.detach().argmax(-1, keepdim=True).to(source.dtype) for x in logits)
            masks = p, q
            results.append(_Result(quaternion, translation, logits[0], logits[1]))
        return results


def multiply(a: Tensor, b: Tensor) -> Tensor:
    """Multiply quaternions (B, 4), w first."""
    w, v = (
        a[:, :1] * b[:, :1] - (a[:, 1:] * b[:, 1:]).sum(-1, keepdim=True),
        torch.linalg.cross(a[:, 1:], b[:, 1:]),
    )
    return torch.cat([w, a[:, :1] * b[:, 1:] + b[:, :1] * a[:, 1:] + v], -1)


def quaternion_of_rotation(R: Tensor) -> Tensor:
    """Convert rotations (B, 3, 3) to unit quaternions (B, 4), w first; the largest entry is positive."""
    trace = R.diagonal(dim1=1, dim2=2).sum(-1)
    # four times the outer product of the quaternion with itself
    K = R.new_empty(len(R), 4, 4)
    K[:, 0, 0] = 1 + trace
    for i, j, k in ((0, 1, 2), (1, 2, 0), (2, 0, 1)):
        K[:, i + 1, i + 1] = 1 + 2 * R[:, i, i] - trace
        K[:, 0, i + 1] = K[:, i + 1, 0] = R[:, k, j] - R[:, j, k]
        K[:, i + 1, j + 1] = K[:, j + 1, i + 1] = R[:, i, j] + R[:, j, i]
    best = K.diagonal(dim1=1, dim2=2).argmax(-1)
    return functional.normalize(K[torch.arange(len(R), device=R.device), best], dim=-1)


class OmNetPeer(NetworkPeer):
    """OMNet with four passes."""

    SOURCE = f"OMNet, {WITH_POSES}"
    FILES = ("omnet.safetensors",)

    @staticmethod
    def build() -> PoseNetwork:
        """Create the network with random weights."""
        return OmNet()
