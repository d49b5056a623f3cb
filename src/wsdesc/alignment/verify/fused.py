"""Triton kernel that verifies all poses: one launch instead of about ninety."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from wsdesc.alignment.surface.cuda import CudaSurface, poses_and_inverses
from wsdesc.alignment.surface.fused import NOT_SPECIALISED, find_pairs, own_sums, sum_blocks
from wsdesc.alignment.verify.score import ALIGNED, CROSSED, FACING, FLAT, HOVER_DISTANCE, SideSums
from wsdesc.core.geometry import Floats


def sum_sides(
    source: CudaSurface, target: CudaSurface, poses: Floats, distance: float, coarse: bool
) -> Tensor:
    """Sum over both samples in each pose; see `cuda.sum_sides`."""
    rows, first = sum_blocks(
        _sum_sides, source, target, poses_and_inverses(poses, source), len(SideSums._fields), distance,
        coarse=coarse, ALIGNED=float(ALIGNED), CROSSED=float(CROSSED), FACING=float(FACING), FLAT=FLAT,
        HOVER=HOVER_DISTANCE,
    )  # fmt: skip
    return torch.stack([rows[:, :first].sum(1), rows[:, first:].sum(1)], dim=1)


@triton.jit(do_not_specialize=NOT_SPECIALISED)
def _sum_sides(
    p, p_count, q, q_count, p_search, p_n, q_search, q_n, p_rows, q_rows, T_pose, T_back, sums, source_blocks,
    distance, share, ALIGNED: tl.constexpr, CROSSED: tl.constexpr, FACING: tl.constexpr, FLAT: tl.constexpr,
    HOVER: tl.constexpr, NUMBERS: tl.constexpr, QUERIES: tl.constexpr, POINTS: tl.constexpr,
):  # fmt: skip
    """Sum the fields of `SideSums`, in their order, over one block of one sample."""
    from_source, valid, _x, _y, _z, gx, gy, gz, ax, ay, az, bx, by, bz, own, other, weight = find_pairs(
        tl.program_id(0), tl.program_id(1), p, p_count, q, q_count, p_search, p_n, q_search, q_n, p_rows,
        q_rows, T_pose, T_back, source_blocks, QUERIES, POINTS,
    )  # fmt: skip
    out = own_sums(sums, NUMBERS)
    length = tl.sqrt(gx * gx + gy * gy + gz * gz)
    near, overlapping = valid & (length < HOVER * distance), valid & (length <= distance)
    nx, ny, nz = tl.where(from_source, bx, ax), tl.where(from_source, by, ay), tl.where(from_source, bz, az)
    partner_has_normal = nx * nx + ny * ny + nz * nz > 0
    squared = ax * ax + ay * ay + az * az
    both_have_normals = (squared > 0) & (bx * bx + by * by + bz * bz > 0)
    plane = tl.where(partner_has_normal, tl.abs(gx * nx + gy * ny + gz * nz), length)
    cosine = tl.abs(ax * bx + ay * by + az * bz)
    low, high = tl.minimum(own, other), tl.maximum(own, other)
    has_normals = overlapping & both_have_normals
    flat, curved = has_normals & (high < FLAT), overlapping & (high >= FLAT)
    zero = tl.zeros_like(length)
    level = tl.where(flat & (cosine > ALIGNED), weight, zero)
    hovering = near & ~overlapping & (plane > FACING * length)
    one = zero + 1.0
    figures = (
        tl.where(valid, one, zero),
        tl.where(overlapping, one, zero),
        tl.where(overlapping, weight, zero),
        tl.where(has_normals & (cosine > ALIGNED), one, zero),
        tl.where(flat, one, zero),
        tl.where(flat & (cosine < CROSSED), one, zero),
        level,
        level * tl.sqrt(plane),
        tl.where(hovering, one, zero),
        tl.where(has_normals, low, zero),
        tl.where(has_normals, high, zero),
        tl.where(curved, low, zero),
        tl.where(curved, high, zero) + tl.where(hovering & (own >= FLAT), one, zero),
        tl.where(overlapping, plane * plane, zero),
        tl.where(overlapping, length * length, zero),
    )
    for field in tl.static_range(NUMBERS):
        tl.store(out + field, tl.sum(figures[field], 0))
