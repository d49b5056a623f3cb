"""Voxelization on CUDA (triton).

As on the CPU, lengths are measured in cells, and each point acts on a window of w × w × w voxels. First the
points near each keypoint are listed, in cells. Then each program takes a share of one list. It adds the
exponents −log(1 − p) of the points as integers, in steps of 2⁻²⁴: an integer sum does not depend on the
order. The derivative in the support is summed beside them, in steps of 2⁻²⁰, so that the backward pass for
the support is one multiply and sum. For the gradient of the points, a program owns a part of a leaf and
visits the keypoints near it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.libdevice import fast_expf, fast_logf

from wsdesc.cloud.neighbours import LEAF, NeighbourGrid
from wsdesc.descriptor.voxelize.arguments import VoxelizeArguments

_SHARES = 8  # programs per keypoint
_KEYPOINTS_PER_LAUNCH = 512  # their sums fit into the L2 cache
_LEAVES_PER_LAUNCH = 1 << 18  # the list of their points takes 96 MiB
_TESTED = 256  # points that a program tests at once


def voxelize(points: Tensor, support: Tensor, arguments: VoxelizeArguments) -> Tensor:
    """Compute voxel grids (K, h, h, h) from points (N, 3) and supports (K,), with gradients to both."""
    values: Tensor = _Voxelize.apply(points, support, arguments._replace(grid=arguments.grid_of(points)))
    return values


class _Voxelize(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, points: Tensor, support: Tensor, arguments: VoxelizeArguments) -> Tensor:
        _, keypoints, frames, resolution, sigma, _, min_support = arguments
        grid, band = arguments.grid_of(points), arguments.band
        support = support.detach()
        reach = (support / 2 + band) * 3**0.5
        leaves, start = grid.leaves_near(keypoints, reach, room=not ctx.needs_input_grad[0])
        values = support.new_empty(len(keypoints), resolution**3)
        slope = torch.empty_like(values) if ctx.needs_input_grad[1] else None
        inputs = (grid.points, grid.centres, grid.radii, keypoints, frames, support)
        sizes = _sizes(min_support, resolution, band)
        for first, count, room in _launches(start):
            near = support.new_empty(3, room)
            number = torch.empty(count, dtype=torch.int32, device=leaves.device)
            _list_points[(count,)](
                grid.points, keypoints, frames, support, leaves, start, len(grid.points), band, first,
                near, near.stride(0), number, H=resolution, LEAF=LEAF, BLOCK=_TESTED, num_warps=4,
            )  # fmt: skip
            sums = leaves.new_zeros(2 if slope is not None else 1, count, resolution**3, dtype=torch.int64)
            _sum_exponents[(count, _SHARES)](
                near, near.stride(0), number, support, start, 1 / sigma, band, first, sums, count,
                SLOPE=slope is not None, SHARES=_SHARES, num_warps=4, **sizes,
            )  # fmt: skip
            numbers = count * resolution**3
            _to_values[(triton.cdiv(numbers, 1024),)](
                sums, values[first:], values if slope is None else slope[first:], numbers,
                SLOPE=slope is not None, BLOCK=1024,
            )  # fmt: skip
        ctx.save_for_backward(values, slope, leaves, start)
        ctx.grid, ctx.inputs, ctx.softness, ctx.sizes = grid, inputs, (1 / sigma, band), sizes
        return values.view(-1, resolution, resolution, resolution)

    @staticmethod
    def backward(ctx: Any, *grad: Tensor) -> tuple[Tensor | None, ...]:
        values, slope, leaves, start = ctx.saved_tensors
        upstream = grad[0].reshape(values.shape)
        by_support = None if slope is None else (upstream * slope).sum(1)
        by_point = None
        if ctx.needs_input_grad[0]:
            by_point = _points_gradient(ctx, (upstream * (1 - values)).contiguous(), leaves, start)
        return by_point, by_support, None


def _launches(start: Tensor) -> Iterator[tuple[int, int, int]]:
    """Divide keypoints among launches: the first one, their number, and the number of points in their leaves.

    The leaves near keypoint k are start[k] to start[k + 1]. This waits for the GPU.
    """
    starts, first = start.cpu().numpy(), 0
    while first < len(starts) - 1:
        fitting = int(np.searchsorted(starts, starts[first] + _LEAVES_PER_LAUNCH, side="right")) - 1
        end = min(max(fitting, first + 1), first + _KEYPOINTS_PER_LAUNCH, len(starts) - 1)
        yield first, end - first, int(starts[end] - starts[first]) * LEAF
        first = end


def _sizes(min_support: float, resolution: int, band: float) -> dict[str, int]:
    """Choose the widest window of all keypoints, and tiles of points and voxels that fit the registers."""
    widest = int(1 + 2 * band * resolution / min_support) + 1
    window = triton.next_power_of_2(min(widest, resolution))
    return {"H": resolution, "W": window, "TILE": min(LEAF, max(1, 1024 // window**2)), "LEAF": LEAF}


def _points_gradient(ctx: Any, upstream: Tensor, leaves: Tensor, start: Tensor) -> Tensor:
    """Compute the gradient of the points (N, 3) from `upstream` (K, h³), the gradient times 1 − value."""
    grid: NeighbourGrid = ctx.grid
    number = torch.arange(len(upstream), device=upstream.device, dtype=torch.int32)
    near_keypoints = torch.repeat_interleave(number, start.diff())[torch.sort(leaves, stable=True).indices]
    begin = torch.cat([start.new_zeros(1), torch.bincount(leaves, minlength=len(grid.radii)).cumsum(0)])
    in_grid_order = torch.empty_like(grid.points)
    tiles = LEAF // ctx.sizes["TILE"]
    _differentiate_points[(len(grid.radii), tiles)](
        *ctx.inputs, near_keypoints, begin, len(grid.points), *ctx.softness, upstream, in_grid_order,
        num_warps=4, **ctx.sizes,
    )  # fmt: skip
    gradient = torch.empty_like(in_grid_order)
    gradient[grid.order] = in_grid_order
    return gradient


@triton.jit
def _to_grid(dx, dy, dz, frame, per_cell):
    """Rotate offsets from the keypoint into its frame (an address), in cells from the grid's centre."""
    x = dx * tl.load(frame) + dy * tl.load(frame + 3) + dz * tl.load(frame + 6)
    y = dx * tl.load(frame + 1) + dy * tl.load(frame + 4) + dz * tl.load(frame + 7)
    z = dx * tl.load(frame + 2) + dy * tl.load(frame + 5) + dz * tl.load(frame + 8)
    return x * per_cell, y * per_cell, z * per_cell


