"""Refinement on the CPU: the steps of one pose per thread."""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from wsdesc.alignment.information.cpu import compute_information
from wsdesc.alignment.information.matrix import SAME_SIDE
from wsdesc.alignment.refine import gauss_newton
from wsdesc.alignment.refine.equations import solve_step
from wsdesc.alignment.refine.gauss_newton import NORMAL_VARIANCE, SUMS, Backend, Iterated, Stage
from wsdesc.alignment.surface.cpu import CpuSurface, load_pair
from wsdesc.alignment.verify.cpu import verify
from wsdesc.core.geometry import Floats, inverse
from wsdesc.core.kernels import kernel, run_each


def run_stage(
    source: CpuSurface, target: CpuSurface, poses: Floats, stage: Stage, resolution: float
) -> Iterated:
    """Iterate each of the poses (H, 4, 4) on a thread: no pose waits for the steps of others."""

    def iterate(T: Floats) -> tuple[Floats, bool]:
        for _ in range(stage.max_steps):
            sums = sum_equations(source, target, T, stage.distance * resolution, stage.generalised)
            step = solve_step(sums, stage.isotropic, stage.weak)
            if step is None:
                return T, False
            T = step.T @ T
            if step.moved < stage.tolerance * resolution:
                return T, True
        return T, False

    iterated, converged = zip(*run_each(iterate, list(poses)), strict=True)
    return np.stack(iterated), np.array(converged)


def sum_equations(
    source: CpuSurface, target: CpuSurface, T: Floats, distance: float, generalised: bool
) -> Floats:
    """Sum the equations of a pose (4, 4); (99,), see `SUMS`."""
    sums = np.zeros(SUMS)
    for sampled, searched, T_searched_sampled in ((source, target, T), (target, source, inverse(T))):
        sample = sampled.coarse_sample if generalised else sampled.full_sample
        _, partner = searched.nearest(sample.points, distance, T_searched_sampled)
        arrays = (sample.points, sample.normals, partner, searched.points, searched.normals)
        _add_pairs(*arrays, T, sampled is source, distance, 1 / len(sample.points), generalised, sums)
    return sums


@kernel(
    types="float64[:, ::1], float64[:, ::1], int64[::1], float64[:, ::1], float64[:, ::1], "
    "float64[:, ::1], boolean, float64, float64, boolean, float64[::1]",
)
def _add_pairs(
    points, normals, partner, other_points, other_normals, T, from_source, distance, share, generalised, sums
):
    """Add the pairs of a sample and its partners to the sums of a pose."""
    p, q, n_p, n_q = np.empty(3), np.empty(3), np.empty(3), np.empty(3)
    response, place = np.empty(7), np.empty(7)
    place[0] = 1.0
    for m in range(len(points)):
        j = partner[m]
        if j == len(other_points):  # no point is near
            continue
        cosine = load_pair(
            m, points, normals, j, other_points, other_normals, T, 1.0, from_source, p, q, n_p, n_q
        )
        sign = -1.0 if cosine < 0 else 1.0
        cosine = min(abs(cosine), 1.0)
        if generalised:
            weight = share
            along = (1 / (2 - (1 - NORMAL_VARIANCE) * (1 + cosine)) - 0.5) * share
        else:
            if not cosine > SAME_SIDE:
                continue
            offset = 0.0  # from the partner's plane
            for a in range(3):
                offset += (q[a] - p[a]) * (n_q[a] if from_source else n_p[a])
            weight = (1 - min((offset / distance) ** 2, 1.0)) ** 2 * share
            along = weight
        length = math.sqrt(2 + 2 * cosine)  # of the sum of both normals
        gap = 0.0
        for a in range(3):
            place[1 + a], place[4 + a] = p[a], q[a] - p[a]
            response[a] = (sign * n_p[a] + n_q[a]) / length
            gap += (q[a] - p[a]) * response[a]
        for a in range(3):
            b, c = (a + 1) % 3, (a + 2) % 3
            response[3 + a] = p[b] * response[c] - p[c] * response[b]
        response[6] = gap
        for a in range(7):
            for b in range(a + 1):
                sums[7 * a + b] += along * response[a] * response[b]
                sums[49 + 7 * a + b] += weight * place[a] * place[b]
        sums[98] += 1
    for a in range(7):  # products are symmetric
        for b in range(a):
            sums[7 * b + a], sums[49 + 7 * b + a] = sums[7 * a + b], sums[49 + 7 * a + b]


_BACKEND = Backend(run_stage, verify, compute_information)
refine = partial(gauss_newton.refine, _BACKEND)
evaluate = partial(gauss_newton.evaluate, _BACKEND)
