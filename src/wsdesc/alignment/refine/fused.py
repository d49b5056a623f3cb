"""Triton kernel that sums the equations of all poses: nearest points, pairs and products in one launch.

Plain torch needs about forty launches for the same sums, and a refinement needs them fifty times.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from wsdesc.alignment.information.matrix import SAME_SIDE
from wsdesc.alignment.refine.gauss_newton import NORMAL_VARIANCE, SUMS
from wsdesc.alignment.surface.cuda import CudaSurface, poses_and_inverses
from wsdesc.cloud.nearest.cuda import nearest_point
from wsdesc.core.geometry import Floats

_QUERIES, _POINTS = 16, 128  # sample points per program, and points that it compares with at once


def sum_equations(
    source: CudaSurface, target: CudaSurface, poses: Floats, distance: float, generalised: bool
) -> Floats:
    """Sum the equations of each pose; see `Backend`."""
    T_target_source, T_source_target = poses_and_inverses(poses, source)
    samples = [
        surface.coarse_with_normals if generalised else surface.sample_with_normals
        for surface in (source, target)
    ]
    share = len(samples[0]) / len(samples[1])  # samples of different sizes have the same total weight
    sides = (
        (samples[0], target, T_target_source, 1.0, True),
        (samples[1], source, T_source_target, share, False),
    )
    blocks = []
    for sample, searched, T_move, weight, from_source in sides:
        programs = (len(poses), triton.cdiv(len(sample), _QUERIES))
        sums = torch.empty(*programs, SUMS, dtype=torch.float64, device=sample.device)
        _sum_side[programs](
            sample, len(sample), searched.search_points, len(searched.search_points),
            searched.points_with_normals, T_move, T_target_source, sums, distance, weight,
            FROM_SOURCE=from_source, GENERALISED=generalised, SUMS=SUMS, SAME_SIDE=float(SAME_SIDE),
            VARIANCE=NORMAL_VARIANCE, QUERIES=_QUERIES, POINTS=_POINTS, num_warps=4,
        )  # fmt: skip
        blocks.append(sums.sum(1))
    result: Floats = (blocks[0] + blocks[1]).cpu().numpy()
    return result


@triton.jit
def _transform(T, x, y, z, SHIFT: tl.constexpr):
    """Rotate vectors by the pose at the pointer T, and shift them."""
    a = tl.load(T) * x + tl.load(T + 1) * y + tl.load(T + 2) * z
    b = tl.load(T + 4) * x + tl.load(T + 5) * y + tl.load(T + 6) * z
    c = tl.load(T + 8) * x + tl.load(T + 9) * y + tl.load(T + 10) * z
    if SHIFT:
        a, b, c = a + tl.load(T + 3), b + tl.load(T + 7), c + tl.load(T + 11)
    return a, b, c


@triton.jit(do_not_specialize=["count", "n", "distance", "share"])
def _sum_side(
    sample, count, search, n, partners, T_move, T_pose, sums, distance, share,
    FROM_SOURCE: tl.constexpr, GENERALISED: tl.constexpr, SUMS: tl.constexpr, SAME_SIDE: tl.constexpr,
    VARIANCE: tl.constexpr, QUERIES: tl.constexpr, POINTS: tl.constexpr,
):  # fmt: skip
    """Sum over one block of the sample of one side, in one pose."""
    pose, block = tl.program_id(0), tl.program_id(1)
    k = block * QUERIES + tl.arange(0, QUERIES)
    valid = k < count
    x, y, z = (
        tl.load(sample + 6 * k, valid, 0.0),
        tl.load(sample + 6 * k + 1, valid, 0.0),
        tl.load(sample + 6 * k + 2, valid, 0.0),
    )
    moved_x, moved_y, moved_z = _transform(T_move + 16 * pose, x, y, z, True)
    moved_x, moved_y, moved_z = moved_x.to(tl.float32), moved_y.to(tl.float32), moved_z.to(tl.float32)
    j = nearest_point(search, n, moved_x, moved_y, moved_z, QUERIES, POINTS, False)

    u, v, w = tl.load(partners + 6 * j), tl.load(partners + 6 * j + 1), tl.load(partners + 6 * j + 2)
    nx, ny, nz = (
        tl.load(sample + 6 * k + 3, valid, 0.0),
        tl.load(sample + 6 * k + 4, valid, 0.0),
        tl.load(sample + 6 * k + 5, valid, 0.0),
    )
    nu, nv, nw = tl.load(partners + 6 * j + 3), tl.load(partners + 6 * j + 4), tl.load(partners + 6 * j + 5)
    T = T_pose + 16 * pose
    if FROM_SOURCE:
        px, py, pz = _transform(T, x, y, z, True)
        ax, ay, az = _transform(T, nx, ny, nz, False)  # normal of the source
        gx, gy, gz = u - px, v - py, w - pz
        bx, by, bz = nu, nv, nw  # normal of the target
    else:
        px, py, pz = _transform(T, u, v, w, True)
        ax, ay, az = _transform(T, nu, nv, nw, False)
        gx, gy, gz = x - px, y - py, z - pz
        bx, by, bz = nx, ny, nz
    cosine = ax * bx + ay * by + az * bz
    side = tl.where(cosine < 0, -1.0, 1.0)
    ax, ay, az, cosine = side * ax, side * ay, side * az, tl.minimum(side * cosine, 1.0)
    used = valid & (gx * gx + gy * gy + gz * gz < distance * distance)
    if GENERALISED:
        weight = tl.where(used, share, 0.0).to(tl.float64)
        along = weight * (1 / (2 - (1 - VARIANCE) * (1 + cosine)) - 0.5)
    else:
        used = used & (cosine > SAME_SIDE)
        if FROM_SOURCE:  # the plane is that of the partner
            offset = (gx * bx + gy * by + gz * bz) / distance
        else:
            offset = (gx * ax + gy * ay + gz * az) / distance
        near = 1 - tl.minimum(offset * offset, 1.0)
        weight = tl.where(used, near * near * share, 0.0)
        along = weight
    scale = 1 / tl.sqrt(2 + 2 * cosine)  # the mean of two unit vectors
    mx, my, mz = (ax + bx) * scale, (ay + by) * scale, (az + bz) * scale
    response = (
        mx, my, mz,
        py * mz - pz * my, pz * mx - px * mz, px * my - py * mx,
        gx * mx + gy * my + gz * mz,
    )  # fmt: skip
    place = (tl.full((QUERIES,), 1.0, tl.float64), px, py, pz, gx, gy, gz)
    out = sums + (pose * tl.num_programs(1) + block) * SUMS
    for a in tl.static_range(7):
        for b in tl.static_range(7):
            tl.store(out + 7 * a + b, tl.sum(along * response[a] * response[b], 0))
            tl.store(out + 49 + 7 * a + b, tl.sum(weight * place[a] * place[b], 0))
    tl.store(out + 98, tl.sum(tl.where(used, 1.0, 0.0).to(tl.float64), 0))
