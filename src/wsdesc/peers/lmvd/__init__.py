"""LMVD, the local multi-view descriptor (Li et al. 2020): 32 numbers per keypoint, from published weights.

Eight cameras around the keypoint, with learned positions relative to its normal, render depth images of the
whole cloud. The images and their turns by 90° are described by a CNN and pooled with learned weights.
Normals point to the origin, where the sensor stands. A fixed direction, `up`, orients the cameras, so the
descriptor is invariant to rotations about that direction only.
"""

from __future__ import annotations

from pathlib import Path

import torch
from scipy.spatial import cKDTree
from torch import Tensor

from wsdesc.peers.base import to_metres
from wsdesc.peers.lmvd.cameras import Cameras
from wsdesc.peers.lmvd.network import Embedding, SoftViewPooling, ViewNetwork
from wsdesc.peers.lmvd.render import render_depth
from wsdesc.peers.weights import load_network

_BATCH = {"cpu": 4, "cuda": 32}  # keypoints per batch
_NORMAL_NEIGHBOURS = 30


class Lmvd:
    """A descriptor peer. It runs on the device of the points."""

    SOURCE = "LMVD's weights, github craigleili/3DLocalMultiViewDesc, MIT, converted to safetensors"
    FILES = (
        "lmvd-renderer.safetensors",
        "lmvd-cnn.safetensors",
        "lmvd-pool.safetensors",
        "lmvd-embed.safetensors",
    )
    FULL_CLOUD = True  # descriptors are computed in the scan as it is, not downsampled

    def __init__(self, weights: Path, point_radius: float = 0.025, distance_factor: float = 1.0) -> None:
        """Load the networks.

        Args:
            weights: Folder of the weights.
            point_radius: Radius of a drawn point, in metres: 0.025 for 3DMatch, 0.1 for ETH.
            distance_factor: Factor of the cameras' distances from the keypoint: 1 for 3DMatch, 3 for ETH.
        """
        self.point_radius, self.distance_factor = point_radius, distance_factor
        cameras, views, pooling, embedding = self.FILES
        self.cameras = load_network(Cameras(), weights, cameras, self.SOURCE)
        self.views = load_network(ViewNetwork(), weights, views, self.SOURCE)
        self.pooling = load_network(SoftViewPooling(), weights, pooling, self.SOURCE)
        self.embedding = load_network(Embedding(), weights, embedding, self.SOURCE)

    @torch.no_grad()
    def __call__(self, points: Tensor, keypoints: Tensor, unit: float = 1.0) -> Tensor:
        """Compute descriptors (K, 32) float32 of unit length of `keypoints` (K, 3) in `points` (N, 3)."""
        device = points.device
        for network in (self.cameras, self.views, self.pooling, self.embedding):
            network.to(device)
        cloud, queries = to_metres(points, keypoints, unit)
        normals = _normals_towards_origin(cloud, queries)
        result = [queries.new_zeros(0, 32)]
        batch = _BATCH.get(device.type, 4)
        for start in range(0, len(queries), batch):
            chosen = slice(start, start + batch)
            clip = self.cameras(queries[chosen], normals[chosen], self.distance_factor)  # (B, 8, 4, 4)
            images = render_depth(cloud, clip.flatten(0, 1), self.point_radius).unflatten(0, clip.shape[:2])
            result.append(self._describe(images))
        return torch.cat(result)

    def _describe(self, images: Tensor) -> Tensor:
        """Describe depth images (B, 8, 64, 64) of keypoints: (B, 32)."""
        turned = torch.cat(
            [images.rot90(quarter, dims=(-2, -1)) for quarter in range(4)], dim=1
        )  # (B, 32, …)
        features = self.views(turned.flatten(0, 1)[:, None])  # (B · 32, 128, 8, 8)
        pooled = self.pooling(features.unflatten(0, turned.shape[:2]))
        return torch.nn.functional.normalize(self.embedding(pooled), dim=1)


class LmvdEth(Lmvd):
    """The authors' settings for ETH: larger points and distances."""

    def __init__(self, weights: Path) -> None:
        super().__init__(weights, point_radius=0.1, distance_factor=3.0)


def _normals_towards_origin(cloud: Tensor, keypoints: Tensor) -> Tensor:
    """Fit planes to the nearest points of keypoints (K, 3): unit normals (K, 3) towards the origin."""
    count = min(_NORMAL_NEIGHBOURS, len(cloud))
    near = cKDTree(cloud.cpu().numpy()).query(keypoints.cpu().numpy(), range(1, count + 1))[1]  # (K, count)
    patches = cloud[torch.from_numpy(near).to(cloud.device)].double()
    patches = patches - patches.mean(1, keepdim=True)
    normals = torch.linalg.eigh(patches.transpose(1, 2) @ patches)[1][..., 0]
    away = (normals * keypoints.double()).sum(1, keepdim=True) > 0
    return torch.where(away, -normals, normals).float()
