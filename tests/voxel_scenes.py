"""Scenes for the tests of the voxelization, and its gradients."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from scipy.spatial.transform import Rotation
from torch import Tensor

from wsdesc import voxelize

SIGMA = 1e-3


class VoxelScene(NamedTuple):
    """Arguments of a voxelization."""

    points: Tensor  # (N, 3)
    keypoints: Tensor  # (K, 3)
    frames: Tensor  # (K, 3, 3)


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def rotations(count: int, seed: int = 0) -> Tensor:
    return torch.from_numpy(Rotation.random(count, random_state=seed).as_matrix())


def random_scene(n: int = 1000, keypoints: int = 3, seed: int = 0) -> VoxelScene:
    """Create points in a cube of side 2, keypoints among them, and random frames."""
    points = torch.rand(n, 3, generator=seeded(seed)) * 2 - 1
    return VoxelScene(points, points[:keypoints].clone(), rotations(keypoints, seed).float())


def scan_scene(scan: Tensor, keypoints: int = 2) -> VoxelScene:
    """Use every sixth point of a real scan."""
    points = scan[::6].contiguous()
    return VoxelScene(
        points, points[500 :: len(points) // keypoints][:keypoints], rotations(keypoints).float()
    )


def band_of(sigma: float, cutoff: float) -> float:
    return math.sqrt(sigma * math.log(1 / cutoff - 1))


def distances(scene: VoxelScene, support: float, h: int) -> Tensor:
    """Compute the distances (K, N, h³) from points to voxel centres, in float64."""
    axis = (torch.arange(h, dtype=torch.float64) + 0.5) / h - 0.5
    centres = support * torch.cartesian_prod(axis, axis, axis)
    local = (scene.points.double() - scene.keypoints.double()[:, None]) @ scene.frames.double()
    return torch.cdist(local, centres.expand(len(local), -1, 3))


def pairs_at_cutoff(
    scene: VoxelScene, support: float, h: int, sigma: float = SIGMA, cutoff: float = 1e-3, width: float = 1e-5
) -> Tensor:
    """Find the pairs (K, N, h³) whose probability equals the cut-off up to rounding."""
    return (distances(scene, support, h) - support / (2 * h) - band_of(sigma, cutoff)).abs() < width


def without_cutoff_pairs(
    scene: VoxelScene, support: float, h: int, sigma: float = SIGMA, width: float = 1e-5
) -> VoxelScene:
    """Remove the points that are at the cut-off of a voxel: rounding decides whether they count."""
    at_cutoff = pairs_at_cutoff(scene, support, h, sigma, width=width).any(2).any(0)
    return scene._replace(points=scene.points[~at_cutoff])


def gradients(scene: VoxelScene, support: Tensor, h: int, backend: str) -> tuple[Tensor, Tensor]:
    """Compute the gradients of points and support for a fixed random upstream gradient."""
    points, support = scene.points.clone().requires_grad_(), support.clone().requires_grad_()
    grids = voxelize(points, scene.keypoints, scene.frames, support, h, SIGMA, backend=backend)
    upstream = torch.randn(grids.shape, generator=seeded(1)).to(grids.device)
    return torch.autograd.grad((grids * upstream).sum(), (points, support))
