"""PPF-FoldNet (Deng, Birdal, Ilic 2018): 512 numbers per keypoint, trained by reconstruction only.

A support is the set of point pair features between the keypoint and its neighbours: three angles and a
distance, which no rotation changes. An encoder compresses the set into a codeword, the descriptor. A folding
decoder reconstructs the set from it; the Chamfer distance is the loss.

Differences from the paper: normals point to the viewpoint, those of shapes outward. At test, neighbours lie
at even ranks of their distance and are not random. The learning rate falls along a cosine.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from wsdesc.cloud.nearest import nearest
from wsdesc.cloud.neighbours import NeighbourGrid
from wsdesc.peers.base import to_metres
from wsdesc.peers.folding import FoldingDecoder, chamfer, initialise
from wsdesc.peers.supports import Orientation, find_supports, oriented_normals
from wsdesc.peers.training.clouds import TrainingClouds
from wsdesc.peers.training.options import PeerTrainOptions
from wsdesc.peers.training.run import trained_options
from wsdesc.peers.training.supports import SupportSampler
from wsdesc.peers.training.task import PeerTask
from wsdesc.peers.weights import load_network

LENGTH = 512
_CHUNK = {"cuda": 512, "cpu": 32}  # keypoints at once


class PpfOptions(PeerTrainOptions):
    """Options of the trainings on point pair features."""

    weight_decay: float = Field(1e-6, ge=0, description="Weight decay of Adam.")
    support: float = Field(0.3, gt=0, description="Radius of a support, in metres.")
    points: int = Field(1024, ge=16, description="Points of a support.")
    voxel: float = Field(0.03, gt=0, description="Voxel size of the training scans, in metres.")
    neighbours: int = Field(17, ge=3, description="Nearest points that determine a normal.")
    orientation: Orientation = Field(
        "viewpoint", description="Normals point to the viewpoint (scans) or outward (shapes)."
    )


def pair_features(keypoints: Tensor, keypoint_normals: Tensor, points: Tensor, normals: Tensor) -> Tensor:
    """Compute point pair features (K, P, 4): ∠(n_ref, d), ∠(n, d), ∠(n_ref, n) over π, and ‖d‖.

    Args:
        keypoints: (K, 3); d is the keypoint less the point.
        keypoint_normals: (K, 3), called n_ref above.
        points: (K, P, 3).
        normals: (K, P, 3), called n above.
    """
    d = keypoints[:, None] - points
    n_ref = keypoint_normals[:, None].expand_as(normals)
    angles = [_angle(n_ref, d), _angle(normals, d), _angle(n_ref, normals)]
    return torch.stack([*(angle / torch.pi for angle in angles), d.norm(dim=-1)], -1)


def _angle(a: Tensor, b: Tensor) -> Tensor:
    """Compute angles in [0, π]; 0 where a vector is zero."""
    return torch.atan2(torch.linalg.cross(a, b).norm(dim=-1), (a * b).sum(-1))


def support_features(points: Tensor, keypoints: Tensor, options: PpfOptions, chunk: int) -> Iterator[Tensor]:
    """Compute point pair features of the supports of keypoints, for inference.

    Args:
        points: (N, 3) float32 in metres, with the viewpoint at the origin.
        keypoints: (K, 3).
        options: Radius, number of points and neighbours of normals.
        chunk: Keypoints at once.

    Yields:
        Features (chunk, P, 4), P ≤ `options.points`; zero for empty supports.
    """
    grid, normals = (
        NeighbourGrid.of(points),
        oriented_normals(points, options.neighbours, options.orientation),
    )
    references = normals[nearest(points, keypoints)]
    for keys, reference in zip(keypoints.split(chunk), references.split(chunk), strict=True):
        near, counts = find_supports(grid, keys, options.support, options.points)
        features = pair_features(keys, reference, points[near], normals[near])
        features[..., 3] /= options.support
        yield features.masked_fill((counts == 0)[:, None, None], 0.0)


class PpfEncoder(nn.Module):
    """Encode sets of point pair features as codewords, by maxima over the points."""

    def __init__(self) -> None:
        super().__init__()
        widths = (4, 64, 128, 256)
        self.linear = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(widths))
        self.norm = nn.ModuleList(nn.BatchNorm1d(b) for b in widths[1:])
        self.fuse = nn.Linear(sum(widths[1:]) + widths[-1], 1024)
        self.head = nn.Linear(1024, LENGTH)

    def forward(self, features: Tensor) -> Tensor:
        """Encode features (B, P, 4) as codewords (B, 512), which are not negative."""
        x, local = features, []
        for linear, norm in zip(self.linear, self.norm, strict=True):
            x = torch.relu(norm(linear(x).flatten(0, 1)).unflatten(0, x.shape[:2]))
            local.append(x)
        points = torch.cat(local, -1)  # (B, P, 448)
        whole = x.amax(1)  # (B, 256)
        # One product for the points and one for the whole equal the product of their concatenation.
        weight, split = self.fuse.weight, points.shape[-1]
        x = nn.functional.linear(points, weight[:, :split])
        x = x + nn.functional.linear(whole, weight[:, split:], self.fuse.bias)[:, None]
        return torch.relu(self.head(torch.relu(x))).amax(1)


class PpfFoldNet:
    """A descriptor peer, on the device of the points."""

    SOURCE: ClassVar[str] = "train it: wsdesc train --peer ppf-foldnet SCANS"
    FILES: ClassVar[tuple[str, ...]] = ("ppf-foldnet.safetensors",)

    def __init__(self, weights: Path) -> None:
        self.options = trained_options(Path(weights) / self.FILES[0], PpfOptions)
        self.network = self.load(weights)

    def load(self, weights: Path) -> nn.Module:
        """Load the network that encodes features."""
        return load_network(PpfEncoder(), weights, self.FILES[0], self.SOURCE)

    @torch.no_grad()
    def __call__(self, points: Tensor, keypoints: Tensor, unit: float = 1.0) -> Tensor:
        """Compute descriptors (K, 512) float32 of `keypoints` (K, 3) in `points` (N, 3)."""
        points, keypoints = to_metres(points, keypoints, unit)
        network, chunk = self.network.to(points.device), _CHUNK[points.device.type]
        parts = support_features(points, keypoints, self.options, chunk)
        return torch.cat([network(features) for features in parts])


class PpfTask(PeerTask):
    """The training of an autoencoder of point pair features."""

    options_type = PpfOptions
    options: PpfOptions

    def __init__(self, options: PpfOptions, clouds: TrainingClouds, device: torch.device) -> None:
        super().__init__(options, clouds, device)
        self.sampler = SupportSampler(
            clouds,
            options.voxel,
            options.support,
            options.points,
            device,
            lambda points: oriented_normals(points, options.neighbours, options.orientation),
        )

    def batch(self, generator: torch.Generator) -> Tensor:
        """Draw point pair features (B, P, 4)."""
        supports = self.sampler.sample(self.options.batch, generator)
        features = pair_features(*supports)
        features[..., 3] /= self.options.support
        return features

    def inference_state(self) -> dict[str, Tensor]:
        """Return the tensors of the encoder."""
        return dict(self.network.get_submodule("encoder").state_dict())


class PpfFoldNetTask(PpfTask):
    """The training of PPF-FoldNet."""

    def __init__(self, options: PpfOptions, clouds: TrainingClouds, device: torch.device) -> None:
        super().__init__(options, clouds, device)
        self.encoder, self.decoder = PpfEncoder(), FoldingDecoder(LENGTH, 4, options.points)
        self.network = nn.ModuleDict({"encoder": self.encoder, "decoder": self.decoder})
        initialise(self.network)
        self.network.to(device)

    def loss(self, batch: Tensor, generator: torch.Generator) -> Tensor:
        """Compute the Chamfer distance between features and their reconstruction, per point."""
        to_features, to_output = chamfer(self.decoder(self.encoder(batch)), batch)
        return (to_features + to_output).mean()
