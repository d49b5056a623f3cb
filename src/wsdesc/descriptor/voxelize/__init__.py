"""Differentiable voxelization: the points around each keypoint as a grid of probabilities.

Voxel k of a keypoint's grid is a ball of radius r = s/(2h) about o = keypoint + frame · (s c), c its
place in the unit cube about 0. A point at distance δ from o is inside with probability
p = sigmoid(-d|d|/σ), d = δ - r, and the voxel's value is the probability that any point is:
v = 1 - Π(1 - p). The value is differentiable in the support s and in the points.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from wsdesc.cloud.neighbours import NeighbourGrid, check_points, check_shape
from wsdesc.core.devices import choose
from wsdesc.core.errors import InputError
from wsdesc.descriptor.voxelize import reference
from wsdesc.descriptor.voxelize.task import Task

__all__ = ["voxelize"]


def voxelize(
    points: Tensor | NeighbourGrid,
    keypoints: Tensor,
    frames: Tensor,
    support: Tensor | float,
    resolution: int = 16,
    sigma: float = 1e-3,
    cutoff: float | None = 1e-3,
    backend: str = "auto",
) -> Tensor:
    """Voxel grids of `keypoints` (K, 3), turned by `frames` (K, 3, 3): (K, h, h, h) in [0, 1].

    points      (N, 3), or a `NeighbourGrid` of them built before (then without a gradient to them)
    support     side s of the grid, a scalar or (K,), in the points' unit
    resolution  h, voxels an axis
    sigma       softness σ, a squared length: it scales with the square of the unit
    cutoff      pairs of point and voxel less probable than this are left out, so that the cost follows
                the points near a keypoint; None takes all of them
    backend     "auto", "reference" (plain torch), "numba" (CPU) or "triton" (CUDA); the reference alone
                takes float64 points and cut-offs below 0.001

    Gradients reach `points` and `support`; keypoints and frames are taken as constants.
    """
    grid = points if isinstance(points, NeighbourGrid) else None
    cloud = grid.points if grid is not None else check_points(points)  # type: ignore[arg-type]
    keypoints, frames, support, smallest = _check(cloud, keypoints, frames, support)
    _check_options(resolution, sigma, cutoff)
    plain = cutoff is None or cutoff < 1e-3 or cloud.dtype != torch.float32
    backend = "reference" if plain and backend == "auto" else choose(backend, cloud)
    if backend == "reference":
        return reference.voxelize(cloud, keypoints, frames, support, resolution, sigma, cutoff)
    if plain:
        raise InputError(f"{backend} takes float32 points and cut-offs from 0.001: use backend='reference'")
    grid = grid or NeighbourGrid.of(cloud)
    band = reference.band_width(sigma, cutoff)
    task = Task(grid, keypoints, frames, resolution, sigma, band, smallest)
    if backend == "numba":
        from wsdesc.descriptor.voxelize import cpu as fast
    else:
        from wsdesc.descriptor.voxelize import cuda as fast  # type: ignore[no-redef]
    values: Tensor = fast.Voxelize.apply(cloud, support, task)
    return values


def _check(
    cloud: Tensor, keypoints: Tensor, frames: Tensor, support: Tensor | float
) -> tuple[Tensor, Tensor, Tensor, float]:
    """Constants in the cloud's precision; one support a keypoint, still attached to its gradient, and the
    smallest of them. Values are looked at once, since a GPU must be waited for."""
    check_shape(keypoints, "keypoints")
    keypoints = keypoints.detach().to(cloud).contiguous()
    count = len(keypoints)
    frames = frames.detach().to(cloud).contiguous()
    if frames.shape != (count, 3, 3):
        raise InputError(f"frames must have shape ({count}, 3, 3), one a keypoint, not {tuple(frames.shape)}")
    support = torch.as_tensor(support, dtype=cloud.dtype, device=cloud.device)
    if support.ndim > 1 or (support.ndim == 1 and len(support) not in (1, count)):
        raise InputError(f"support must be a scalar or of shape ({count},), not {tuple(support.shape)}")
    totals = keypoints.sum(), frames.sum()  # a sum is finite only where all its terms are
    smallest, largest, *sums = torch.stack([*torch.aminmax(support.detach()), *totals]).tolist()
    if not all(map(math.isfinite, sums)):
        raise InputError("keypoints or frames are not finite")
    if not 0 < smallest <= largest < math.inf:
        raise InputError(f"support sizes must be positive and finite, not {smallest} to {largest}")
    return keypoints, frames, support.expand(count).contiguous(), smallest


def _check_options(resolution: int, sigma: float, cutoff: float | None) -> None:
    if resolution < 1 or not 0 < sigma < math.inf:
        raise InputError(f"resolution and sigma must be positive, not {resolution} and {sigma}")
    if cutoff is not None and not 0 < cutoff < 0.5:
        raise InputError(f"a cut-off must lie between 0 and 0.5, not {cutoff}; None takes every pair")
