"""PRNet (Wang and Solomon 2019): matches of keypoints, drawn at random and repeated; trained with poses.

The 512 points of each cloud with the longest embeddings are matched by a Gumbel softmax, whose temperature a
small network estimates. Three passes move the source step by step. Matches are drawn at random also at test;
the peer fixes the seed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from wsdesc.peers.pose_blocks import DynamicDgcnn, Transformer, pointwise
from wsdesc.peers.pose_geometry import fit_pose, gather, move, pose_loss, poses, product
from wsdesc.peers.pose_network import WITH_POSES, NetworkPeer, PoseNetwork

_PASSES = 3
_KEYPOINTS = 512
_DISCOUNT = 0.9  # factor on the loss of a pass, relative to the pass before
_DISPARITY, _CYCLE = 0.1, 0.1  # weights of losses
_TEMPERATURES = (0.01, 100.0)


@dataclass(frozen=True)
class _Pass:
    T: Tensor  # (B, 4, 4) accumulated pose
    forth: Tensor  # (B, 4, 4) pose of this pass, source to target
    back: Tensor  # (B, 4, 4) pose of this pass, target to source
    disparity: Tensor  # (B, C) difference of the clouds' mean embeddings


class PrNet(PoseNetwork):
    """DGCNN with new graphs in each layer, transformer, keypoints, Gumbel softmax, rigid fit, three times."""

    def __init__(self, width: int = 512) -> None:
        super().__init__()
        self.embed = DynamicDgcnn(width)
        self.transformer = Transformer(width, hidden=2 * width, slope=0.2)
        self.temperature = nn.Sequential(pointwise(width, 128, 128, 128), nn.Linear(128, 1))

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Estimate T_target_source (B, 4, 4) of source (B, N, 3) and target (B, M, 3)."""
        return self.passes(source, target)[-1].T

    def loss(self, source: Tensor, target: Tensor, T_target_source: Tensor) -> Tensor:
        """Compare each pass with the true pose; both directions of a pass should cancel."""
        identity = torch.eye(3, device=source.device)
        total = source.new_zeros(())
        for index, step in enumerate(self.passes(source, target)):
            turn = product(step.forth[:, :3, :3], step.back[:, :3, :3]) - identity
            shift = step.forth[:, :3, 3] + step.back[:, :3, 3]
            cycle = turn.square().mean() + shift.square().mean()
            loss = pose_loss(step.T, T_target_source) + _DISPARITY * step.disparity.abs().mean()
            total = total + _DISCOUNT**index * (loss + _CYCLE * cycle)
        return total

    def passes(self, source: Tensor, target: Tensor) -> list[_Pass]:
        """Estimate the pose three times, each after the source has been moved."""
        T = poses(
            torch.eye(3, device=source.device).expand(len(source), 3, 3), source.new_zeros(len(source), 3)
        )
        q_alone = self.embed(target)
        results = []
        for _ in range(_PASSES):
            moved = move(source, T.detach())
            p, q = self.transformer.contextual(self.embed(moved), q_alone)
            source_keys, p = _longest(moved, p.float())
            target_keys, q = _longest(target, q.float())
            disparity = (p.mean(1) - q.mean(1)).abs()
            temperature = self.temperature(disparity).float().clamp(*_TEMPERATURES)[..., None]  # (B, 1, 1)
            scores = product(p, q.mT) / math.sqrt(p.shape[-1])
            forth = fit_pose(source_keys, product(draw_matches(scores, temperature), target_keys))
            back = fit_pose(target_keys, product(draw_matches(scores.mT, temperature), source_keys))
            T = product(forth, T)
            results.append(_Pass(T, forth, back, disparity))
        return results


def draw_matches(scores: Tensor, temperature: Tensor) -> Tensor:
    """Draw one match of each row of scores (B, N, M) at random; the gradient is that of the softmax."""
    noise = -torch.log(-torch.log(torch.rand_like(scores).clamp(1e-9, 1 - 1e-6)))
    soft = ((scores + noise) / temperature).softmax(-1)
    hard = torch.zeros_like(soft).scatter_(-1, soft.argmax(-1, keepdim=True), 1.0)
    return hard - soft.detach() + soft


def _longest(points: Tensor, features: Tensor) -> tuple[Tensor, Tensor]:
    """Select the points (B, K, 3) with the longest features, and these features (B, K, C)."""
    count = min(_KEYPOINTS, features.shape[1])
    indices = features.detach().norm(dim=-1).topk(count).indices
    return gather(points, indices), gather(features, indices)


class PrNetPeer(NetworkPeer):
    """PRNet with three passes."""

    SOURCE = f"PRNet, {WITH_POSES}"
    FILES = ("prnet.safetensors",)

    @staticmethod
    def build() -> PoseNetwork:
        """Create the network with random weights."""
        return PrNet()
