"""Differentiable voxelization: a grid of occupancy probabilities around each keypoint.

Voxel k of a keypoint's grid is a ball of radius r = s/(2h) about o = keypoint + frame · (s c). Here s is the
support, h the number of voxels per axis, and c the voxel's centre in the unit cube about 0. A point at the
distance δ from o is inside with the probability p = sigmoid(−sign(d) d²/σ), d = δ − r. The voxel's value
v = 1 − Π(1 − p) is the probability that at least one point is inside. It is differentiable in the support
and in the points.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from wsdesc.cloud.neighbours import NeighbourGrid, check_points, check_shape
from wsdesc.core.devices import choose_backend
from wsdesc.core.errors import InputError
from wsdesc.descriptor.voxelize.arguments import VoxelizeArguments

__all__ = ["voxelize"]

MIN_CUTOFF = 1e-3  # the kernels' polynomials are accurate down to this probability


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
    """Compute the voxel grids of keypoints. Gradients flow to `points` and `support`.

    Args:
        points: Points (N, 3), or a `NeighbourGrid` of them (then without a gradient to the points).
        keypoints: Keypoints (K, 3), in the unit of the points.
        frames: Local frames (K, 3, 3) that the grids are aligned with; the columns are x, y, z.
        support: Side length of the grid, a scalar or (K,), in the unit of the points.
        resolution: Number of voxels per axis, h.
        sigma: Softness σ of a voxel's surface, a squared length in the unit of the points.
        cutoff: Smallest probability of a point in a voxel that counts. It makes the cost depend on the points
            near a keypoint only. None takes all points.
        backend: "auto", "reference" (plain torch, any device), "numba" (CPU) or "triton" (CUDA). Only the
            reference takes float64 points and cut-offs below 0.001.

    Returns:
        Values (K, h, h, h) in [0, 1].

    Raises:
        InputError: An argument has a wrong shape or value, or the backend does not support it.
    """
    grid = points if isinstance(points, NeighbourGrid) else None
    cloud = grid.points if grid is not None else check_points(points)  # type: ignore[arg-type]
    keypoints, frames, support, min_support = _check_tensors(cloud, keypoints, frames, support)
    _check_options(resolution, sigma, cutoff)
    arguments = VoxelizeArguments(grid, keypoints, frames, resolution, sigma, cutoff, min_support)
    match _choose_backend(backend, cloud, cutoff):
        case "numba":
            from wsdesc.descriptor.voxelize import cpu as implementation
        case "triton":
            from wsdesc.descriptor.voxelize import cuda as implementation  # type: ignore[no-redef]
        case _:
            from wsdesc.descriptor.voxelize import reference as implementation  # type: ignore[no-redef]
    return implementation.voxelize(cloud, support, arguments)


def _choose_backend(backend: str, points: Tensor, cutoff: float | None) -> str:
    """Resolve "auto", and reject a backend that cannot compute with these points or this cut-off."""
    needs_reference = cutoff is None or cutoff < MIN_CUTOFF or points.dtype != torch.float32
    if needs_reference and backend == "auto":
        return "reference"
    backend = choose_backend(backend, points)
    if needs_reference and backend != "reference":
        raise InputError(
            f"the {backend} backend takes float32 points and cut-offs from {MIN_CUTOFF}: "
            "use backend='reference'"
        )
    return backend


def _check_tensors(
    points: Tensor, keypoints: Tensor, frames: Tensor, support: Tensor | float
) -> tuple[Tensor, Tensor, Tensor, float]:
    """Check shapes and values.

    Returns:
        Keypoints (K, 3) and frames (K, 3, 3) without gradients, supports (K,) with theirs, all in the number
        type of the points; and the smallest support.
    """
    check_shape(keypoints, "keypoints")
    keypoints = keypoints.detach().to(points).contiguous()
    count = len(keypoints)
    frames = frames.detach().to(points).contiguous()
    if frames.shape != (count, 3, 3):
        raise InputError(f"frames must have the shape ({count}, 3, 3), not {tuple(frames.shape)}")
    support = torch.as_tensor(support, dtype=points.dtype, device=points.device)
    if support.ndim > 1 or (support.ndim == 1 and len(support) not in (1, count)):
        raise InputError(f"support must be a scalar or of shape ({count},), not {tuple(support.shape)}")
    # One transfer for all checks, because each would wait for the GPU. A sum is finite if all its terms are.
    sums = keypoints.sum(), frames.sum()
    smallest, largest, *finite = torch.stack([*torch.aminmax(support.detach()), *sums]).tolist()
    if not all(map(math.isfinite, finite)):
        raise InputError("keypoints or frames are not finite")
    if not 0 < smallest <= largest < math.inf:
        raise InputError(f"supports must be positive and finite, not {smallest} to {largest}")
    return keypoints, frames, support.expand(count).contiguous(), smallest


def _check_options(resolution: int, sigma: float, cutoff: float | None) -> None:
    if resolution < 1 or not 0 < sigma < math.inf:
        raise InputError(f"resolution and sigma must be positive, not {resolution} and {sigma}")
    if cutoff is not None and not 0 < cutoff < 0.5:
        raise InputError(f"the cut-off must lie between 0 and 0.5, not {cutoff}; None takes all points")
