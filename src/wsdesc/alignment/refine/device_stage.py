"""All steps of a stage of the refinement in one triton kernel: poses stay on the GPU until they converge.

Programs sum the equations of the poses and wait for each other. Then one program per pose solves its
equations and moves it. Sums are added in a fixed order, so the number of programs changes no bit.
"""

from __future__ import annotations

import numpy as np
import torch
import triton
import triton.language as tl
from numpy.typing import NDArray

from wsdesc.alignment.information.matrix import MIN_PAIRS, SAME_SIDE
from wsdesc.alignment.refine.fused import sum_block
from wsdesc.alignment.refine.gauss_newton import NORMAL_VARIANCE, SUMS, Stage
from wsdesc.alignment.surface.cuda import CudaSurface
from wsdesc.alignment.surface.fused import POINTS, QUERIES
from wsdesc.core.geometry import Floats, inverse
from wsdesc.core.triton_eigen import multiply_tiles, solve_tile
from wsdesc.core.triton_poses import (
    centre_of,
    load_shared,
    move_pose,
    skew_of_centre,
    sum_rows,
    wait_for_all,
    waiting_launch,
)

_NOT_SPECIALISED = [
    "p_count", "q_count", "p_n", "q_n", "poses", "blocks", "source_blocks", "distance", "share", "max_steps",
    "tolerance", "isotropic", "weak",
]  # fmt: skip


def run_stage(
    source: CudaSurface, target: CudaSurface, poses: Floats, stage: Stage, resolution: float
) -> tuple[Floats, NDArray[np.bool_]]:
    """Iterate poses (H, 4, 4); return them and which have converged (H,), as `gauss_newton.run_stage`."""
    p, q = (x.coarse_rows if stage.generalised else x.sample_rows for x in (source, target))
    source_blocks, target_blocks = (triton.cdiv(len(rows), QUERIES) for rows in (p, q))
    count, blocks = len(poses), source_blocks + target_blocks
    flags = np.repeat([1.0, 0.0], count)  # active, converged
    state = np.concatenate([poses.ravel(), inverse(poses).ravel(), flags])
    on_device = torch.from_numpy(state).to(p.device)
    T_pose, T_back, active, converged = on_device.split([16 * count, 16 * count, count, count])
    sums = torch.empty(count * (blocks + 1) * SUMS, dtype=torch.float64, device=p.device)
    counter = torch.zeros(1, dtype=torch.int32, device=p.device)
    programs, options = waiting_launch(p.device)
    _run_stage[programs](
        p, len(p), q, len(q), source.search_points, len(source.points), target.search_points,
        len(target.points), source.rows, target.rows, T_pose, T_back, active, converged, sums, counter, count,
        blocks, source_blocks, stage.distance * resolution, len(p) / len(q), stage.max_steps,
        stage.tolerance * resolution, stage.isotropic, stage.weak,
        GENERALISED=stage.generalised, MIN_PAIRS=float(MIN_PAIRS), SAME_SIDE=float(SAME_SIDE),
        VARIANCE=NORMAL_VARIANCE, NUMBERS=SUMS, QUERIES=QUERIES, POINTS=2 * POINTS, **options,
    )  # fmt: skip
    state = on_device.cpu().numpy()
    return state[: 16 * count].reshape(-1, 4, 4), state[-count:] > 0


