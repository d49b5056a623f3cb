"""Networks that map two clouds of a shape to a pose, and the peer that runs one of them.

The networks are trained on ModelNet40: shapes in a sphere of radius 1 (one unit), about 700 points of each.
They see neither rooms nor other sizes in training; use them for comparisons on shapes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor, nn

from wsdesc.core.geometry import check_length
from wsdesc.peers.weights import load_network

WITH_POSES = "trained here on ModelNet40 with ground truth poses, research use"
WITHOUT_LABELS = "trained here on ModelNet40 without labels, research use"

_MIN_POINTS = 10  # finite points of a cloud
_MAX_POINTS = 2048  # memory of attention and matching grows with the square
_MIN_WIDTH = 1e-4  # share of a cloud's largest extent: collinear points leave a rotation undetermined


class PoseNetwork(nn.Module, ABC):
    """A network with its training loss. Batches hold clouds of equal size."""

    @abstractmethod
    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Estimate T_target_source (B, 4, 4) of source (B, N, 3) and target (B, M, 3)."""

    @abstractmethod
    def loss(self, source: Tensor, target: Tensor, T_target_source: Tensor) -> Tensor:
        """Compute the training loss of a batch; networks without labels ignore the true poses (B, 4, 4)."""


class NetworkPeer(ABC):
    """A pose peer that runs a trained network on the device of its input."""

    SOURCE: ClassVar[str]  # origin of the weights
    FILES: ClassVar[tuple[str, ...]]  # one file

    def __init__(self, weights: Path) -> None:
        self.network = load_network(self.build(), weights, self.FILES[0], self.SOURCE)

    @staticmethod
    @abstractmethod
    def build() -> PoseNetwork:
        """Create the network with random weights."""

    @torch.inference_mode()
    def __call__(self, source: Tensor, target: Tensor, unit: float = 1.0, *, seed: int = 0) -> Tensor | None:
        """Estimate T_target_source (4, 4) float64 of source (N, 3) and target (M, 3).

        The result is None for clouds with NaN, fewer than 10 points, or collinear points. At most 2,048
        points of a cloud are used, chosen by `seed`.
        """
        check_length(unit, "the unit")
        generator = torch.Generator().manual_seed(seed)
        clouds = [_prepare(points, unit, generator) for points in (source, target)]
        p, q = clouds
        if p is None or q is None:
            return None
        with torch.random.fork_rng(devices=[p.device] if p.device.type == "cuda" else []):
            torch.manual_seed(seed)  # PRNet draws random matches, also at test
            T: Tensor = self.network.to(p.device)(p[None], q[None])[0].double().cpu()
        if not bool(T.isfinite().all()):
            return None
        U, _, Vh = torch.linalg.svd(T[:3, :3])  # float32 rotations are orthonormal to 1e-6 only
        T[:3, :3] = U @ Vh
        T[:3, 3] *= unit
        return T


def _prepare(points: Tensor, unit: float, generator: torch.Generator) -> Tensor | None:
    """Convert points (N, 3) to the network's unit, at most 2,048 of them; None if they fix no rotation."""
    points = torch.as_tensor(points).detach()
    if points.ndim != 2 or points.shape[1] != 3 or len(points) < _MIN_POINTS:
        return None
    if not bool(points.isfinite().all()):
        return None
    if len(points) > _MAX_POINTS:
        points = points[torch.randperm(len(points), generator=generator)[:_MAX_POINTS].to(points.device)]
    points = (points.double() / unit).float()
    extent = torch.linalg.svdvals((points - points.mean(0)).double())
    return points.contiguous() if bool(extent[1] > _MIN_WIDTH * extent[0]) else None
