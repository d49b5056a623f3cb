"""Local reference frames on CUDA (triton): one launch, a program per keypoint."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from wsdesc.cloud.neighbours import LEAF, NeighbourGrid
from wsdesc.core.triton_eigen import smallest_axis
from wsdesc.descriptor.lrf.reference import FLATNESS, MIN_NEIGHBOURS, SHARPNESS, LocalFrames

_LEAVES_PER_TILE = 4


def local_frames(grid: NeighbourGrid, keypoints: Tensor, radius: float, outer: float) -> LocalFrames:
    """See `wsdesc.local_frames`; `outer` is the orientation radius."""
    radii = keypoints.new_full((len(keypoints),), outer)
    leaves, start = grid.leaves_near(keypoints, radii, room=True)
    frames = keypoints.new_empty(len(keypoints), 3, 3)
    reliable = torch.empty(len(keypoints), dtype=torch.bool, device=keypoints.device)
    _write_frames[(len(keypoints),)](
        grid.points, len(grid.points), leaves, start, keypoints, radius, outer, frames, reliable,
        LEAF=LEAF, TILE=_LEAVES_PER_TILE, SHARPNESS=SHARPNESS, FLATNESS=FLATNESS,
        MIN_NEIGHBOURS=MIN_NEIGHBOURS, num_warps=1,
    )  # fmt: skip
    return LocalFrames(frames, reliable)


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


@triton.jit(do_not_specialize=["n", "radius", "outer"])
def _write_frames(
    points, n, leaves, start, keypoints, radius, outer, frames, reliable,
    LEAF: tl.constexpr, TILE: tl.constexpr,
    SHARPNESS: tl.constexpr, FLATNESS: tl.constexpr, MIN_NEIGHBOURS: tl.constexpr,
):  # fmt: skip
    k = tl.program_id(0)
    x, y, z = tl.load(keypoints + 3 * k), tl.load(keypoints + 3 * k + 1), tl.load(keypoints + 3 * k + 2)
    begin, stop = tl.load(start + k), tl.load(start + k + 1)
    xx = tl.zeros((TILE, LEAF), tl.float64)
    xy, xz, yy, yz, zz, total = xx, xx, xx, xx, xx, xx
    for i in range(begin, stop, TILE):
        dx, dy, dz, near = _neighbours(points, n, leaves, i, stop, x, y, z, radius, LEAF, TILE)
        xx += dx * dx
        xy += dx * dy
        xz += dx * dz
        yy += dy * dy
        yz += dy * dz
        zz += dz * dz
        total += near.to(tl.float64)
    count = _total(total)
    low, middle, high, zx, zy, zz = smallest_axis(
        _total(xx), _total(yy), _total(zz), _total(xy), _total(xz), _total(yz)
    )

    px = tl.zeros((TILE, LEAF), tl.float64)
    py, pz, lengths, heights, sx, sy, sz, total = px, px, px, px, px, px, px, px
    for i in range(begin, stop, TILE):
        dx, dy, dz, near = _neighbours(points, n, leaves, i, stop, x, y, z, outer, LEAF, TILE)
        sx += dx
        sy += dy
        sz += dz
        total += near.to(tl.float64)
        height = dx * zx + dy * zy + dz * zz
        fade = outer - tl.sqrt(dx * dx + dy * dy + dz * dz)
        weight = tl.where(near, fade * fade * height * height, 0.0)
        dx -= height * zx
        dy -= height * zy
        dz -= height * zz
        px += weight * dx
        py += weight * dy
        pz += weight * dz
        lengths += weight * tl.sqrt(dx * dx + dy * dy + dz * dz)
        heights += tl.abs(height)

    # z points away from the neighbours.
    height, height_sum = zx * _total(sx) + zy * _total(sy) + zz * _total(sz), _total(heights)
    signed = (tl.abs(height) > SHARPNESS * height_sum) & (height_sum > FLATNESS * outer * _total(total))
    side = tl.where(height > 0, -1.0, 1.0)
    zx, zy, zz = side * zx, side * zy, side * zz
    ux, uy, uz = _total(px), _total(py), _total(pz)
    length = tl.sqrt(ux * ux + uy * uy + uz * uz)
    determined = length > SHARPNESS * _total(lengths)
    # Without a direction, x is the coordinate axis farthest from z. Divide by the length first: in a small
    # unit, the sums are tiny.
    a, b, c = tl.abs(zx), tl.abs(zy), tl.abs(zz)
    first = (a <= b) & (a <= c)
    second = (b < a) & (b <= c)
    divisor = tl.where(determined, length, 1.0)
    ux = tl.where(determined, ux / divisor, tl.where(first, 1.0, 0.0))
    uy = tl.where(determined, uy / divisor, tl.where(second, 1.0, 0.0))
    uz = tl.where(determined, uz / divisor, tl.where(first | second, 0.0, 1.0))
    vx, vy, vz = zy * uz - zz * uy, zz * ux - zx * uz, zx * uy - zy * ux
    divisor = tl.maximum(tl.sqrt(vx * vx + vy * vy + vz * vz), 1e-12)
    vx, vy, vz = vx / divisor, vy / divisor, vz / divisor
    ux, uy, uz = vy * zz - vz * zy, vz * zx - vx * zz, vx * zy - vy * zx

    has_neighbours = count > 0  # an isolated keypoint has the identity
    out = frames + 9 * k
    tl.store(out, tl.where(has_neighbours, ux, 1.0))
    tl.store(out + 1, tl.where(has_neighbours, vx, 0.0))
    tl.store(out + 2, tl.where(has_neighbours, zx, 0.0))
    tl.store(out + 3, tl.where(has_neighbours, uy, 0.0))
    tl.store(out + 4, tl.where(has_neighbours, vy, 1.0))
    tl.store(out + 5, tl.where(has_neighbours, zy, 0.0))
    tl.store(out + 6, tl.where(has_neighbours, uz, 0.0))
    tl.store(out + 7, tl.where(has_neighbours, vz, 0.0))
    tl.store(out + 8, tl.where(has_neighbours, zz, 1.0))
    unique = middle - low > SHARPNESS * high
    tl.store(reliable + k, unique & signed & determined & (count >= MIN_NEIGHBOURS))