@triton.jit(do_not_specialize=_NOT_SPECIALISED)
def _run_stage(
    p, p_count, q, q_count, p_search, p_n, q_search, q_n, p_rows, q_rows, T_pose, T_back, active, converged,
    sums, counter, poses, blocks, source_blocks, distance, share, max_steps, tolerance, isotropic, weak,
    GENERALISED: tl.constexpr, MIN_PAIRS: tl.constexpr, SAME_SIDE: tl.constexpr, VARIANCE: tl.constexpr,
    NUMBERS: tl.constexpr, QUERIES: tl.constexpr, POINTS: tl.constexpr,
):  # fmt: skip
    program, programs = tl.program_id(0), tl.num_programs(0)
    remaining = poses
    step, goal = 0, 0
    while (step < max_steps) & (remaining > 0):
        for item in range(program, poses * blocks, programs):
            if load_shared(active + item // blocks) > 0:
                sum_block(
                    item // blocks, item % blocks, p, p_count, q, q_count, p_search, p_n, q_search, q_n,
                    p_rows, q_rows, T_pose, T_back, sums + item * NUMBERS, source_blocks, distance, share,
                    GENERALISED, SAME_SIDE, VARIANCE, QUERIES, POINTS,
                )  # fmt: skip
        goal += programs
        wait_for_all(counter, goal)
        for pose in range(program, poses, programs):
            if load_shared(active + pose) > 0:
                _move(
                    sums + pose * blocks * NUMBERS, blocks, sums + (poses * blocks + pose) * NUMBERS,
                    T_pose + 16 * pose, T_back + 16 * pose, active + pose, converged + pose, tolerance,
                    isotropic, weak, MIN_PAIRS, NUMBERS,
                )  # fmt: skip
        goal += programs
        wait_for_all(counter, goal)
        remaining = 0
        for pose in range(poses):
            remaining += (load_shared(active + pose) > 0).to(tl.int32)
        step += 1


@triton.jit
def _move(
    rows, blocks, sums, T, T_back, active, converged, tolerance, isotropic, weak,
    MIN_PAIRS: tl.constexpr, NUMBERS: tl.constexpr,
):  # fmt: skip
    """Solve the equations of one pose as `compiled_steps`, and move it."""
    sum_rows(rows, blocks, sums, NUMBERS, 128)
    row = tl.arange(0, 8)
    points = sums + 49  # products (7, 7) of (1, point, gap)
    mass, cx, cy, cz, trace, extent, spread = centre_of(points, 7)
    determined = spread & (load_shared(sums + 98) >= MIN_PAIRS)
    i, j = row[:, None], row[None, :]
    inside = (i < 6) & (j < 6)
    matrix = tl.load(sums + 7 * i + j, inside, 0.0, cache_modifier=".cg") / mass
    skew = skew_of_centre(points, mass)
    turn = (i >= 3) & (i < 6) & (j >= 3) & (j < 6)
    second = tl.load(points + 7 * (i - 2) + j - 2, turn, 0.0, cache_modifier=".cg") / mass
    even = tl.where((i == j) & inside, tl.where(i < 3, 1.0, trace), 0.0) + skew + tl.trans(skew) - second
    matrix += isotropic * even

    slope = tl.load(sums + 7 * row + 6, row < 6, 0.0, cache_modifier=".cg")
    gap = tl.load(points + 4 + row, row < 3, 0.0, cache_modifier=".cg")
    u, v, turns = (row + 1) % 3, (row + 2) % 3, (row >= 3) & (row < 6)
    gap += tl.load(points + 7 * (1 + u) + 4 + v, turns, 0.0, cache_modifier=".cg")
    gap -= tl.load(points + 7 * (1 + v) + 4 + u, turns, 0.0, cache_modifier=".cg")
    slope = (slope + isotropic * gap) / mass

    # Rotations are about the centre, in units of the extent.
    change = tl.where((i == j) & inside, tl.where(i < 3, 1.0, 1 / extent), 0.0) - skew / extent
    matrix = multiply_tiles(multiply_tiles(change, matrix), tl.trans(change))
    slope = tl.sum(change * slope[None, :], 1)
    twist = solve_tile(matrix, slope, weak, 6)
    moved = tl.sqrt(tl.sum(twist * twist, 0))
    if determined:
        zero = extent * 0
        move_pose(T, T_back, row, twist, zero + 1, cx, cy, cz, extent)
    arrived = moved < tolerance
    tl.store(active, tl.where(determined & (arrived == 0), 1.0, 0.0).to(tl.float64))
    tl.store(converged, tl.where(determined & arrived, 1.0, 0.0).to(tl.float64))
