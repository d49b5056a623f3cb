"""Local reference frames (LRF): they make descriptors invariant to rotation.

The neighbours of a keypoint are all points within a radius, without the keypoint itself. With their offsets o
from the keypoint:

- z is the eigenvector of the smallest eigenvalue of Σ o oᵀ, over the neighbours within `radius`.
- z points away from the neighbours within the orientation radius r: Σ z·o ≤ 0.
- x is the direction of Σ (r − ‖o‖)² (z·o)² (o − (z·o) z), over the same neighbours.
- y = z × x.

In the paper both radii are equal. With twice the orientation radius a third more frames agree between two
scans (`python -m benchmarks.frame_repeatability`): a small neighbourhood is often too flat to give x.

Degenerate neighbourhoods also get a right-handed orthonormal frame, but are flagged as not reliable:

- Without neighbours, the frame is the identity.
- Where the smallest eigenvalue is not unique (a line, a ball of noise), z is one of its eigenvectors.
- Where x is undetermined (a perfect plane), it is the coordinate axis farthest from z, projected into the
  plane. A mean height over the plane below 1e-4 of the radius counts as a perfect plane, because rounding
  would otherwise determine x and the sign of z.
"""

from __future__ import annotations

import torch
from torch import Tensor

from wsdesc.cloud.neighbours import NeighbourGrid, check_points
from wsdesc.core.devices import choose_backend
from wsdesc.core.errors import InputError
from wsdesc.core.geometry import check_length
from wsdesc.descriptor.lrf.reference import LocalFrames

__all__ = ["LocalFrames", "local_frames"]


@torch.no_grad()
def local_frames(
    points: Tensor | NeighbourGrid,
    keypoints: Tensor,
    radius: float = 0.3,
    orientation_radius: float | None = None,
    *,
    backend: str = "auto",
) -> LocalFrames:
    """Compute the local reference frames of keypoints. No gradient flows through them.

    Args:
        points: Points (N, 3), or a `NeighbourGrid` of them.
        keypoints: Keypoints (K, 3), in the unit of the points.
        radius: Radius of the neighbourhood that gives the axis z, in the unit of the points.
        orientation_radius: Radius of the neighbourhood that gives the sign of z, and x. None: `radius`.
        backend: "auto", "reference" (plain torch, any device), "numba" (CPU) or "triton" (CUDA).

    Returns:
        `frames` (K, 3, 3), whose columns are x, y and z, and `reliable` (K,) bool.

    Raises:
        InputError: An argument has a wrong shape or value, or the backend does not support the device.
    """
    check_points(keypoints, "keypoints")
    check_length(radius, "the radius of a frame")
    outer = radius if orientation_radius is None else orientation_radius
    check_length(outer, "the orientation radius of a frame")
    if outer < radius:
        raise InputError(f"the orientation radius {outer} is smaller than the radius {radius} of a frame")
    grid = points if isinstance(points, NeighbourGrid) else NeighbourGrid.of(points)
    keypoints = keypoints.detach().to(grid.points.dtype).contiguous()
    match choose_backend(backend, grid.points):
        case "numba":
            from wsdesc.descriptor.lrf import cpu as implementation
        case "triton":
            from wsdesc.descriptor.lrf import cuda as implementation  # type: ignore[no-redef]
        case _:
            from wsdesc.descriptor.lrf import reference as implementation  # type: ignore[no-redef]
    return implementation.local_frames(grid, keypoints, radius, outer)