@triton.jit
def _load_points(p, n, points, x, y, z, frame, per_cell, shift):
    """Load points p (TILE,) in cells from voxel 0, and whether they exist."""
    exists = p < n
    px, py, pz = _to_grid(
        tl.load(points + 3 * p, exists, 0.0) - x, tl.load(points + 3 * p + 1, exists, 0.0) - y,
        tl.load(points + 3 * p + 2, exists, 0.0) - z, frame, per_cell,
    )  # fmt: skip
    return px + shift, py + shift, pz + shift, exists


@triton.jit
def _corner(place, radius, H: tl.constexpr, W: tl.constexpr):
    """Compute the first voxel of a point's window along one axis; a window that fits stays in the grid."""
    first = tl.ceil(place - radius).to(tl.int32)
    return tl.maximum(tl.minimum(first, H - W), 0)


@triton.jit
def _pairs(squared, cell, sharpness):
    """Compute inverse root, d, w = d²/σ and exp(−w) from squared distances in cells."""
    inverse = tl.math.rsqrt(tl.maximum(squared, 1e-20))
    outside = (squared * inverse - 0.5) * cell
    w = outside * outside * sharpness
    return inverse, outside, w, fast_expf(-w)


@triton.jit
def _steepness(outside, tail, sharpness):
    """Compute p · 2|d|/σ, the negative derivative of −log(1 − p) in d."""
    return tl.where(outside < 0, 1.0, tail) * tl.abs(outside) * (2 * sharpness) / (1 + tail)


