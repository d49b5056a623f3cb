"""Triton kernel that sums the equations of all poses: nearest points, pairs and products in one launch.

Plain torch needs about forty launches for the same sums, and a refinement needs them fifty times.
"""

from __future__ import annotations

import triton
import triton.language as tl

from wsdesc.alignment.information.matrix import SAME_SIDE
from wsdesc.alignment.refine.gauss_newton import NORMAL_VARIANCE, SUMS
from wsdesc.alignment.surface.cuda import CudaSurface, poses_and_inverses
from wsdesc.alignment.surface.fused import NOT_SPECIALISED, find_pairs, plane_weight, same_side, sum_blocks
from wsdesc.core.geometry import Floats


def sum_equations(
    source: CudaSurface, target: CudaSurface, poses: Floats, distance: float, generalised: bool
) -> Floats:
    """Sum the equations of each pose; see `Backend`."""
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
    """Sum over one block of the sample of one side, in one pose."""
    out, from_source, valid, px, py, pz, gx, gy, gz, ax, ay, az, bx, by, bz, _c, _d, _w = find_pairs(
        p, p_count, q, q_count, p_search, p_n, q_search, q_n, p_rows, q_rows, T_pose, T_back, sums,
        source_blocks, NUMBERS, QUERIES, POINTS,
    )  # fmt: skip
    ax, ay, az, cosine = same_side(ax, ay, az, bx, by, bz)
    used = valid & (gx * gx + gy * gy + gz * gz < distance * distance)
    part = tl.where(from_source, 1.0, share)  # samples of different sizes have the same total weight
    if GENERALISED:
        weight = tl.where(used, part, 0.0).to(tl.float64)
        along = weight * (1 / (2 - (1 - VARIANCE) * (1 + cosine)) - 0.5)
    else:
        used = used & (cosine > SAME_SIDE)
        near = plane_weight(from_source, gx, gy, gz, ax, ay, az, bx, by, bz, distance)
        weight = tl.where(used, near * part, 0.0)
        along = weight
    scale = 1 / tl.sqrt(2 + 2 * cosine)  # the mean of two unit vectors
    mx, my, mz = (ax + bx) * scale, (ay + by) * scale, (az + bz) * scale
    response = (
        mx, my, mz,
        py * mz - pz * my, pz * mx - px * mz, px * my - py * mx,
        gx * mx + gy * my + gz * mz,
    )  # fmt: skip
    place = (tl.full((QUERIES,), 1.0, tl.float64), px, py, pz, gx, gy, gz)
    for a in tl.static_range(7):
        for b in tl.static_range(7):
            if b <= a:
                value = tl.sum(along * response[a] * response[b], 0)
                tl.store(out + 7 * a + b, value)
                tl.store(out + 7 * b + a, value)
                value = tl.sum(weight * place[a] * place[b], 0)
                tl.store(out + 49 + 7 * a + b, value)
                tl.store(out + 49 + 7 * b + a, value)
    tl.store(out + 98, tl.sum(tl.where(used, 1.0, 0.0).to(tl.float64), 0))
