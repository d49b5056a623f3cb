"""Triton kernels for the information of all poses and for lists of pairs: one launch instead of fifty."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from wsdesc.alignment.information.matrix import SAME_SIDE
from wsdesc.alignment.surface.cuda import CudaSurface, poses_and_inverses
from wsdesc.alignment.surface.fused import (
    NOT_SPECIALISED,
    QUERIES,
    find_pairs,
    plane_weight,
    same_side,
    sum_blocks,
)
from wsdesc.core.geometry import Floats


def sum_products(source: CudaSurface, target: CudaSurface, poses: Floats, distance: float) -> Tensor:
    """Sum the products of each pose (H, 53); see `cuda.sum_products`."""
    rows, _ = sum_blocks(
        _sum_products, source, target, poses_and_inverses(poses, source), 53, distance,
        SAME_SIDE=float(SAME_SIDE),
    )  # fmt: skip
    return rows.sum(1)


@triton.jit(do_not_specialize=NOT_SPECIALISED)
def _sum_products(
    p, p_count, q, q_count, p_search, p_n, q_search, q_n, p_rows, q_rows, T_pose, T_back, sums, source_blocks,
    distance, share, SAME_SIDE: tl.constexpr,
    NUMBERS: tl.constexpr, QUERIES: tl.constexpr, POINTS: tl.constexpr,
):  # fmt: skip
    out, from_source, valid, px, py, pz, gx, gy, gz, ax, ay, az, bx, by, bz, _c, _d, _w = find_pairs(
        p, p_count, q, q_count, p_search, p_n, q_search, q_n, p_rows, q_rows, T_pose, T_back, sums,
        source_blocks, NUMBERS, QUERIES, POINTS,
    )  # fmt: skip
    ax, ay, az, cosine = same_side(ax, ay, az, bx, by, bz)
    used = valid & (gx * gx + gy * gy + gz * gz < distance * distance) & (cosine > SAME_SIDE)
    near = plane_weight(from_source, gx, gy, gz, ax, ay, az, bx, by, bz, distance)
    weight = tl.where(used, near * tl.where(from_source, 1.0, share), 0.0)
    mx, my, mz = px + gx / 2, py + gy / 2, pz + gz / 2  # between both points
    at_source = (ax, ay, az, my * az - mz * ay, mz * ax - mx * az, mx * ay - my * ax)
    at_target = (bx, by, bz, my * bz - mz * by, mz * bx - mx * bz, mx * by - my * bx)
    place = (tl.full((QUERIES,), 1.0, tl.float64), mx, my, mz)
    for a in tl.static_range(6):
        for b in tl.static_range(6):
            tl.store(out + 6 * a + b, tl.sum(weight * at_source[a] * at_target[b], 0))
    for a in tl.static_range(4):
        for b in tl.static_range(4):
            tl.store(out + 36 + 4 * a + b, tl.sum(weight * place[a] * place[b], 0))
    tl.store(out + 52, tl.sum(tl.where(used, 1.0, 0.0).to(tl.float64), 0))


def list_pairs(source: CudaSurface, target: CudaSurface, T_target_source: Floats, distance: float) -> Tensor:
    """List the contact pairs of one pose (4, 4): (M, 8) float64.

    A row has the source's point, the mean unit normal, the gap along it, and the weight of the pair, which is
    0 for pairs that do not count.
    """
    poses = poses_and_inverses(T_target_source[None], source)
    rows, _ = sum_blocks(
        _list_pairs, source, target, poses, 8 * QUERIES, distance, SAME_SIDE=float(SAME_SIDE)
    )
    return rows.view(-1, 8)


@triton.jit(do_not_specialize=NOT_SPECIALISED)
def _list_pairs(
    p, p_count, q, q_count, p_search, p_n, q_search, q_n, p_rows, q_rows, T_pose, T_back, sums, source_blocks,
    distance, share, SAME_SIDE: tl.constexpr,
    NUMBERS: tl.constexpr, QUERIES: tl.constexpr, POINTS: tl.constexpr,
):  # fmt: skip
    out, from_source, valid, px, py, pz, gx, gy, gz, ax, ay, az, bx, by, bz, _c, _d, _w = find_pairs(
        p, p_count, q, q_count, p_search, p_n, q_search, q_n, p_rows, q_rows, T_pose, T_back, sums,
        source_blocks, NUMBERS, QUERIES, POINTS,
    )  # fmt: skip
    ax, ay, az, cosine = same_side(ax, ay, az, bx, by, bz)
    used = valid & (gx * gx + gy * gy + gz * gz < distance * distance) & (cosine > SAME_SIDE)
    near = plane_weight(from_source, gx, gy, gz, ax, ay, az, bx, by, bz, distance)
    weight = tl.where(used, near * tl.where(from_source, 1.0, share), 0.0)
    scale = 1 / tl.sqrt(2 + 2 * cosine)  # the mean of two unit vectors
    mx, my, mz = (ax + bx) * scale, (ay + by) * scale, (az + bz) * scale
    figures = (px, py, pz, mx, my, mz, gx * mx + gy * my + gz * mz, weight)
    row = out + 8 * tl.arange(0, QUERIES)
    for field in tl.static_range(8):
        tl.store(row + field, figures[field])
