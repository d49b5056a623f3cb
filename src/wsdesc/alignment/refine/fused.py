"""Triton kernel that sums the equations of all poses: nearest points, pairs and products in one launch.

Plain torch needs about forty launches for the same sums, and a refinement needs them fifty times.
"""

from __future__ import annotations

import triton
import triton.language as tl

from wsdesc.alignment.information.matrix import SAME_SIDE
from wsdesc.alignment.refine.gauss_newton import NORMAL_VARIANCE, SUMS
from wsdesc.alignment.surface.cuda import CudaSurface, poses_and_inverses
from wsdesc.alignment.surface.fused import (
    NOT_SPECIALISED,
    contact_pairs,
    find_pairs,
    mean_normal,
    own_sums,
    responses,
    same_side,
    store_count,
    store_squares,
    sum_blocks,
)
from wsdesc.core.geometry import Floats


def sum_equations(
    source: CudaSurface, target: CudaSurface, poses: Floats, distance: float, generalised: bool
) -> Floats:
    """Sum the equations (H, 99) of each pose, see `SUMS`."""
    rows, _ = sum_blocks(
        _sum_equations, source, target, poses_and_inverses(poses, source), SUMS, distance, coarse=generalised,
        GENERALISED=generalised, SAME_SIDE=float(SAME_SIDE), VARIANCE=NORMAL_VARIANCE,
    )  # fmt: skip
    result: Floats = rows.sum(1).cpu().numpy()
    return result


@triton.jit(do_not_specialize=NOT_SPECIALISED)
def _sum_equations(
    p, p_count, q, q_count, p_search, p_n, q_search, q_n, p_rows, q_rows, T_pose, T_back, sums, source_blocks,
    distance, share, GENERALISED: tl.constexpr, SAME_SIDE: tl.constexpr, VARIANCE: tl.constexpr,
    NUMBERS: tl.constexpr, QUERIES: tl.constexpr, POINTS: tl.constexpr,
):  # fmt: skip
    sum_block(
        tl.program_id(0), tl.program_id(1), p, p_count, q, q_count, p_search, p_n, q_search, q_n, p_rows,
        q_rows, T_pose, T_back, own_sums(sums, NUMBERS), source_blocks, distance, share, GENERALISED,
        SAME_SIDE, VARIANCE, QUERIES, POINTS,
    )  # fmt: skip


@triton.jit
def sum_block(
    pose, block, p, p_count, q, q_count, p_search, p_n, q_search, q_n, p_rows, q_rows, T_pose, T_back, out,
    source_blocks, distance, share, GENERALISED: tl.constexpr, SAME_SIDE: tl.constexpr,
    VARIANCE: tl.constexpr, QUERIES: tl.constexpr, POINTS: tl.constexpr,
):  # fmt: skip
    """Sum the equations over one block of the sample of one side, in one pose, and store them."""
    if GENERALISED:
        from_source, valid, px, py, pz, gx, gy, gz, ax, ay, az, bx, by, bz, _c, _d, _w = find_pairs(
            pose, block, p, p_count, q, q_count, p_search, p_n, q_search, q_n, p_rows, q_rows, T_pose,
            T_back, source_blocks, QUERIES, POINTS,
        )  # fmt: skip
        ax, ay, az, cosine = same_side(ax, ay, az, bx, by, bz)
        used = valid & (gx * gx + gy * gy + gz * gz < distance * distance)
        weight = tl.where(used, tl.where(from_source, 1.0, share), 0.0).to(tl.float64)
        along = weight * (1 / (2 - (1 - VARIANCE) * (1 + cosine)) - 0.5)
    else:
        used, weight, px, py, pz, gx, gy, gz, ax, ay, az, bx, by, bz, cosine = contact_pairs(
            pose, block, p, p_count, q, q_count, p_search, p_n, q_search, q_n, p_rows, q_rows, T_pose,
            T_back, source_blocks, distance, share, SAME_SIDE, QUERIES, POINTS,
        )  # fmt: skip
        along = weight
    mx, my, mz = mean_normal(ax, ay, az, bx, by, bz, cosine)
    a, b, c, d, e, f = responses(px, py, pz, mx, my, mz)
    store_squares(out, along, (a, b, c, d, e, f, gx * mx + gy * my + gz * mz), 7)
    store_squares(out + 49, weight, (tl.full((QUERIES,), 1.0, tl.float64), px, py, pz, gx, gy, gz), 7)
    store_count(out + 98, used)
