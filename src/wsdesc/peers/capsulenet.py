"""CapsuleNet: a 3D point capsule network (Zhao et al. 2019) on point pair features, 512 numbers per keypoint.

The input is that of PPF-FoldNet. 1024 primary capsules of 16 numbers are routed to 32 latent capsules of 16
numbers, the descriptor. Small decoders reconstruct the features from them; the Chamfer distance is the loss.

Differences from the public code: 32 × 16 latent capsules (not 64 × 64), four numbers per point, and those
that `ppf_foldnet` lists.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from wsdesc.peers.folding import chamfer
from wsdesc.peers.ppf_foldnet import PpfFoldNet, PpfOptions, PpfTask
from wsdesc.peers.training.clouds import TrainingClouds
from wsdesc.peers.weights import load_network

PRIMARY, LATENT, SIZE = 1024, 32, 16  # capsules, and numbers of a capsule
_ROUNDS = 3


class CapsuleOptions(PpfOptions):
    """Options of the training of CapsuleNet."""

    weight_decay: float = Field(0.0, ge=0, description="Weight decay of Adam.")


def squash(u: Tensor) -> Tensor:
    """Shorten capsules (…, D) to lengths below 1, in the same direction."""
    squared = u.square().sum(-1, keepdim=True)
    return squared / (1 + squared) * u / (squared + 1e-16).sqrt()  # its gradient is finite at 0


def route(votes: Tensor) -> tuple[Tensor, Tensor]:
    """Combine the votes (B, J, I, D) of I primary capsules for J latent ones by agreement.

    Only the last round passes gradients to the votes.

    Returns:
        The latent capsules (B, J, D), and the couplings (B, J, I), which sum to 1 over J.
    """
    fixed = votes.detach()
    agreement = votes.new_zeros(votes.shape[:3])
    for _ in range(_ROUNDS - 1):
        latent = squash(torch.einsum("bji,bjid->bjd", agreement.softmax(1), fixed))
        agreement = agreement + torch.einsum("bjd,bjid->bji", latent, fixed)
    coupling = agreement.softmax(1)
    return squash(torch.einsum("bji,bjid->bjd", coupling, votes)), coupling


class CapsuleEncoder(nn.Module):
    """Encode sets of point pair features as latent capsules."""

    def __init__(self) -> None:
        super().__init__()
        widths = (4, 64, 128)
        self.linear = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(widths))
        self.norm = nn.ModuleList(nn.BatchNorm1d(b) for b in widths[1:])
        self.primary = nn.ModuleList(nn.Linear(widths[-1], PRIMARY) for _ in range(SIZE))
        self.primary_norm = nn.ModuleList(nn.BatchNorm1d(PRIMARY) for _ in range(SIZE))
        # Matrices of all pairs of a primary and a latent capsule: (I, D, J · D).
        self.routing = nn.Parameter(0.01 * torch.randn(PRIMARY, SIZE, LATENT * SIZE))

    def forward(self, features: Tensor) -> Tensor:
        """Encode features (B, P, 4) as latent capsules (B, 512)."""
        return self.capsules(features)[0].flatten(1)

    def capsules(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Compute latent capsules (B, J, D) and couplings (B, J, I); see `route`."""
        x, shape = features.flatten(0, 1), features.shape[:2]
        for linear, norm in zip(self.linear, self.norm, strict=True):
            x = torch.relu(norm(linear(x)))
        branches = [
            norm(linear(x)).unflatten(0, shape).amax(1)
            for linear, norm in zip(self.primary, self.primary_norm, strict=True)
        ]
        with torch.autocast(features.device.type, enabled=False):
            u = squash(torch.stack(branches, -1).float())  # (B, I, D)
            votes = torch.bmm(u.transpose(0, 1), self.routing)  # (I, B, J · D)
            return route(votes.unflatten(-1, (LATENT, SIZE)).permute(1, 2, 0, 3))


class CapsuleDecoder(nn.Module):
    """Reconstruct 1024 points of four numbers by 32 perceptrons on all capsules and two random numbers."""

    def __init__(self) -> None:
        super().__init__()
        widths = (SIZE + 2, SIZE + 2, (SIZE + 2) // 2, (SIZE + 2) // 4, 4)
        layers: list[nn.Module] = []
        for a, b in pairwise(widths):
            layers += [nn.Conv1d(LATENT * a, LATENT * b, 1, groups=LATENT)]
            layers += [nn.BatchNorm1d(LATENT * b), nn.ReLU()]
        self.layers = nn.Sequential(*layers[:-2], nn.Tanh())

    def forward(self, capsules: Tensor, noise: Tensor) -> Tensor:
        """Decode capsules (B, 512) with noise (B, 32, 2, 32) in [0, 1): points (B, 1024, 4)."""
        columns = capsules.unflatten(1, (LATENT, SIZE)).transpose(1, 2)  # (B, D, J)
        columns = columns[:, None].expand(-1, LATENT, -1, -1)
        decoded = self.layers(torch.cat([columns, noise], 2).flatten(1, 2))  # (B, 32 · 4, J)
        points: Tensor = decoded.unflatten(1, (LATENT, 4)).transpose(2, 3).flatten(1, 2)
        return points


class CapsuleNet(PpfFoldNet):
    """A descriptor peer, on the device of the points."""

    SOURCE: ClassVar[str] = "train it: wsdesc train --peer capsulenet SCANS"
    FILES: ClassVar[tuple[str, ...]] = ("capsulenet.safetensors",)

    def load(self, weights: Path) -> nn.Module:
        """Load the network that encodes features."""
        return load_network(CapsuleEncoder(), weights, self.FILES[0], self.SOURCE)


class CapsuleNetTask(PpfTask):
    """The training of CapsuleNet."""

    options_type = CapsuleOptions

    def __init__(self, options: PpfOptions, clouds: TrainingClouds, device: torch.device) -> None:
        super().__init__(options, clouds, device)
        self.encoder, self.decoder = CapsuleEncoder(), CapsuleDecoder()
        self.network = nn.ModuleDict({"encoder": self.encoder, "decoder": self.decoder}).to(device)

    def loss(self, batch: Tensor, generator: torch.Generator) -> Tensor:
        """Compute the mean of both directions of the Chamfer distance to the reconstruction."""
        noise = torch.rand((len(batch), LATENT, 2, LATENT), generator=generator, device=self.device)
        to_features, to_output = chamfer(self.decoder(self.encoder(batch), noise), batch)
        return 0.5 * (to_features + to_output).mean()
