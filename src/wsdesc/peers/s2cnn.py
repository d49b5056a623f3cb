"""S2CNN (Spezialetti, Salti, Di Stefano 2019): descriptors of spherical signals, trained by reconstruction.

A support becomes a signal on four concentric spheres. Equivariant correlations (`so3`) turn it into a map of
rotations, 8 × 8 × 8 numbers. A folding decoder reconstructs the support's points from the map; the Chamfer
distance is the loss. For the descriptor, the support is first turned into its local reference frame, which by
equivariance turns the map. `s2cnn-32` has a linear layer from 512 to 32 numbers before the decoder.

No code of the paper is public. Own choices: kernels near the identity, no normalisation after the last
correlation, the local reference frame of this package, and the 32 numbers. At test, points lie at even ranks
of their distance and are not random.
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from wsdesc.cloud.neighbours import NeighbourGrid
from wsdesc.descriptor.lrf import local_frames
from wsdesc.peers.base import to_metres
from wsdesc.peers.folding import FoldingDecoder, chamfer, initialise
from wsdesc.peers.so3 import RotationCorrelation, SphereCorrelation, betas
from wsdesc.peers.supports import find_supports
from wsdesc.peers.training.clouds import TrainingClouds
from wsdesc.peers.training.options import PeerTrainOptions
from wsdesc.peers.training.run import trained_options
from wsdesc.peers.training.supports import SupportSampler
from wsdesc.peers.training.task import PeerTask
from wsdesc.peers.weights import load_network

BANDWIDTH, SHELLS = 24, 4
_CHUNK = {"cuda": 256, "cpu": 16}  # keypoints at once


class S2Options(PeerTrainOptions):
    """Options of the training of S2CNN."""

    support: float = Field(0.3, gt=0, description="Radius of a support, in metres.")
    points: int = Field(1200, ge=16, description="Points of a support.")
    voxel: float = Field(0.02, gt=0, description="Voxel size of the training scans, in metres.")
    decoded: int = Field(1024, ge=16, description="Points of a reconstruction, a square number.")


class SphericalSignal(nn.Module):
    """Sample supports on concentric spheres.

    A cell of sphere k has the mean of the hat weights 1 − |r/h − (k + 1)| of the points in its row. Here h is
    the distance of two spheres. The window of azimuths widens towards the poles; it does not wrap around.
    """

    windows: Tensor

    def __init__(self) -> None:
        super().__init__()
        size = 2 * BANDWIDTH
        half = 0.5 / torch.from_numpy(betas(BANDWIDTH)).sin()  # (2b,) cells
        column = torch.arange(size)
        windows = (column[:, None] - column).abs() <= half[
            :, None, None
        ]  # (2b, 2b, 2b): row, column, azimuth
        self.register_buffer("windows", windows.float(), persistent=False)

    def forward(self, offsets: Tensor, valid: Tensor) -> Tensor:
        """Compute signals (K, 4, 48, 48) of offsets (K, P, 3) from the keypoint, in units of the radius.

        Points that are not `valid` (K, P) are ignored.
        """
        size = 2 * BANDWIDTH
        r = offsets.norm(dim=-1)
        valid = valid & (r > 0) & (r <= 1)
        row = (torch.acos((offsets[..., 2] / r.clamp(min=1e-12)).clamp(-1, 1)) * size / torch.pi).round()
        azimuth = torch.atan2(offsets[..., 1], offsets[..., 0]) % (2 * torch.pi)
        column = (azimuth * size / (2 * torch.pi)).round()
        cell = row.long().clamp(max=size - 1) * size + column.long().clamp(max=size - 1)  # (K, P)
        height = r * SHELLS
        shell = height.long().clamp(max=SHELLS - 1)
        # A point lies between two spheres; sphere −1 is the keypoint and is dropped.
        totals = offsets.new_zeros(2, len(offsets), (SHELLS + 1) * size * size)  # sums and numbers
        for sphere, weight in ((shell, height - shell), (shell - 1, 1 - (height - shell))):
            index = (sphere + 1) * size * size + cell
            totals[0].scatter_add_(1, index, torch.where(valid, weight, 0.0))
            totals[1].scatter_add_(1, index, valid.to(totals.dtype))
        grid = totals.view(2, len(offsets), SHELLS + 1, size, size)[:, :, 1:]
        sums, numbers = torch.einsum("tksja,jia->tksji", grid, self.windows)
        signals: Tensor = sums / numbers.clamp(min=1)
        return signals


class S2Encoder(nn.Module):
    """Encode spherical signals.

    Args:
        length: Numbers of the descriptor: 512, the last map, or fewer, a linear function of it.
    """

    def __init__(self, length: int = 512) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            SphereCorrelation(SHELLS, 40, BANDWIDTH, 16),
            nn.BatchNorm3d(40),
            nn.ReLU(),
            RotationCorrelation(40, 20, 16, 8),
            nn.BatchNorm3d(20),
            nn.ReLU(),
            RotationCorrelation(20, 1, 8, 4),
            nn.Flatten(),
        )
        self.head = nn.Identity() if length == 512 else nn.Linear(512, length)

    def forward(self, signals: Tensor) -> Tensor:
        """Encode signals (B, 4, 48, 48) as descriptors (B, length)."""
        with torch.autocast(signals.device.type, enabled=False):  # transforms need float32
            result: Tensor = self.head(self.layers(signals.float()))
            return result


class S2Cnn:
    """A descriptor peer of 512 numbers, on the device of the points."""

    LENGTH: ClassVar[int] = 512
    SOURCE: ClassVar[str] = "train it: wsdesc train --peer s2cnn-512 SCANS"
    FILES: ClassVar[tuple[str, ...]] = ("s2cnn-512.safetensors",)

    def __init__(self, weights: Path) -> None:
        self.options = trained_options(Path(weights) / self.FILES[0], S2Options)
        self.network = load_network(S2Encoder(self.LENGTH), weights, self.FILES[0], self.SOURCE)
        self.signal = SphericalSignal()

    @torch.no_grad()
    def __call__(self, points: Tensor, keypoints: Tensor, unit: float = 1.0) -> Tensor:
        """Compute descriptors (K, LENGTH) float32 of `keypoints` (K, 3) in `points` (N, 3)."""
        points, keypoints = to_metres(points, keypoints, unit)
        network, signal = self.network.to(points.device), self.signal.to(points.device)
        grid, o = NeighbourGrid.of(points), self.options
        result = []
        for keys in keypoints.split(_CHUNK[points.device.type]):
            frames = local_frames(grid, keys, o.support).frames
            near, counts = find_supports(grid, keys, o.support, o.points)
            offsets = (points[near] - keys[:, None]) @ frames / o.support
            valid = torch.arange(near.shape[1], device=near.device) < counts[:, None]
            result.append(network(signal(offsets, valid)))
        return torch.cat(result)


class S2Cnn32(S2Cnn):
    """A descriptor peer of 32 numbers."""

    LENGTH = 32
    SOURCE = "train it: wsdesc train --peer s2cnn-32 SCANS"
    FILES = ("s2cnn-32.safetensors",)


class S2CnnTask(PeerTask):
    """The training of S2CNN on supports in the orientation of their scans."""

    options_type = S2Options
    options: S2Options
    length: ClassVar[int] = 512

    def __init__(self, options: S2Options, clouds: TrainingClouds, device: torch.device) -> None:
        super().__init__(options, clouds, device)
        self.sampler = SupportSampler(clouds, options.voxel, options.support, options.points, device)
        self.signal = SphericalSignal().to(device)
        self.encoder = S2Encoder(self.length)
        self.decoder = FoldingDecoder(self.length, 3, options.decoded)
        self.network = nn.ModuleDict({"encoder": self.encoder, "decoder": self.decoder})
        initialise(self.network)
        self.network.to(device)

    def batch(self, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Draw supports (B, P, 3) in units of the radius, and their signals (B, 4, 48, 48)."""
        supports = self.sampler.sample(self.options.batch, generator)
        offsets = (supports.points - supports.keypoints[:, None]) / self.options.support
        return offsets, self.signal(offsets, torch.ones_like(offsets[..., 0], dtype=torch.bool))

    def loss(self, batch: tuple[Tensor, Tensor], generator: torch.Generator) -> Tensor:
        """Compute the Chamfer distance between supports and their reconstruction, per point."""
        offsets, signals = batch
        to_points, to_output = chamfer(self.decoder(self.encoder(signals)), offsets)
        return (to_points + to_output).mean()

    def inference_state(self) -> dict[str, Tensor]:
        """Return the tensors of the encoder."""
        return self.encoder.state_dict()


class S2Cnn32Task(S2CnnTask):
    """The training of S2CNN with 32 numbers."""

    length = 32
