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
from wsdesc.core.triton_poses import load_shared

QUERIES, POINTS = 16, 128  # sample points per program, and points that it compares with at once

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
        kernel: The kernel. It writes a row of sums per pose and block of 16 sample points.
        source, target: The surfaces.
        poses: T_target_source (H, 4, 4) and their inverses, float64, contiguous.
        numbers: Length of a row.
        distance: Within which partners count, float32 in the kernel.
        coarse: Use the coarse samples.
        constants: Further compile-time constants of the kernel.

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
        NUMBERS=numbers, QUERIES=QUERIES, POINTS=POINTS, num_warps=4, **constants,
    )  # fmt: skip
    return rows, blocks[0]


@triton.jit
def _transform(T, x, y, z, SHIFT: tl.constexpr):
    """Rotate vectors by the pose at the pointer T, and shift them."""
    a = load_shared(T) * x + load_shared(T + 1) * y + load_shared(T + 2) * z
    b = load_shared(T + 4) * x + load_shared(T + 5) * y + load_shared(T + 6) * z
    c = load_shared(T + 8) * x + load_shared(T + 9) * y + load_shared(T + 10) * z
    if SHIFT:
        a, b, c = a + load_shared(T + 3), b + load_shared(T + 7), c + load_shared(T + 11)
    return a, b, c


@triton.jit
def own_sums(sums, NUMBERS: tl.constexpr):
    """Return the address of the sums of this program, in a launch over poses and blocks."""
    return sums + (tl.program_id(0) * tl.num_programs(1) + tl.program_id(1)) * NUMBERS


@triton.jit
def find_pairs(
    pose, block, p, p_count, q, q_count, p_search, p_n, q_search, q_n, p_rows, q_rows, T_pose, T_back,
    source_blocks, QUERIES: tl.constexpr, POINTS: tl.constexpr,
):  # fmt: skip
    """Pair a block of the source's or the target's sample with its nearest points in one pose.

    Returns:
        Whether the sample is the source's, and per pair, in the target's frame: whether it exists; point of
        the source; gap from there to the target's point; normals of the source and the target; curvature at
        the sample point and at its partner; weight of the sample point.
    """
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
        from_source, valid, px, py, pz, gx, gy, gz, ax, ay, az, bx, by, bz,
        curvature, tl.load(other + 6), weight,
    )  # fmt: skip


@triton.jit
def contact_pairs(
    pose, block, p, p_count, q, q_count, p_search, p_n, q_search, q_n, p_rows, q_rows, T_pose, T_back,
    source_blocks, distance, share, SAME_SIDE: tl.constexpr, QUERIES: tl.constexpr, POINTS: tl.constexpr,
):  # fmt: skip
    """Find pairs as `find_pairs`, and weight those within the distance whose normals agree.

    Returns:
        Per pair, in the target's frame: whether it counts; its weight, from 1 where planes coincide to 0 at
        the distance, times `share` if the sample is the target's; point of the source; gap; normals of the
        source, on the target's side, and of the target; their cosine.
    """
    from_source, valid, px, py, pz, gx, gy, gz, ax, ay, az, bx, by, bz, _c, _d, _w = find_pairs(
        pose, block, p, p_count, q, q_count, p_search, p_n, q_search, q_n, p_rows, q_rows, T_pose, T_back,
        source_blocks, QUERIES, POINTS,
    )  # fmt: skip
    ax, ay, az, cosine = same_side(ax, ay, az, bx, by, bz)
    used = valid & (gx * gx + gy * gy + gz * gz < distance * distance) & (cosine > SAME_SIDE)
    # The plane is that of the partner.
    offset = tl.where(from_source, gx * bx + gy * by + gz * bz, gx * ax + gy * ay + gz * az) / distance
    near = 1 - tl.minimum(offset * offset, 1.0)
    # Samples of different sizes have the same total weight.
    weight = tl.where(used, near * near * tl.where(from_source, 1.0, share), 0.0)
    return used, weight, px, py, pz, gx, gy, gz, ax, ay, az, bx, by, bz, cosine


@triton.jit
def same_side(ax, ay, az, bx, by, bz):
    """Turn the normals a to the side of b; return them and the cosine between both, 0 … 1."""
    cosine = ax * bx + ay * by + az * bz
    side = tl.where(cosine < 0, -1.0, 1.0)
    return side * ax, side * ay, side * az, tl.minimum(side * cosine, 1.0)


@triton.jit
def mean_normal(ax, ay, az, bx, by, bz, cosine):
    """Return the mean direction of unit vectors a and b, from the cosine between them."""
    scale = 1 / tl.sqrt(2 + 2 * cosine)
    return (ax + bx) * scale, (ay + by) * scale, (az + bz) * scale


@triton.jit
def responses(px, py, pz, nx, ny, nz):
    """Return how far twists about the origin move points p along directions n: six numbers."""
    return nx, ny, nz, py * nz - pz * ny, pz * nx - px * nz, px * ny - py * nx


@triton.jit
def store_products(out, weight, a, b, SIZE: tl.constexpr):
    """Sum w aᵢ bⱼ over the pairs of this program and store the matrix (SIZE, SIZE)."""
    for i in tl.static_range(SIZE):
        for j in tl.static_range(SIZE):
            tl.store(out + SIZE * i + j, tl.sum(weight * a[i] * b[j], 0))


@triton.jit
def store_squares(out, weight, a, SIZE: tl.constexpr):
    """Sum w aᵢ aⱼ over the pairs of this program and store the symmetric matrix (SIZE, SIZE)."""
    for i in tl.static_range(SIZE):
        for j in tl.static_range(SIZE):
            if j <= i:
                value = tl.sum(weight * a[i] * a[j], 0)
                tl.store(out + SIZE * i + j, value)
                tl.store(out + SIZE * j + i, value)


@triton.jit
def store_count(out, used):
    """Store the number of pairs that count."""
    tl.store(out, tl.sum(tl.where(used, 1.0, 0.0).to(tl.float64), 0))
