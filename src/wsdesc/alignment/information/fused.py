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
    contact_pairs,
    mean_normal,
    own_sums,
    responses,
    store_count,
    store_products,
    store_squares,
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
    used, weight, px, py, pz, gx, gy, gz, ax, ay, az, bx, by, bz, _cosine = contact_pairs(
        tl.program_id(0), tl.program_id(1), p, p_count, q, q_count, p_search, p_n, q_search, q_n, p_rows,
        q_rows, T_pose, T_back, source_blocks, distance, share, SAME_SIDE, QUERIES, POINTS,
    )  # fmt: skip
    out = own_sums(sums, NUMBERS)
    mx, my, mz = px + gx / 2, py + gy / 2, pz + gz / 2  # between both points
    at_source, at_target = responses(mx, my, mz, ax, ay, az), responses(mx, my, mz, bx, by, bz)
    store_products(out, weight, at_source, at_target, 6)
    store_squares(out + 36, weight, (tl.full((QUERIES,), 1.0, tl.float64), mx, my, mz), 4)
    store_count(out + 52, used)


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
    _used, weight, px, py, pz, gx, gy, gz, ax, ay, az, bx, by, bz, cosine = contact_pairs(
        tl.program_id(0), tl.program_id(1), p, p_count, q, q_count, p_search, p_n, q_search, q_n, p_rows,
        q_rows, T_pose, T_back, source_blocks, distance, share, SAME_SIDE, QUERIES, POINTS,
    )  # fmt: skip
    out = own_sums(sums, NUMBERS)
    mx, my, mz = mean_normal(ax, ay, az, bx, by, bz, cosine)
    figures = (px, py, pz, mx, my, mz, gx * mx + gy * my + gz * mz, weight)
    row = out + 8 * tl.arange(0, QUERIES)
    for field in tl.static_range(8):
        tl.store(row + field, figures[field])