@triton.jit
def _list_points(
    points, keypoints, frames, support, leaves, start, n, band, first, near, room, number,
    H: tl.constexpr, LEAF: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """List the points that act on the grid of a keypoint, in cells from voxel 0, and their number."""
    row = tl.program_id(0)
    k = first + row
    x, y, z = tl.load(keypoints + 3 * k), tl.load(keypoints + 3 * k + 1), tl.load(keypoints + 3 * k + 2)
    cell = tl.load(support + k) / H
    shift = 0.5 * (H - 1)
    wide = shift + 0.5 + band / cell
    begin, stop = tl.load(start + k) * LEAF, tl.load(start + k + 1) * LEAF
    near += begin - tl.load(start + first) * LEAF
    total = 0
    for slot in range(begin, stop, BLOCK):
        place = slot + tl.arange(0, BLOCK)
        leaf = tl.load(leaves + place // LEAF, place < stop, n)
        px, py, pz, acts = _load_points(
            leaf * LEAF + (place % LEAF).to(tl.int32), n, points, x, y, z, frames + 9 * k, 1 / cell, 0.0
        )
        acts = acts & (tl.abs(px) <= wide) & (tl.abs(py) <= wide) & (tl.abs(pz) <= wide)
        at = near + total + tl.cumsum(acts.to(tl.int32), 0) - 1
        tl.store(at, px + shift, acts)
        tl.store(at + room, py + shift, acts)
        tl.store(at + 2 * room, pz + shift, acts)
        total += tl.sum(acts.to(tl.int32), 0)
    tl.store(number + row, total)


@triton.jit
def _sum_exponents(
    near, room, number, support, start, sharpness, band, first, sums, count,
    SLOPE: tl.constexpr, SHARES: tl.constexpr,
    H: tl.constexpr, W: tl.constexpr, TILE: tl.constexpr, LEAF: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0)
    k = first + row
    cell = tl.load(support + k) / H
    radius = 0.5 + band / cell  # in cells: a point acts on voxel centres within it
    shift = 0.5 * (H - 1)
    near += (tl.load(start + k) - tl.load(start + first)) * LEAF
    n = tl.load(number + row)
    lane = tl.arange(0, TILE)
    j = (tl.arange(0, W * W) // W)[None, :]
    l = (tl.arange(0, W * W) % W)[None, :]
    sums += row.to(tl.int64) * (H * H * H)
    for part in range(tl.program_id(1) * TILE, n, SHARES * TILE):
        p = part + lane
        exists = p < n
        px = tl.load(near + p, exists, 0.0)
        py = tl.load(near + room + p, exists, 0.0)
        pz = tl.load(near + 2 * room + p, exists, 0.0)
        i0, j0, l0 = _corner(px, radius, H, W), _corner(py, radius, H, W), _corner(pz, radius, H, W)
        jj, ll = j0[:, None] + j, l0[:, None] + l  # (TILE, W²)
        ey, ez = py[:, None] - jj, pz[:, None] - ll
        across = tl.where(exists[:, None] & (jj < H) & (ll < H), ey * ey + ez * ez, float("inf"))
        at = sums + ((i0[:, None] * H + jj) * H + ll)
        px -= i0
        for i in range(W):
            ex = (px - i)[:, None]
            squared = ex * ex + across
            inverse, outside, w, tail = _pairs(squared, cell, sharpness)
            acts = squared <= radius * radius
            if W > H:
                acts = acts & (i0 + i < H)[:, None]
            exponent = tl.where(outside < 0, tl.minimum(w, 64.0), 0.0) + fast_logf(1 + tail)
            whole = (exponent * 16777216.0 + 0.5).to(tl.int32)
            tl.atomic_add(at, whole.to(tl.int64), acts, sem="relaxed")
            if SLOPE:
                ii = (i0 + i)[:, None]
                along = (ex * (ii - shift) + ey * (jj - shift) + ez * (ll - shift)) * inverse
                change = _steepness(outside, tail, sharpness) * (along + 0.5) * (1048576.0 / H)
                whole = tl.floor(change + 0.5).to(tl.int64)
                tl.atomic_add(at + count * H * H * H, whole, acts, sem="relaxed")
            at += H * H


@triton.jit
def _to_values(sums, values, slope, numbers, SLOPE: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    exists = i < numbers
    rest = tl.exp(tl.load(sums + i, exists, 0).to(tl.float32) * (-1 / 16777216.0))
    tl.store(values + i, 1 - rest, exists)
    if SLOPE:
        change = tl.load(sums + numbers + i, exists, 0).to(tl.float32) * (1 / 1048576.0)
        tl.store(slope + i, rest * change, exists)


@triton.jit
def _differentiate_points(
    points, centres, radii, keypoints, frames, support, near_keypoints, begin, n, sharpness, band,
    upstream, gradient,
    H: tl.constexpr, W: tl.constexpr, TILE: tl.constexpr, LEAF: tl.constexpr,
):  # fmt: skip
    leaf = tl.program_id(0)
    p = leaf * LEAF + tl.program_id(1) * TILE + tl.arange(0, TILE)
    shift = 0.5 * (H - 1)
    j = (tl.arange(0, W * W) // W)[None, :]
    l = (tl.arange(0, W * W) % W)[None, :]
    gx = tl.zeros((TILE,), tl.float32)
    gy, gz = gx, gx
    for slot in range(tl.load(begin + leaf), tl.load(begin + leaf + 1)):
        k = tl.load(near_keypoints + slot)
        x, y, z = tl.load(keypoints + 3 * k), tl.load(keypoints + 3 * k + 1), tl.load(keypoints + 3 * k + 2)
        cell = tl.load(support + k) / H
        radius = 0.5 + band / cell
        frame = frames + 9 * k
        px, py, pz, exists = _load_points(p, n, points, x, y, z, frame, 1 / cell, shift)
        i0, j0, l0 = (
            _corner(px, radius, H, W),
            _corner(py, radius, H, W),
            _corner(pz, radius, H, W),
        )
        jj, ll = j0[:, None] + j, l0[:, None] + l
        ey, ez = py[:, None] - jj, pz[:, None] - ll
        inside = exists[:, None] & (jj < H) & (ll < H)
        lx = tl.zeros((TILE,), tl.float32)
        ly, lz = lx, lx
        for i in range(W):
            ii = (i0 + i)[:, None]
            ex = px[:, None] - ii
            squared = ex * ex + ey * ey + ez * ez
            inverse, outside, _w, tail = _pairs(squared, cell, sharpness)
            acts = inside & (ii < H) & (squared <= radius * radius)
            above = tl.load(upstream + ((k * H + ii) * H + jj) * H + ll, acts, 0.0)
            pull = -above * _steepness(outside, tail, sharpness) * inverse
            lx += tl.sum(pull * ex, 1)
            ly += tl.sum(pull * ey, 1)
            lz += tl.sum(pull * ez, 1)
        gx += lx * tl.load(frame) + ly * tl.load(frame + 1) + lz * tl.load(frame + 2)
        gy += lx * tl.load(frame + 3) + ly * tl.load(frame + 4) + lz * tl.load(frame + 5)
        gz += lx * tl.load(frame + 6) + ly * tl.load(frame + 7) + lz * tl.load(frame + 8)
    exists = p < n
    tl.store(gradient + 3 * p, gx, exists)
    tl.store(gradient + 3 * p + 1, gy, exists)
    tl.store(gradient + 3 * p + 2, gz, exists)
