"""The voxelization layer on the CPU.

Lengths are measured in cells of the grid. Each keypoint takes the points near its grid into its frame;
a point touches a window of w × w × w voxels, and for each place in the window one loop over many points
evaluates -log(1 - p), so that the compiler can use the processor's vector units: the exponential and
the logarithm become one polynomial. A voxel adds these up as whole numbers of 2⁻²⁴: integers have the
same sum in any order, and points elsewhere, which change the order, change no bit. The gradient walks
the same pairs again with exact functions.
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
from wsdesc.descriptor.voxelize.task import Task

_BATCH = 256  # points whose window is filled together: their numbers stay in the L1 cache
_STEPS = 1 << 24  # of an exponent
_SLICES = 8  # partial sums of the points' gradient: fixed, so that the sum's order is


class Voxelize(torch.autograd.Function):
    """values = f(points, support); keypoints and frames are constants."""

    @staticmethod
    def forward(ctx: Any, points: Tensor, support: Tensor, task: Task) -> Tensor:
        h = task.resolution
        values = support.new_empty(len(task.keypoints), h**3)
        constants = (task.keypoints.numpy(), task.frames.numpy(), support.detach().numpy())
        scene = (*task.grid.arrays(), *constants, task.sigma, task.band, h)
        run_in_chunks(_forward, len(values), *scene, values.numpy(), chunk=32)
        ctx.save_for_backward(values)
        ctx.grid, ctx.scene = task.grid, scene
        return values.view(-1, h, h, h)

    @staticmethod
    def backward(ctx: Any, *grad: Tensor) -> tuple[Tensor | None, ...]:
        (values,) = ctx.saved_tensors
        upstream = (grad[0].reshape(values.shape) * (1 - values)).contiguous()
        keypoints, points = len(values), len(ctx.grid.points)
        by_support = values.new_zeros(keypoints)
        slice_ = -(-keypoints // _SLICES)
        wanted = ctx.needs_input_grad[0]
        by_point = values.new_zeros(_SLICES, points if wanted else 0, 3)
        arrays = (upstream.numpy(), by_support.numpy(), by_point.numpy(), slice_)
        run_in_chunks(_backward, keypoints, *ctx.scene, *arrays, chunk=slice_)
        to_points = None
        if wanted:
            to_points = torch.empty(points, 3, dtype=values.dtype)
            to_points[ctx.grid.order] = by_point.sum(0)
        return to_points, by_support, None


_TOP = math.log(999.0) * 1.001  # beyond it a pair is cut off, or the voxel all but full
_SOFT = tuple(  # log(1 + exp(-w)) for w in [0, _TOP] as a polynomial in 2w/_TOP - 1, right to 6e-7
    np.float32(c)
    for c in Chebyshev.interpolate(lambda u: np.log1p(np.exp(-(u + 1) * _TOP / 2)), 12)
    .convert(kind=Polynomial)
    .coef[::-1]
)


@inline(fastmath=True)
def _exponents(count, flat, height, place, scale, reach2, out):
    """out[m] = -log(1 - p) of point m at squared distance flat + (height - place)², 0 beyond the reach;
    in steps of 2⁻²⁴, and no more than 64, which fills a voxel."""
    one, zero, half = np.float32(1), np.float32(0), np.float32(0.5)
    top, to_unit = np.float32(_TOP), np.float32(2 / _TOP)
    for m in range(count):
        up = height[m] - place
        squared = flat[m] + up * up
        outside = (math.sqrt(squared) - half) * scale  # distance from the voxel's surface / √σ
        w = outside * outside
        u = min(w, top) * to_unit - one
        value = zero
        for coefficient in _SOFT:
            value = value * u + coefficient
        value += w if outside < zero else zero
        steps = np.int32(min(value, np.float32(64)) * np.float32(_STEPS) + half)
        out[m] = steps if squared <= reach2 else np.int32(0)


@inline(fastmath=True)
def _into_grid(
    points, centres, radii, branch_centres, branch_radii, keypoint, frame, cell, reach, h,
    found, gx, gy, gz, who,
):  # fmt: skip
    """Points that reach a voxel of the keypoint's grid, in cells from voxel 0: how many, where, and who."""
    x, y, z = keypoint[0], keypoint[1], keypoint[2]
    shift, per_cell = np.float32(0.5 * (h - 1)), np.float32(1 / cell)
    limit = shift + reach
    ball = np.float32(limit * cell * math.sqrt(3.0))
    leaves = walk_leaves(centres, radii, branch_centres, branch_radii, x, y, z, ball, found)
    n = 0
    xx, xy, xz = frame[0, 0] * per_cell, frame[0, 1] * per_cell, frame[0, 2] * per_cell
    yx, yy, yz = frame[1, 0] * per_cell, frame[1, 1] * per_cell, frame[1, 2] * per_cell
    zx, zy, zz = frame[2, 0] * per_cell, frame[2, 1] * per_cell, frame[2, 2] * per_cell
    for i in range(leaves):
        leaf = found[i]
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
            gx[n], gy[n], gz[n], who[n] = a + shift, b + shift, c + shift, p
            n += (abs(a) <= limit) & (abs(b) <= limit) & (abs(c) <= limit)
    return n


