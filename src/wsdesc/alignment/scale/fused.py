"""Triton kernel for the equations of a similarity transformation: one launch instead of about forty."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from wsdesc.alignment.information.matrix import SAME_SIDE
from wsdesc.alignment.scale.step import SUMS
from wsdesc.alignment.surface.cuda import CudaSurface
from wsdesc.alignment.surface.fused import (
    NOT_SPECIALISED,
    find_pairs,
    mean_normal,
    own_sums,
    responses,
    same_side,
    store_count,
    store_products,
    store_squares,
    sum_blocks,
)
from wsdesc.core.triton_poses import load_shared


def sum_products(
    source: CudaSurface, target: CudaSurface, poses: tuple[Tensor, Tensor], distance: float, coarse: bool
) -> Tensor:
    """Sum the products (130,) of a similarity; arguments as in `cuda.sum_plainly`."""
    rows, _ = sum_blocks(
        _sum_products, source, target, poses, SUMS, distance, coarse=coarse, SAME_SIDE=float(SAME_SIDE)
    )
    return rows[0].sum(0)


@triton.jit(do_not_specialize=NOT_SPECIALISED)
def _sum_products(
    p, p_count, q, q_count, p_search, p_n, q_search, q_n, p_rows, q_rows, T_pose, T_back, sums, source_blocks,
    distance, share, SAME_SIDE: tl.constexpr,
    NUMBERS: tl.constexpr, QUERIES: tl.constexpr, POINTS: tl.constexpr,
):  # fmt: skip
    sum_block(
        tl.program_id(1), p, p_count, q, q_count, p_search, p_n, q_search, q_n, p_rows, q_rows, T_pose,
        T_back, own_sums(sums, NUMBERS), source_blocks, distance, SAME_SIDE, QUERIES, POINTS,
    )  # fmt: skip


@triton.jit
def sum_block(
    block, p, p_count, q, q_count, p_search, p_n, q_search, q_n, p_rows, q_rows, T_pose, T_back, out,
    source_blocks, distance, SAME_SIDE: tl.constexpr, QUERIES: tl.constexpr, POINTS: tl.constexpr,
):  # fmt: skip
    """Sum the products over one block of the sample of one side, and store them."""
    _s, valid, px, py, pz, gx, gy, gz, ax, ay, az, bx, by, bz, _c, _d, _w = find_pairs(
        0, block, p, p_count, q, q_count, p_search, p_n, q_search, q_n, p_rows, q_rows, T_pose, T_back,
        source_blocks, QUERIES, POINTS,
    )  # fmt: skip
    u, v, w = load_shared(T_pose), load_shared(T_pose + 4), load_shared(T_pose + 8)
    shrink = 1 / tl.sqrt(u * u + v * v + w * w)  # the similarity has stretched the normals
    ax, ay, az, cosine = same_side(ax * shrink, ay * shrink, az * shrink, bx, by, bz)
    used = valid & (gx * gx + gy * gy + gz * gz < distance * distance) & (cosine > SAME_SIDE)
    mx, my, mz = mean_normal(ax, ay, az, bx, by, bz, cosine)
    gap = gx * mx + gy * my + gz * mz
    near = 1 - tl.minimum(gap * gap / (distance * distance), 1.0)
    weight = tl.where(used, near * near, 0.0)
    a, b, c, d, e, f = responses(px, py, pz, mx, my, mz)
    store_squares(out, weight, (a, b, c, d, e, f, px * mx + py * my + pz * mz, gap), 8)
    store_squares(out + 64, weight, (tl.full((QUERIES,), 1.0, tl.float64), px, py, pz), 4)
    a, b, c, d, e, f = responses(px, py, pz, ax, ay, az)
    u, v, w, r, s, t = responses(px, py, pz, bx, by, bz)
    at_source = (a, b, c, d, e, f, px * ax + py * ay + pz * az)
    at_target = (u, v, w, r, s, t, px * bx + py * by + pz * bz)
    store_products(out + 80, weight, at_source, at_target, 7)
    store_count(out + 129, used)
