"""Triton kernel for the equations of a similarity transformation: one launch instead of about forty."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from wsdesc.alignment.information.matrix import SAME_SIDE
from wsdesc.alignment.scale.step import SUMS
from wsdesc.alignment.surface.cuda import CudaSurface
from wsdesc.alignment.surface.fused import NOT_SPECIALISED, find_pairs, same_side, sum_blocks


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
    out, _s, valid, px, py, pz, gx, gy, gz, ax, ay, az, bx, by, bz, _c, _d, _w = find_pairs(
        p, p_count, q, q_count, p_search, p_n, q_search, q_n, p_rows, q_rows, T_pose, T_back, sums,
        source_blocks, NUMBERS, QUERIES, POINTS,
    )  # fmt: skip
    u, v, w = tl.load(T_pose), tl.load(T_pose + 4), tl.load(T_pose + 8)
    shrink = 1 / tl.sqrt(u * u + v * v + w * w)  # the similarity has stretched the normals
    ax, ay, az, cosine = same_side(ax * shrink, ay * shrink, az * shrink, bx, by, bz)
    used = valid & (gx * gx + gy * gy + gz * gz < distance * distance) & (cosine > SAME_SIDE)
    scale = 1 / tl.sqrt(2 + 2 * cosine)  # the mean of two unit vectors
    mx, my, mz = (ax + bx) * scale, (ay + by) * scale, (az + bz) * scale
    gap = gx * mx + gy * my + gz * mz
    near = 1 - tl.minimum(gap * gap / (distance * distance), 1.0)
    weight = tl.where(used, near * near, 0.0)
    response = (
        mx, my, mz,
        py * mz - pz * my, pz * mx - px * mz, px * my - py * mx,
        px * mx + py * my + pz * mz, gap,
    )  # fmt: skip
    at_source = (
        ax, ay, az, py * az - pz * ay, pz * ax - px * az, px * ay - py * ax, px * ax + py * ay + pz * az
    )  # fmt: skip
    at_target = (
        bx, by, bz, py * bz - pz * by, pz * bx - px * bz, px * by - py * bx, px * bx + py * by + pz * bz
    )  # fmt: skip
    place = (tl.full((QUERIES,), 1.0, tl.float64), px, py, pz)
    for a in tl.static_range(8):
        for b in tl.static_range(8):
            if b <= a:
                value = tl.sum(weight * response[a] * response[b], 0)
                tl.store(out + 8 * a + b, value)
                tl.store(out + 8 * b + a, value)
    for a in tl.static_range(4):
        for b in tl.static_range(4):
            if b <= a:
                value = tl.sum(weight * place[a] * place[b], 0)
                tl.store(out + 64 + 4 * a + b, value)
                tl.store(out + 64 + 4 * b + a, value)
    for a in tl.static_range(7):
        for b in tl.static_range(7):
            tl.store(out + 80 + 7 * a + b, tl.sum(weight * at_source[a] * at_target[b], 0))
    tl.store(out + 129, tl.sum(tl.where(used, 1.0, 0.0).to(tl.float64), 0))
