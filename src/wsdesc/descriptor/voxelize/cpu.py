"""Voxelization on the CPU (numba).

Lengths are measured in cells of the grid. A keypoint's kernel transforms the nearby points into the grid's
frame. Each point lists the voxels within its acting radius, in a window of w × w × w voxels. One loop over
these pairs evaluates −log(1 − p) as a polynomial, which the compiler can vectorize. A voxel sums
these exponents as integers in steps of 2⁻²⁴. An integer sum does not depend on the order of the points, so
points elsewhere in the scan change no bit. The backward pass visits the same pairs again, with exact
functions.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.polynomial import Chebyshev, Polynomial
from torch import Tensor

from wsdesc.cloud.neighbours import LEAF, walk_leaves
from wsdesc.core.kernels import inline, kernel, run_in_chunks
from wsdesc.descriptor.voxelize.arguments import VoxelizeArguments

_BATCH = 512  # points per inner loop, and half of its pairs: their numbers fit into the L1 cache
_STEPS = 1 << 24  # steps per unit of the exponent
_SLICES = 8  # partial sums of the points' gradient: a fixed number fixes the order of summation


def voxelize(points: Tensor, support: Tensor, arguments: VoxelizeArguments) -> Tensor:
    """Compute voxel grids (K, h, h, h) from points (N, 3) and supports (K,), with gradients to both."""
    values: Tensor = _Voxelize.apply(points, support, arguments._replace(grid=arguments.grid_of(points)))
    return values


class _Voxelize(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, points: Tensor, support: Tensor, arguments: VoxelizeArguments) -> Tensor:
        grid, h = arguments.grid_of(points), arguments.resolution
        values = support.new_empty(len(arguments.keypoints), h**3)
        constants = (arguments.keypoints.numpy(), arguments.frames.numpy(), support.detach().numpy())
        inputs = (*grid.arrays(), *constants, arguments.sigma, arguments.band, h)
        run_in_chunks(_forward, len(values), *inputs, values.numpy(), chunk=32)
        ctx.save_for_backward(values)
        ctx.grid, ctx.inputs = grid, inputs
        return values.view(-1, h, h, h)

    @staticmethod
    def backward(ctx: Any, *grad: Tensor) -> tuple[Tensor | None, ...]:
        (values,) = ctx.saved_tensors
        upstream = (grad[0].reshape(values.shape) * (1 - values)).contiguous()
        keypoints, points = len(values), len(ctx.grid.points)
        by_support = values.new_zeros(keypoints)
        slice_ = -(-keypoints // _SLICES)
        points_need_gradient = ctx.needs_input_grad[0]
        by_point = values.new_zeros(_SLICES, points if points_need_gradient else 0, 3)
        arrays = (upstream.numpy(), by_support.numpy(), by_point.numpy(), slice_)
        run_in_chunks(_backward, keypoints, *ctx.inputs, *arrays, chunk=slice_)
        point_gradient = None
        if points_need_gradient:
            point_gradient = torch.empty(points, 3, dtype=values.dtype)
            point_gradient[ctx.grid.order] = by_point.sum(0)
        return point_gradient, by_support, None


_TOP = math.log(999.0) * 1.001  # larger w: the pair is cut off, or the voxel is full
_SOFT = tuple(  # log(1 + exp(-w)) for w in [0, _TOP], a polynomial in 2w/_TOP - 1 with an error of 6e-7
    np.float32(c)
    for c in Chebyshev.interpolate(lambda u: np.log1p(np.exp(-(u + 1) * _TOP / 2)), 12)
    .convert(kind=Polynomial)
    .coef[::-1]
)


@inline(fastmath=True)
def _exponents(count, squared, scale, out):
    """Write −log(1 − p) of each pair of a point and a voxel to `out`, in steps of 2⁻²⁴.

    `squared` are the distances² of the points from the voxels' centres, in cells. An exponent is at most 64,
    which fills a voxel.
    """
    one, zero, half = np.float32(1), np.float32(0), np.float32(0.5)
    top, to_unit = np.float32(_TOP), np.float32(2 / _TOP)
    for m in range(count):
        outside = (math.sqrt(squared[m]) - half) * scale  # distance from the voxel's surface / √σ
        w = outside * outside
        u = min(w, top) * to_unit - one
        value = zero
        for coefficient in _SOFT:
            value = value * u + coefficient
        value += w if outside < zero else zero
        out[m] = np.int32(min(value, np.float32(64)) * np.float32(_STEPS) + half)


@inline(fastmath=True)
def _into_grid(
    points, centres, radii, branch_centres, branch_radii, keypoint, frame, cell, radius, h,
    leaf_list, gx, gy, gz, index,
):  # fmt: skip
    """Transform the points that act on the keypoint's grid into cells from voxel 0.

    Writes coordinates to gx, gy, gz and point indices to `index`; returns the number of points.
    """
    x, y, z = keypoint[0], keypoint[1], keypoint[2]
    shift, per_cell = np.float32(0.5 * (h - 1)), np.float32(1 / cell)
    limit = shift + radius
    ball = np.float32(limit * cell * math.sqrt(3.0))
    leaves = walk_leaves(centres, radii, branch_centres, branch_radii, x, y, z, ball, leaf_list)
    n = np.uint64(0)  # an index that cannot be negative needs no check
    xx, xy, xz = frame[0, 0] * per_cell, frame[0, 1] * per_cell, frame[0, 2] * per_cell
    yx, yy, yz = frame[1, 0] * per_cell, frame[1, 1] * per_cell, frame[1, 2] * per_cell
    zx, zy, zz = frame[2, 0] * per_cell, frame[2, 1] * per_cell, frame[2, 2] * per_cell
    for i in range(leaves):
        leaf = leaf_list[i]
        dx, dy, dz = centres[leaf, 0] - x, centres[leaf, 1] - y, centres[leaf, 2] - z
        wide = limit + radii[leaf] * per_cell
        if (
            abs(dx * xx + dy * yx + dz * zx) > wide
            or abs(dx * xy + dy * yy + dz * zy) > wide
            or abs(dx * xz + dy * yz + dz * zz) > wide
        ):
            continue
        for p in range(leaf * LEAF, min((leaf + 1) * LEAF, len(points))):
            dx, dy, dz = points[p, 0] - x, points[p, 1] - y, points[p, 2] - z
            a = dx * xx + dy * yx + dz * zx
            b = dx * xy + dy * yy + dz * zy
            c = dx * xz + dy * yz + dz * zz
            gx[n], gy[n], gz[n], index[n] = a + shift, b + shift, c + shift, p
            n += np.uint64((abs(a) <= limit) & (abs(b) <= limit) & (abs(c) <= limit))
    return np.int64(n)


@kernel(
    types="int64, int64, float32[:, ::1], float32[:, ::1], float32[::1], float32[:, ::1], float32[::1], "
    "float32[:, ::1], float32[:, :, ::1], float32[::1], float64, float64, int64, float32[:, ::1]",
    fastmath=True,
)
def _forward(
    start, stop, points, centres, radii, branch_centres, branch_radii,
    keypoints, frames, support, sigma, band, h, values,
):  # fmt: skip
    capacity = len(radii) * LEAF + 1
    leaf_list = np.empty(len(radii), np.int32)
    gx, gy, gz = (
        np.empty(capacity, np.float32),
        np.empty(capacity, np.float32),
        np.empty(capacity, np.float32),
    )
    index = np.empty(capacity, np.int32)
    fx, fy, fz = np.empty(_BATCH, np.float32), np.empty(_BATCH, np.float32), np.empty(_BATCH, np.float32)
    flat, corner = np.empty(_BATCH, np.float32), np.empty(_BATCH, np.int32)
    squared, voxel = np.empty(2 * _BATCH, np.float32), np.empty(2 * _BATCH, np.int32)
    steps = np.empty(2 * _BATCH, np.int32)
    total = np.empty(h * h * h, np.int64)
    for k in range(start, stop):
        cell = support[k] / h
        radius = np.float32(0.5 + band / cell)  # in cells: a point acts on voxel centres within it
        radius2, scale = radius * radius, np.float32(cell / math.sqrt(sigma))
        w = int(min(2 * radius + 1, np.float32(h)))
        n = _into_grid(
            points, centres, radii, branch_centres, branch_radii, keypoints[k], frames[k], cell, radius, h,
            leaf_list, gx, gy, gz, index,
        )  # fmt: skip
        total[:] = 0
        for first in range(0, n, _BATCH):
            count = min(_BATCH, n - first)
            for m in range(count):  # first voxel of the window, which stays inside the grid
                i0 = min(max(0, math.ceil(gx[first + m] - radius)), h - w)
                j0 = min(max(0, math.ceil(gy[first + m] - radius)), h - w)
                l0 = min(max(0, math.ceil(gz[first + m] - radius)), h - w)
                fx[m], fy[m], fz[m] = gx[first + m] - i0, gy[first + m] - j0, gz[first + m] - l0
                corner[m] = (i0 * h + j0) * h + l0
            pairs = np.uint64(0)  # an index that cannot be negative needs no check
            for place in range(w * w * w):
                i, j, l = place // (w * w), place // w % w, place % w
                for m in range(count):
                    ex, ey, ez = fx[m] - np.float32(i), fy[m] - np.float32(j), fz[m] - np.float32(l)
                    flat[m] = ex * ex + ey * ey + ez * ez
                for m in range(count):  # most pairs are too far from each other
                    squared[pairs] = flat[m]
                    voxel[pairs] = corner[m] + (i * h + j) * h + l
                    pairs += np.uint64(flat[m] <= radius2)
                if np.int64(pairs) >= _BATCH or place == w * w * w - 1:
                    _exponents(np.int64(pairs), squared, scale, steps)
                    for m in range(np.int64(pairs)):
                        total[voxel[m]] += steps[m]
                    pairs = np.uint64(0)
        for i in range(h * h * h):
            empty = total[i] == 0  # most voxels are
            values[k, i] = 0 if empty else 1 - math.exp(np.float32(total[i]) * np.float32(-1 / _STEPS))


@kernel
def _backward(
    start, stop, points, centres, radii, branch_centres, branch_radii,
    keypoints, frames, support, sigma, band, h, upstream, by_support, by_point, slice_,
):  # fmt: skip
    capacity = len(radii) * LEAF + 1
    leaf_list = np.empty(len(radii), np.int32)
    gx, gy, gz = (
        np.empty(capacity, np.float32),
        np.empty(capacity, np.float32),
        np.empty(capacity, np.float32),
    )
    index = np.empty(capacity, np.int32)
    to_points = by_point.shape[1] > 0
    for k in range(start, stop):
        cell = support[k] / h
        radius = np.float32(0.5 + band / cell)  # as in `_forward`
        n = _into_grid(
            points, centres, radii, branch_centres, branch_radii, keypoints[k], frames[k], cell, radius, h,
            leaf_list, gx, gy, gz, index,
        )  # fmt: skip
        shift = np.float32(0.5 * (h - 1))
        to_support = 0.0
        for m in range(n):
            px, py, pz = 0.0, 0.0, 0.0
            for i in range(max(0, math.ceil(gx[m] - radius)), min(h - 1, math.floor(gx[m] + radius)) + 1):
                ex = gx[m] - np.float32(i)
                for j in range(max(0, math.ceil(gy[m] - radius)), min(h - 1, math.floor(gy[m] + radius)) + 1):
                    ey = gy[m] - np.float32(j)
                    rest = radius * radius - ex * ex - ey * ey
                    if rest < 0:
                        continue
                    side = math.sqrt(rest)
                    for l in range(max(0, math.ceil(gz[m] - side)), min(h - 1, math.floor(gz[m] + side)) + 1):
                        ez = gz[m] - np.float32(l)
                        distance = math.sqrt(ex * ex + ey * ey + ez * ez)
                        outside = (distance - np.float32(0.5)) * cell
                        p = 1 / (1 + math.exp(outside * abs(outside) / sigma))
                        # d(-log(1 - p)) / d(outside), times the upstream gradient
                        pull = upstream[k, (i * h + j) * h + l] * p * (-2 * abs(outside) / sigma)
                        # derivative in s of a voxel centre: c; of its radius: 1/(2h)
                        inward = ex * (i - shift) + ey * (j - shift) + ez * (l - shift)
                        along = inward / distance if distance > 0 else 0.0
                        to_support -= pull * (along + 0.5) / h
                        if to_points and distance > 0:
                            px += pull * ex / distance
                            py += pull * ey / distance
                            pz += pull * ez / distance
            if to_points:
                at = by_point[start // slice_, index[m]]
                for axis in range(3):
                    at[axis] += frames[k, axis, 0] * px + frames[k, axis, 1] * py + frames[k, axis, 2] * pz
        by_support[k] = to_support
