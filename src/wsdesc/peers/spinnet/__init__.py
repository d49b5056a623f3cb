"""SpinNet (Ao et al. 2021): 32 numbers per keypoint, from published weights.

The support is turned so that its normal is the z axis. Spherical voxels around the keypoint are described by
a point layer, then by convolutions that are circular in azimuth. The maximum over the sphere's surface is
invariant to the remaining rotation about z. The normal points to the origin, where the sensor stands.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from wsdesc.peers.base import to_metres
from wsdesc.peers.spinnet.network import SpinNetNetwork
from wsdesc.peers.spinnet.patches import align_with_z, gather_patches
from wsdesc.peers.spinnet.point_layer import VoxelGrid, point_layer
from wsdesc.peers.weights import load_network

_BATCH = {"cpu": 8, "cuda": 64}  # keypoints per batch
_DISTANCES = 2**26  # between keypoints and points, in memory at once
_GITHUB = "github QingyongHu/SpinNet, licence file MIT, README CC BY-NC-SA 4.0, converted to safetensors"


@dataclass(frozen=True)
class SpinNetSettings:
    """Sizes of the support and its voxels, in metres. The defaults are those for 3DMatch."""

    radius: float = 0.30
    cells: tuple[int, int, int] = (9, 40, 80)  # of radius, elevation and azimuth
    voxel_radius: float = 0.04  # distance from a voxel's centre within which points belong to it
    samples: int = 30  # largest number of points of a voxel
    patch: int = 2048  # points of a support
    estimates_axis: bool = True  # False: the sensor's z axis is used, and the keypoint fills small patches
    unit_length: bool = False  # normalise descriptors; the published evaluation does not


class SpinNet:
    """A descriptor peer with the weights trained on 3DMatch. It runs on the device of the points."""

    SOURCE = f"SpinNet's weights for 3DMatch, {_GITHUB}"
    FILES: tuple[str, ...] = ("spinnet-3dmatch.safetensors",)
    FULL_CLOUD = True  # descriptors are computed in the scan as it is, not downsampled
    SETTINGS = SpinNetSettings()

    def __init__(self, weights: Path, settings: SpinNetSettings | None = None, seed: int = 0) -> None:
        """Load the network.

        Args:
            weights: Folder of the weights.
            settings: Sizes; default: those of the class.
            seed: Seed of the random choice of points of a support.
        """
        self.settings, self.seed = settings or self.SETTINGS, seed
        self.network = load_network(
            SpinNetNetwork(),
            weights,
            self.FILES[0],
            self.SOURCE,
            prefix="module.",
            leftovers=("bn_mapping.",),
        )

    @torch.no_grad()
    def __call__(self, points: Tensor, keypoints: Tensor, unit: float = 1.0) -> Tensor:
        """Compute descriptors (K, 32) float32 of `keypoints` (K, 3) in `points` (N, 3)."""
        settings, device = self.settings, points.device
        network = self.network.to(device)
        cloud, queries = to_metres(points, keypoints, unit)
        # One shuffle of the cloud draws the points of all supports. Each support is independent of the batch.
        order = torch.randperm(len(cloud), generator=torch.Generator().manual_seed(self.seed))
        cloud = cloud[order.to(device)].contiguous()
        grid = VoxelGrid.of(settings.radius, settings.cells, settings.voxel_radius, settings.samples, device)
        descriptors = queries.new_zeros(len(queries), 32)
        batch = max(1, min(_BATCH.get(device.type, 8), _DISTANCES // max(1, len(cloud))))
        for start in range(0, len(queries), batch):
            chosen = queries[start : start + batch]
            patches = gather_patches(
                cloud, chosen, settings.radius, settings.patch, repeat=settings.estimates_axis
            )  # (B, P, 3)
            if settings.estimates_axis:
                patches = align_with_z(patches, towards=-chosen)
            signal = point_layer(patches, grid, *network.point_weights())  # (B, 16, rad, ele, azi)
            descriptors[start : start + batch] = network(signal)
        if settings.unit_length:
            descriptors = torch.nn.functional.normalize(descriptors, dim=1)
        return descriptors.nan_to_num(0.0)


class SpinNetEth(SpinNet):
    """The authors' settings for ETH: larger lengths, weights for 3DMatch, coordinates not rescaled."""

    SETTINGS = SpinNetSettings(radius=0.80, voxel_radius=0.10)


class SpinNetKitti(SpinNet):
    """The weights and settings for KITTI; z is the sensor's own axis."""

    SOURCE = f"SpinNet's weights for KITTI, {_GITHUB}"
    FILES = ("spinnet-kitti.safetensors",)
    SETTINGS = SpinNetSettings(2.0, (9, 30, 60), 0.30, estimates_axis=False)
