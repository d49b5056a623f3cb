"""Contact pairs in triton kernels: a program finds the partners of 16 sample points in one pose.

Plain torch needs about forty launches for the sums over contact pairs of two surfaces. A kernel that starts
with `find_pairs` needs one.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from wsdesc.alignment.surface.cuda import CudaSurface
from wsdesc.cloud.nearest.cuda import nearest_point

QUERIES, _POINTS = 16, 128  # sample points per program, and points that it compares with at once

NOT_SPECIALISED = ["p_count", "q_count", "p_n", "q_n", "source_blocks", "distance", "share"]


def sum_blocks(
    kernel: Any,
    source: CudaSurface,
    target: CudaSurface,
    poses: tuple[Tensor, Tensor],
    numbers: int,
    distance: float,
    *,
    coarse: bool = False,
    **constants: Any,
) -> tuple[Tensor, int]:
    """Launch a kernel that begins with `find_pairs` over the samples of both surfaces.

    Args:
        kernel: the kernel. It writes a row of sums per pose and block of 16 sample points.
        source, target: the surfaces.
        poses: T_target_source (H, 4, 4) and their inverses, float64, contiguous.
        numbers: length of a row.
        distance: within which partners count, float32 in the kernel.
        coarse: use the coarse samples.
        constants: further compile-time constants of the kernel.

    Returns:
        Rows (H, blocks, numbers) float64, and how many of the blocks are of the source's sample, the first.
    """
    p, q = (x.coarse_rows if coarse else x.sample_rows for x in (source, target))
    blocks = [triton.cdiv(len(rows), QUERIES) for rows in (p, q)]
    count = len(poses[0])
    rows = torch.empty(count, sum(blocks), numbers, dtype=torch.float64, device=p.device)
    kernel[(count, sum(blocks))](
        p, len(p), q, len(q), source.search_points, len(source.points),
        target.search_points, len(target.points), source.rows, target.rows, *poses, rows, blocks[0],
        distance, len(p) / len(q),
        NUMBERS=numbers, QUERIES=QUERIES, POINTS=_POINTS, num_warps=4, **constants,
    )  # fmt: skip
    return rows, blocks[0]


@triton.jit
def _transform(T, x, y, z, SHIFT: tl.constexpr):
    """Rotate vectors by the pose at the pointer T, and shift them."""
    a = tl.load(T) * x + tl.load(T + 1) * y + tl.load(T + 2) * z
    b = tl.load(T + 4) * x + tl.load(T + 5) * y + tl.load(T + 6) * z
    c = tl.load(T + 8) * x + tl.load(T + 9) * y + tl.load(T + 10) * z
    if SHIFT:
        a, b, c = a + tl.load(T + 3), b + tl.load(T + 7), c + tl.load(T + 11)
    return a, b, c


@triton.jit
def find_pairs(
    p, p_count, q, q_count, p_search, p_n, q_search, q_n, p_rows, q_rows, T_pose, T_back, sums, source_blocks,
    NUMBERS: tl.constexpr, QUERIES: tl.constexpr, POINTS: tl.constexpr,
):  # fmt: skip
    """Pair a block of the source's or the target's sample with its nearest points in one pose.

    Returns:
        Address of this program's sums, whether the sample is the source's, and per pair, in the target's
        frame: whether it exists; point of the source; gap from there to the target's point; normals of the
        source and the target; curvature at the sample point and at its partner; weight of the sample point.
    """
    pose, block = tl.program_id(0), tl.program_id(1)
    out = sums + (pose * tl.num_programs(1) + block) * NUMBERS
    from_source = block < source_blocks
    T = T_pose + 16 * pose
    if from_source:
        sample, search, partners, move = p, q_search, q_rows, T
    else:
        sample, search, partners, move = q, p_search, p_rows, T_back + 16 * pose
    count, n = tl.where(from_source, p_count, q_count), tl.where(from_source, q_n, p_n)
    k = tl.where(from_source, block, block - source_blocks) * QUERIES + tl.arange(0, QUERIES)
    valid = k < count
    at = sample + 8 * k
    x, y, z = tl.load(at, valid, 0.0), tl.load(at + 1, valid, 0.0), tl.load(at + 2, valid, 0.0)
    moved_x, moved_y, moved_z = _transform(move, x, y, z, True)
    moved_x, moved_y, moved_z = moved_x.to(tl.float32), moved_y.to(tl.float32), moved_z.to(tl.float32)
    j = nearest_point(search, n, moved_x, moved_y, moved_z, QUERIES, POINTS, False)
    other = partners + 8 * j
    u, v, w = tl.load(other), tl.load(other + 1), tl.load(other + 2)
    nx, ny, nz = tl.load(at + 3, valid, 0.0), tl.load(at + 4, valid, 0.0), tl.load(at + 5, valid, 0.0)
    nu, nv, nw = tl.load(other + 3), tl.load(other + 4), tl.load(other + 5)
    px, py, pz = _transform(
        T, tl.where(from_source, x, u), tl.where(from_source, y, v), tl.where(from_source, z, w), True
    )
    gx = tl.where(from_source, u, x) - px
    gy = tl.where(from_source, v, y) - py
    gz = tl.where(from_source, w, z) - pz
    ax, ay, az = _transform(
        T, tl.where(from_source, nx, nu), tl.where(from_source, ny, nv), tl.where(from_source, nz, nw), False
    )
    bx, by, bz = tl.where(from_source, nu, nx), tl.where(from_source, nv, ny), tl.where(from_source, nw, nz)
    curvature, weight = tl.load(at + 6, valid, 0.0), tl.load(at + 7, valid, 0.0)
    return (
        out, from_source, valid, px, py, pz, gx, gy, gz, ax, ay, az, bx, by, bz,
        curvature, tl.load(other + 6), weight,
    )  # fmt: skip


@triton.jit
def same_side(ax, ay, az, bx, by, bz):
    """Turn the normals a to the side of b; return them and the cosine between both, 0 … 1."""
    cosine = ax * bx + ay * by + az * bz
    side = tl.where(cosine < 0, -1.0, 1.0)
    return side * ax, side * ay, side * az, tl.minimum(side * cosine, 1.0)


@triton.jit
def plane_weight(from_source, gx, gy, gz, ax, ay, az, bx, by, bz, distance):
    """Weight pairs from 1 where planes coincide to 0 at the distance; the plane is that of the partner."""
    offset = tl.where(from_source, gx * bx + gy * by + gz * bz, gx * ax + gy * ay + gz * az) / distance
    near = 1 - tl.minimum(offset * offset, 1.0)
    return near * near
