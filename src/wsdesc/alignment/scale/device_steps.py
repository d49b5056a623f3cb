"""Steps of a similarity transformation in triton kernels: one launch per stage, one download at the end."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
import triton
import triton.language as tl

from wsdesc.alignment.information.matrix import MIN_PAIRS, SAME_SIDE
from wsdesc.alignment.refine.result import WEAK
from wsdesc.alignment.scale.fused import sum_block
from wsdesc.alignment.scale.step import MAX_STEP, SUMS, Stages
from wsdesc.alignment.surface.cuda import CudaSurface
from wsdesc.alignment.surface.fused import POINTS, QUERIES
from wsdesc.core.geometry import Floats
from wsdesc.core.triton_eigen import multiply_tiles, solve_tile
from wsdesc.core.triton_poses import (
    centre_of,
    load_shared,
    move_pose,
    pick,
    skew_of_centre,
    sum_rows,
    wait_for_all,
    waiting_launch,
)

_NOT_SPECIALISED = ["p_count", "q_count", "p_n", "q_n", "blocks", "source_blocks", "distance", "steps"]


class Summed(NamedTuple):
    """A similarity after some steps, and the sums there."""

    S_target_source: Floats  # (4, 4)
    log_scale: float
    valid: bool  # False if a step had too few contact pairs
    sums: Floats  # (130,) see `step.SUMS`


def run_steps(
    source: CudaSurface,
    target: CudaSurface,
    S: Floats,
    resolution: float,
    stages: Stages,
) -> Summed:
    """Do all steps of the stages but the last; sum the equations of the last one.

    Args:
        source, target: The surfaces.
        S: Similarity (4, 4) to start from.
        resolution: Point spacing of the surfaces, in their unit.
        stages: As in `fit_similarity`.
    """
    device, start = source.points.device, np.concatenate([S.ravel(), np.linalg.inv(S).ravel(), [0.0, 1.0]])
    sums = np.zeros(SUMS)
    state = torch.from_numpy(np.concatenate([start, sums])).to(device)
    programs, options = waiting_launch(device)
    for number, (distance, steps, coarse) in enumerate(stages):
        p, q = (x.coarse_rows if coarse else x.sample_rows for x in (source, target))
        source_blocks, target_blocks = (triton.cdiv(len(rows), QUERIES) for rows in (p, q))
        blocks = source_blocks + target_blocks
        rows = torch.empty(blocks * SUMS, dtype=torch.float64, device=device)
        counter = torch.zeros(1, dtype=torch.int32, device=device)
        _run_steps[programs](
            p, len(p), q, len(q), source.search_points, len(source.points), target.search_points,
            len(target.points), source.rows, target.rows, state, rows, counter, blocks, source_blocks,
            distance * resolution, steps, LAST=number == len(stages) - 1, MIN_PAIRS=float(MIN_PAIRS),
            SAME_SIDE=float(SAME_SIDE), WEAK=WEAK, MAX_STEP=MAX_STEP, NUMBERS=SUMS, QUERIES=QUERIES,
            POINTS=2 * POINTS, **options,
        )  # fmt: skip
    end: Floats = state.cpu().numpy()
    return Summed(end[:16].reshape(4, 4), float(end[32]), bool(end[33] > 0), end[34:])


@triton.jit(do_not_specialize=_NOT_SPECIALISED)
def _run_steps(
    p, p_count, q, q_count, p_search, p_n, q_search, q_n, p_rows, q_rows, state, rows, counter, blocks,
    source_blocks, distance, steps, LAST: tl.constexpr, MIN_PAIRS: tl.constexpr, SAME_SIDE: tl.constexpr,
    WEAK: tl.constexpr, MAX_STEP: tl.constexpr, NUMBERS: tl.constexpr, QUERIES: tl.constexpr,
    POINTS: tl.constexpr,
):  # fmt: skip
    """Do the steps of one stage. The state has S (4, 4), its inverse, the log scale, a flag and the sums."""
    program, programs = tl.program_id(0), tl.num_programs(0)
    step, goal = 0, 0
    while (step < steps) & (load_shared(state + 33) > 0):
        for block in range(program, blocks, programs):
            sum_block(
                block, p, p_count, q, q_count, p_search, p_n, q_search, q_n, p_rows, q_rows, state,
                state + 16, rows + block * NUMBERS, source_blocks, distance, SAME_SIDE, QUERIES, POINTS,
            )  # fmt: skip
        goal += programs
        wait_for_all(counter, goal)
        step += 1
        if program == 0:
            sum_rows(rows, blocks, state + 34, NUMBERS, 256)
            if (step < steps) | (LAST == 0):  # the CPU solves the last step
                _move(state, MIN_PAIRS, WEAK, MAX_STEP)
        goal += programs
        wait_for_all(counter, goal)


@triton.jit
def _move(state, MIN_PAIRS: tl.constexpr, WEAK: tl.constexpr, MAX_STEP: tl.constexpr):
    """Solve the equations as `step.solve_step`, and move the similarity."""
    sums = state + 34  # products (8, 8) of responses and gap, (4, 4) of (1, point), (7, 7), number of pairs
    points = sums + 64
    row = tl.arange(0, 8)
    mass, cx, cy, cz, _square, extent, spread = centre_of(points, 4)
    determined = spread & (load_shared(sums + 129) >= MIN_PAIRS)
    i, j = row[:, None], row[None, :]
    inside = (i < 7) & (j < 7)
    matrix = tl.load(sums + 8 * i + j, inside, 0.0, cache_modifier=".cg") / mass
    slope = tl.load(sums + 8 * row + 7, row < 7, 0.0, cache_modifier=".cg") / mass
    # Rotations are about the centre, growth is from it, both in units of the extent.
    change = tl.where((i == j) & inside, tl.where(i < 3, 1.0, 1 / extent), 0.0)
    change -= skew_of_centre(points, mass) / extent
    centre = tl.where(j == 0, cx, tl.where(j == 1, cy, cz))
    change -= tl.where((i == 6) & (j < 3), centre / extent, 0.0)
    matrix = multiply_tiles(multiply_tiles(change, matrix), tl.trans(change))
    slope = tl.sum(change * slope[None, :], 1)
    x = solve_tile(matrix, slope, WEAK, 7)
    log_scale = tl.maximum(tl.minimum(pick(row, x, 6) / extent, MAX_STEP), -MAX_STEP)
    if determined:
        move_pose(state, state + 16, row, x, tl.exp(log_scale), cx, cy, cz, extent)
        tl.store(state + 32, load_shared(state + 32) + log_scale)
    else:
        tl.store(state + 33, 0.0)
