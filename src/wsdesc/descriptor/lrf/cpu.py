"""Local reference frames on the CPU (numba): one pass over the neighbours for z, one for x."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from wsdesc.cloud.neighbours import LEAF, NeighbourGrid, walk_leaves
from wsdesc.core.kernels import inline, kernel, run_in_chunks
from wsdesc.core.planes import diagonalise
from wsdesc.descriptor.lrf.reference import FLATNESS, MIN_NEIGHBOURS, SHARPNESS, LocalFrames


def local_frames(grid: NeighbourGrid, keypoints: Tensor, radius: float, outer: float) -> LocalFrames:
    """See `wsdesc.local_frames`; `outer` is the orientation radius."""
    frames = torch.empty(len(keypoints), 3, 3, dtype=keypoints.dtype)
    reliable = torch.empty(len(keypoints), dtype=torch.bool)
    typed = keypoints.numpy().dtype.type
    run_in_chunks(
        _frames,
        len(keypoints),
        *grid.arrays(),
        keypoints.numpy(),
        typed(radius),
        typed(outer),
        frames.numpy(),
        reliable.numpy(),
    )
    return LocalFrames(frames, reliable)


@kernel(
    types="int64, int64, float32[:, ::1], float32[:, ::1], float32[::1], float32[:, ::1], float32[::1], "
    "float32[:, ::1], float32, float32, float32[:, :, ::1], boolean[::1]",
)
def _frames(
    start,
    stop,
    points,
    centres,
    radii,
    branch_centres,
    branch_radii,
    keypoints,
    radius,
    outer,
    frames,
    reliable,
):
    leaves = np.empty(len(radii), np.int32)
    near = np.empty((len(radii) * LEAF, 3))  # offsets of the neighbours
    cov = np.empty((3, 3))
    vec = np.empty((3, 3))
    for k in range(start, stop):
        x, y, z = keypoints[k, 0], keypoints[k, 1], keypoints[k, 2]
        n, inner = np.int64(0), np.int64(0)  # a literal 0 would compile `_orient` twice
        for i in range(9):
            cov[i // 3, i % 3] = 0
        for i in range(walk_leaves(centres, radii, branch_centres, branch_radii, x, y, z, outer, leaves)):
            for p in range(leaves[i] * LEAF, min((leaves[i] + 1) * LEAF, len(points))):
                dx, dy, dz = points[p, 0] - x, points[p, 1] - y, points[p, 2] - z
                squared = dx * dx + dy * dy + dz * dz
                if squared > outer * outer or squared == 0:
                    continue
                near[n, 0], near[n, 1], near[n, 2] = dx, dy, dz
                n += 1
                if squared > radius * radius:
                    continue
                inner += 1
                a, b, c = np.float64(dx), np.float64(dy), np.float64(dz)
                cov[0, 0] += a * a
                cov[0, 1] += a * b
                cov[0, 2] += a * c
                cov[1, 1] += b * b
                cov[1, 2] += b * c
                cov[2, 2] += c * c
        for i in range(9):
            frames[k, i // 3, i % 3] = i % 4 == 0
        reliable[k] = False
        if inner > 0:
            unique = smallest_eigenvector(cov, vec)
            reliable[k] = (
                _orient(near, n, np.float64(outer), vec, frames[k]) and unique and inner >= MIN_NEIGHBOURS
            )


@inline
def smallest_eigenvector(cov, vec):
    """Compute the eigenvector of the smallest eigenvalue of a symmetric matrix.

    `cov` (3, 3) needs its upper half only, and is overwritten. The eigenvector is written to vec[0]. Returns
    whether the eigenvalue is unique.
    """
    low, middle, high = diagonalise(cov, vec)
    return middle - low > SHARPNESS * high


@inline
def _orient(near, n, radius, vec, frame):
    """Orient z, compute x and write the frame; return whether both are determined."""
    zx, zy, zz = vec[0, 0], vec[0, 1], vec[0, 2]
    height_sum, abs_height_sum = 0.0, 0.0
    for i in range(n):
        height = near[i, 0] * zx + near[i, 1] * zy + near[i, 2] * zz
        height_sum += height
        abs_height_sum += abs(height)
    if height_sum > 0:
        zx, zy, zz = -zx, -zy, -zz
    xx, xy, xz, x_lengths = 0.0, 0.0, 0.0, 0.0
    for i in range(n):
        a, b, c = near[i, 0], near[i, 1], near[i, 2]
        height = a * zx + b * zy + c * zz
        weight = (radius - math.sqrt(a * a + b * b + c * c)) ** 2 * height * height
        a -= height * zx
        b -= height * zy
        c -= height * zz
        xx += weight * a
        xy += weight * b
        xz += weight * c
        x_lengths += weight * math.sqrt(a * a + b * b + c * c)
    determined = math.sqrt(xx * xx + xy * xy + xz * xz) > SHARPNESS * x_lengths
    if not determined:
        xx, xy, xz = 0.0, 0.0, 0.0
        if abs(zx) <= abs(zy) and abs(zx) <= abs(zz):
            xx = 1.0
        elif abs(zy) <= abs(zz):
            xy = 1.0
        else:
            xz = 1.0
    yx, yy, yz = zy * xz - zz * xy, zz * xx - zx * xz, zx * xy - zy * xx
    length = math.sqrt(yx * yx + yy * yy + yz * yz)
    yx, yy, yz = yx / length, yy / length, yz / length
    frame[0, 0], frame[1, 0], frame[2, 0] = yy * zz - yz * zy, yz * zx - yx * zz, yx * zy - yy * zx
    frame[0, 1], frame[1, 1], frame[2, 1] = yx, yy, yz
    frame[0, 2], frame[1, 2], frame[2, 2] = zx, zy, zz
    return (
        determined and abs(height_sum) > SHARPNESS * abs_height_sum and abs_height_sum > FLATNESS * radius * n
    )