@kernel(fastmath=True)
def _forward(
    start, stop, points, centres, radii, branch_centres, branch_radii,
    keypoints, frames, support, sigma, band, h, values,
):  # fmt: skip
    room = len(radii) * LEAF + 1
    found = np.empty(len(radii), np.int32)
    gx, gy, gz = np.empty(room, np.float32), np.empty(room, np.float32), np.empty(room, np.float32)
    who = np.empty(room, np.int32)
    fx, fy, fz = np.empty(_BATCH, np.float32), np.empty(_BATCH, np.float32), np.empty(_BATCH, np.float32)
    flat, corner = np.empty(_BATCH, np.float32), np.empty(_BATCH, np.int32)
    column = np.empty((h, _BATCH), np.int32)
    total = np.empty(h * h * h, np.int64)
    for k in range(start, stop):
        cell = support[k] / h
        reach = np.float32(0.5 + band / cell)
        w = int(min(2 * reach + 1, np.float32(h)))
        n = _into_grid(
            points, centres, radii, branch_centres, branch_radii, keypoints[k], frames[k], cell, reach, h,
            found, gx, gy, gz, who,
        )  # fmt: skip
        total[:] = 0
        for first in range(0, n, _BATCH):
            count = min(_BATCH, n - first)
            for m in range(count):  # the window's corner, kept inside the grid
                i0 = min(max(0, math.ceil(gx[first + m] - reach)), h - w)
                j0 = min(max(0, math.ceil(gy[first + m] - reach)), h - w)
                l0 = min(max(0, math.ceil(gz[first + m] - reach)), h - w)
                fx[m], fy[m], fz[m] = gx[first + m] - i0, gy[first + m] - j0, gz[first + m] - l0
                corner[m] = (i0 * h + j0) * h + l0
            for i in range(w):
                for j in range(w):
                    for m in range(count):
                        ex, ey = fx[m] - np.float32(i), fy[m] - np.float32(j)
                        flat[m] = ex * ex + ey * ey
                    for l in range(w):
                        scale = np.float32(cell / math.sqrt(sigma))
                        _exponents(count, flat, fz, np.float32(l), scale, reach * reach, column[l])
                    for m in range(count):
                        at = corner[m] + (i * h + j) * h
                        for l in range(w):
                            total[at + l] += column[l, m]
        for i in range(h * h * h):
            values[k, i] = 1 - math.exp(np.float32(total[i]) * np.float32(-1 / _STEPS))


@kernel
def _backward(
    start, stop, points, centres, radii, branch_centres, branch_radii,
    keypoints, frames, support, sigma, band, h, upstream, by_support, by_point, slice_,
):  # fmt: skip
    room = len(radii) * LEAF + 1
    found = np.empty(len(radii), np.int32)
    gx, gy, gz = np.empty(room, np.float32), np.empty(room, np.float32), np.empty(room, np.float32)
    who = np.empty(room, np.int32)
    points_too = by_point.shape[1] > 0
    for k in range(start, stop):
        cell = support[k] / h
        reach = np.float32(0.5 + band / cell)
        n = _into_grid(
            points, centres, radii, branch_centres, branch_radii, keypoints[k], frames[k], cell, reach, h,
            found, gx, gy, gz, who,
        )  # fmt: skip
        shift = np.float32(0.5 * (h - 1))
        to_support = 0.0
        for m in range(n):
            px, py, pz = 0.0, 0.0, 0.0
            for i in range(max(0, math.ceil(gx[m] - reach)), min(h - 1, math.floor(gx[m] + reach)) + 1):
                ex = gx[m] - np.float32(i)
                for j in range(max(0, math.ceil(gy[m] - reach)), min(h - 1, math.floor(gy[m] + reach)) + 1):
                    ey = gy[m] - np.float32(j)
                    rest = reach * reach - ex * ex - ey * ey
                    if rest < 0:
                        continue
                    side = math.sqrt(rest)
                    for l in range(max(0, math.ceil(gz[m] - side)), min(h - 1, math.floor(gz[m] + side)) + 1):
                        ez = gz[m] - np.float32(l)
                        distance = math.sqrt(ex * ex + ey * ey + ez * ez)
                        outside = (distance - np.float32(0.5)) * cell
                        p = 1 / (1 + math.exp(outside * abs(outside) / sigma))
                        # d(-log(1 - p)) / d(outside), times what comes from above
                        pull = upstream[k, (i * h + j) * h + l] * p * (-2 * abs(outside) / sigma)
                        # voxel centres move by their place in the unit cube, surfaces by 1/(2h)
                        inward = ex * (i - shift) + ey * (j - shift) + ez * (l - shift)
                        along = inward / distance if distance > 0 else 0.0
                        to_support -= pull * (along + 0.5) / h
                        if points_too and distance > 0:
                            px += pull * ex / distance
                            py += pull * ey / distance
                            pz += pull * ez / distance
            if points_too:
                at = by_point[start // slice_, who[m]]
                for axis in range(3):
                    at[axis] += frames[k, axis, 0] * px + frames[k, axis, 1] * py + frames[k, axis, 2] * pz
        by_support[k] = to_support
