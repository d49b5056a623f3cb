"""Local reference frames: the orientation that makes a descriptor invariant to rotation.

z is the direction in which the neighbourhood is thinnest, pointing away from where the neighbours lie;
x points to where the surface leaves the tangent plane most, near neighbours counting more; y = z × x.

Where the neighbourhood does not fix an axis, the answer is still a right-handed frame, and the keypoint
is flagged as not reliable: with no neighbours the frame is the identity; where the thinnest direction
is not unique (a line, a ball of noise) z is one of the candidates; where x is undetermined (a perfect
plane) it is the coordinate axis farthest from z, brought into the plane. Neighbours that lie in a plane
up to a ten-thousandth of the radius are taken for a perfect one: what fixes x and the sign of z there
is rounding.
"""

from __future__ import annotations

import torch
from torch import Tensor

from wsdesc.cloud.neighbours import NeighbourGrid, check_points
from wsdesc.core.devices import choose
from wsdesc.core.errors import InputError
from wsdesc.descriptor.lrf import reference
from wsdesc.descriptor.lrf.reference import LocalFrames

__all__ = ["LocalFrames", "local_frames"]


@torch.no_grad()
def local_frames(
    points: Tensor | NeighbourGrid, keypoints: Tensor, radius: float = 0.3, *, backend: str = "auto"
) -> LocalFrames:
    """Frames of `keypoints` (K, 3) from all `points` (N, 3) within `radius` of them; one unit for all.

    Returns `axes` (K, 3, 3), whose columns are x, y and z in the cloud's coordinates, and `reliable`
    (K,) bool. No gradient flows through frames. A `NeighbourGrid` built before may stand for the points.
    `backend`: "auto", "reference" (plain torch, any device), "numba" (CPU) or "triton" (CUDA).
    """
    check_points(keypoints, "keypoints")
    if not radius > 0:
        raise InputError(f"the radius of a frame must be positive, not {radius}")
    grid = points if isinstance(points, NeighbourGrid) else NeighbourGrid.of(points)
    keypoints = keypoints.detach().to(grid.points.dtype).contiguous()
    backend = choose(backend, grid.points)
    if backend == "numba":
        from wsdesc.descriptor.lrf import cpu

        return cpu.local_frames(grid, keypoints, radius)
    if backend == "triton":
        from wsdesc.descriptor.lrf import cuda

        return cuda.local_frames(grid, keypoints, radius)
    return reference.local_frames(grid.points, keypoints, radius)
