"""DCP-v2 (Wang and Solomon 2019): Deep Closest Point, trained with ground truth poses.

Both clouds are embedded by a DGCNN and a transformer; soft matches give the pose by a rigid fit. DCP-v1 has
no transformer.
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn

from wsdesc.peers.pose_blocks import StaticDgcnn, Transformer, pointwise, soft_targets
from wsdesc.peers.pose_geometry import fit_pose, pose_loss
from wsdesc.peers.pose_network import WITH_POSES, NetworkPeer, PoseNetwork


class Dcp(PoseNetwork):
    """Embedding, transformer, soft matches, rigid fit.

    Args:
        embedding: `dgcnn`, or `pointnet`, which sees each point alone.
        width: Number of channels of the embedding.
    """

    def __init__(self, embedding: Literal["dgcnn", "pointnet"] = "dgcnn", width: int = 512) -> None:
        super().__init__()
        self.embed: nn.Module = (
            StaticDgcnn(width) if embedding == "dgcnn" else pointwise(3, 64, 64, 64, 128, width)
        )
        self.transformer = Transformer(width, hidden=2 * width)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Estimate T_target_source (B, 4, 4) of source (B, N, 3) and target (B, M, 3)."""
        p, q = self.transformer.contextual(self.embed(source), self.embed(target))
        return fit_pose(source, soft_targets(p, q, target))

    def loss(self, source: Tensor, target: Tensor, T_target_source: Tensor) -> Tensor:
        """Compare the estimate with the true pose."""
        return pose_loss(self(source, target), T_target_source)


class DcpPeer(NetworkPeer):
    """DCP-v2 with the DGCNN embedding."""

    SOURCE = f"DCP-v2, {WITH_POSES}"
    FILES = ("dcp.safetensors",)

    @staticmethod
    def build() -> PoseNetwork:
        """Create the network with random weights."""
        return Dcp()
