"""Local reference frames on the CPU: one pass over the neighbours for z, one for x."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from wsdesc.cloud.neighbours import LEAF, NeighbourGrid, walk_leaves
from wsdesc.core.kernels import inline, kernel, run_in_chunks
from wsdesc.descriptor.lrf.reference import FEWEST, FLATNESS, SHARPNESS, LocalFrames


def local_frames(grid: NeighbourGrid, keypoints: Tensor, radius: float) -> LocalFrames:
    """Frames of keypoints (K, 3); see `wsdesc.local_frames`."""
    axes = torch.empty(len(keypoints), 3, 3, dtype=keypoints.dtype)
    reliable = torch.empty(len(keypoints), dtype=torch.bool)
    reach = keypoints.numpy().dtype.type(radius)
    run_in_chunks(
        _frames, len(keypoints), *grid.arrays(), keypoints.numpy(), reach, axes.numpy(), reliable.numpy()
    )
    return LocalFrames(axes, reliable)


@kernel
def _frames(
    start, stop, points, centres, radii, branch_centres, branch_radii, keypoints, radius, axes, reliable
):
    found = np.empty(len(radii), np.int32)
    near = np.empty((len(radii) * LEAF, 3))  # offsets of the neighbours
    cov = np.empty((3, 3))
    vec = np.empty((3, 3))
    for k in range(start, stop):
        x, y, z = keypoints[k, 0], keypoints[k, 1], keypoints[k, 2]
        n = 0
        for i in range(9):
            cov[i // 3, i % 3] = 0
        for i in range(walk_leaves(centres, radii, branch_centres, branch_radii, x, y, z, radius, found)):
            for p in range(found[i] * LEAF, min((found[i] + 1) * LEAF, len(points))):
                dx, dy, dz = points[p, 0] - x, points[p, 1] - y, points[p, 2] - z
                squared = dx * dx + dy * dy + dz * dz
                if squared > radius * radius or squared == 0:
                    continue
                near[n, 0], near[n, 1], near[n, 2] = dx, dy, dz
                n += 1
                a, b, c = np.float64(dx), np.float64(dy), np.float64(dz)
                cov[0, 0] += a * a
                cov[0, 1] += a * b
                cov[0, 2] += a * c
                cov[1, 1] += b * b
                cov[1, 2] += b * c
                cov[2, 2] += c * c
        for i in range(9):
            axes[k, i // 3, i % 3] = i % 4 == 0
        reliable[k] = False
        if n > 0:
            clear = thinnest(cov, vec)
            reliable[k] = _orient(near, n, np.float64(radius), vec, axes[k]) and clear and n >= FEWEST


@inline
def thinnest(cov, vec):
    """Jacobi rotations of a symmetric matrix (upper half given): its eigenvector of least eigenvalue
    goes to vec[0]; whether that eigenvalue stands out is returned."""
    for m in range(9):
        vec[m // 3, m % 3] = m % 4 == 0
    for _ in range(12):
        off = cov[0, 1] ** 2 + cov[0, 2] ** 2 + cov[1, 2] ** 2
        if off <= 1e-30 * (cov[0, 0] + cov[1, 1] + cov[2, 2]) ** 2:
            break
        for k in range(3):
            i, j = int(k == 0), 2 - (k == 2)  # the rotation in the plane of i < j leaves k alone
            if cov[i, j] == 0:
                continue
            theta = (cov[j, j] - cov[i, i]) / (2 * cov[i, j])
            t = math.copysign(1.0, theta) / (abs(theta) + math.sqrt(theta * theta + 1))
            c = 1 / math.sqrt(t * t + 1)
            s = t * c
            cov[i, i] -= t * cov[i, j]
            cov[j, j] += t * cov[i, j]
            cov[i, j] = 0.0
            i0, i1, j0, j1 = min(i, k), max(i, k), min(j, k), max(j, k)
            a, b = cov[i0, i1], cov[j0, j1]
            cov[i0, i1] = c * a - s * b
            cov[j0, j1] = s * a + c * b
            for m in range(3):  # rows of vec are the eigenvectors
                a, b = vec[i, m], vec[j, m]
                vec[i, m] = c * a - s * b
                vec[j, m] = s * a + c * b
    least = 0
    for m in range(1, 3):
        if cov[m, m] < cov[least, least]:
            least = m
    for m in range(3):
        vec[0, m], vec[least, m] = vec[least, m], vec[0, m]
    low = cov[least, least]
    high = max(cov[0, 0], cov[1, 1], cov[2, 2])
    middle = cov[0, 0] + cov[1, 1] + cov[2, 2] - low - high
    return middle - low > SHARPNESS * high


@inline
def _orient(near, n, radius, vec, axes):
    """Choose z's sign, find x, write the frame; whether both stand out is returned."""
    zx, zy, zz = vec[0, 0], vec[0, 1], vec[0, 2]
    total, lengths = 0.0, 0.0
    for i in range(n):
        height = near[i, 0] * zx + near[i, 1] * zy + near[i, 2] * zz
        total += height
        lengths += abs(height)
    if total > 0:
        zx, zy, zz = -zx, -zy, -zz
    xx, xy, xz, strength = 0.0, 0.0, 0.0, 0.0
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
        strength += weight * math.sqrt(a * a + b * b + c * c)
    fixed = math.sqrt(xx * xx + xy * xy + xz * xz) > SHARPNESS * strength
    if not fixed:
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
    axes[0, 0], axes[1, 0], axes[2, 0] = yy * zz - yz * zy, yz * zx - yx * zz, yx * zy - yy * zx
    axes[0, 1], axes[1, 1], axes[2, 1] = yx, yy, yz
    axes[0, 2], axes[1, 2], axes[2, 2] = zx, zy, zz
    return fixed and abs(total) > SHARPNESS * lengths and lengths > FLATNESS * radius * n
