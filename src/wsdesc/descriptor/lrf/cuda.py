"""Local reference frames on CUDA (triton): a launch for the covariance, one for x; a program per keypoint."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from wsdesc.cloud.neighbours import LEAF, NeighbourGrid
from wsdesc.descriptor.lrf.reference import (
    FLATNESS,
    LocalFrames,
    build_frames,
    orient_z,
    smallest_eigenvectors,
)

_LEAVES_PER_TILE = 4


def local_frames(grid: NeighbourGrid, keypoints: Tensor, radius: float, outer: float) -> LocalFrames:
    """Compute the frames of keypoints (K, 3); see `wsdesc.local_frames`."""
    leaves, start = grid.leaves_near(keypoints, keypoints.new_full((len(keypoints),), outer))
    arguments = (grid.points, len(grid.points), leaves, start, keypoints)
    constants = {"LEAF": LEAF, "TILE": _LEAVES_PER_TILE, "num_warps": 1}
    sums = keypoints.new_empty(len(keypoints), 7).double()
    _sum_covariance[(len(keypoints),)](*arguments, radius, sums, **constants)
    covariance = sums[:, [0, 1, 2, 1, 3, 4, 2, 4, 5]].view(-1, 3, 3)
    z, unique = smallest_eigenvectors(covariance)
    x_sums = sums.new_empty(len(keypoints), 9)
    _sum_x[(len(keypoints),)](*arguments, outer, z.contiguous(), x_sums, **constants)
    z, signed = orient_z(z, x_sums[:, 5:8], x_sums[:, 4], FLATNESS * outer * x_sums[:, 8])
    return build_frames(z, x_sums[:, :3], x_sums[:, 3], sums[:, 6], unique & signed, keypoints.dtype)


@triton.jit
def _neighbours(points, n, leaves, i, stop, x, y, z, radius, LEAF: tl.constexpr, TILE: tl.constexpr):
    """Load the offsets of the points of TILE leaves, float64, zero outside the ball; and the mask inside."""
    slot = i + tl.arange(0, TILE)
    leaf = tl.load(leaves + slot, slot < stop, 0)
    p = leaf[:, None] * LEAF + tl.arange(0, LEAF)[None, :]
    exists = (p < n) & (slot < stop)[:, None]
    dx = tl.load(points + 3 * p, exists, 0.0) - x
    dy = tl.load(points + 3 * p + 1, exists, 0.0) - y
    dz = tl.load(points + 3 * p + 2, exists, 0.0) - z
    squared = dx * dx + dy * dy + dz * dz
    near = exists & (squared <= radius * radius) & (squared > 0)
    zero = tl.zeros_like(dx)
    dx, dy, dz = tl.where(near, dx, zero), tl.where(near, dy, zero), tl.where(near, dz, zero)
    return dx.to(tl.float64), dy.to(tl.float64), dz.to(tl.float64), near


@triton.jit
def _total(tile):
    """Sum all numbers of a tile."""
    return tl.sum(tl.sum(tile, 1), 0)


@triton.jit
def _sum_covariance(
    points, n, leaves, start, keypoints, radius, sums, LEAF: tl.constexpr, TILE: tl.constexpr
):
    k = tl.program_id(0)
    x, y, z = tl.load(keypoints + 3 * k), tl.load(keypoints + 3 * k + 1), tl.load(keypoints + 3 * k + 2)
    begin, stop = tl.load(start + k), tl.load(start + k + 1)
    xx = tl.zeros((TILE, LEAF), tl.float64)
    xy, xz, yy, yz, zz, count = xx, xx, xx, xx, xx, xx
    for i in range(begin, stop, TILE):
        dx, dy, dz, near = _neighbours(points, n, leaves, i, stop, x, y, z, radius, LEAF, TILE)
        xx += dx * dx
        xy += dx * dy
        xz += dx * dz
        yy += dy * dy
        yz += dy * dz
        zz += dz * dz
        count += near.to(tl.float64)
    out = sums + 7 * k
    tl.store(out, _total(xx))
    tl.store(out + 1, _total(xy))
    tl.store(out + 2, _total(xz))
    tl.store(out + 3, _total(yy))
    tl.store(out + 4, _total(yz))
    tl.store(out + 5, _total(zz))
    tl.store(out + 6, _total(count))


@triton.jit
def _sum_x(points, n, leaves, start, keypoints, radius, axis, x_sums, LEAF: tl.constexpr, TILE: tl.constexpr):
    k = tl.program_id(0)
    x, y, z = tl.load(keypoints + 3 * k), tl.load(keypoints + 3 * k + 1), tl.load(keypoints + 3 * k + 2)
    zx, zy, zz = tl.load(axis + 3 * k), tl.load(axis + 3 * k + 1), tl.load(axis + 3 * k + 2)
    begin, stop = tl.load(start + k), tl.load(start + k + 1)
    px = tl.zeros((TILE, LEAF), tl.float64)
    py, pz, x_lengths, heights, sx, sy, sz, count = px, px, px, px, px, px, px, px
    for i in range(begin, stop, TILE):
        dx, dy, dz, near = _neighbours(points, n, leaves, i, stop, x, y, z, radius, LEAF, TILE)
        sx += dx
        sy += dy
        sz += dz
        count += near.to(tl.float64)
        height = dx * zx + dy * zy + dz * zz
        fade = radius - tl.sqrt(dx * dx + dy * dy + dz * dz)
        weight = tl.where(near, fade * fade * height * height, 0.0)
        dx -= height * zx
        dy -= height * zy
        dz -= height * zz
        px += weight * dx
        py += weight * dy
        pz += weight * dz
        x_lengths += weight * tl.sqrt(dx * dx + dy * dy + dz * dz)
        heights += tl.abs(height)
    out = x_sums + 9 * k
    tl.store(out, _total(px))
    tl.store(out + 1, _total(py))
    tl.store(out + 2, _total(pz))
    tl.store(out + 3, _total(x_lengths))
    tl.store(out + 4, _total(heights))
    tl.store(out + 5, _total(sx))
    tl.store(out + 6, _total(sy))
    tl.store(out + 7, _total(sz))
    tl.store(out + 8, _total(count))
