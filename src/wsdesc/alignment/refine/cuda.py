"""Refinement on a GPU: the equations of all poses at once."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from torch import Tensor

from wsdesc.alignment.information.cuda import (
    ContactPairs,
    compute_information,
    contact_pairs,
    plane_weights,
    twist_responses,
    weighted_products,
)
from wsdesc.alignment.refine import gauss_newton
from wsdesc.alignment.refine.compiled_steps import solve_steps
from wsdesc.alignment.refine.gauss_newton import NORMAL_VARIANCE, Backend, Iterated, Stage
from wsdesc.alignment.surface.cuda import CudaSurface
from wsdesc.alignment.verify.cuda import verify
from wsdesc.core.devices import has_triton
from wsdesc.core.geometry import Floats


def sum_equations(
    source: CudaSurface, target: CudaSurface, poses: Floats, distance: float, generalised: bool
) -> Floats:
    """Sum the equations (H, 99) of each pose, see `SUMS`. On CUDA one kernel computes what follows."""
    if source.points.is_cuda and has_triton():
        from wsdesc.alignment.refine import fused

        return fused.sum_equations(source, target, poses, distance, generalised)
    return sum_plainly(source, target, poses, distance, generalised)


def sum_plainly(
    source: CudaSurface, target: CudaSurface, poses: Floats, distance: float, generalised: bool
) -> Floats:
    """Sum the equations of each pose, in plain torch."""
    pairs = contact_pairs(source, target, poses, distance, coarse=generalised)
    along_normal, weights, count = (_generalised if generalised else _point_to_plane)(pairs, distance)
    normals = pairs.source_normals + pairs.target_normals
    normals = normals * (2 + 2 * pairs.cosine[..., None]).rsqrt()  # the mean of two unit vectors
    gaps = (pairs.gap * normals).sum(-1, keepdim=True)
    responses = torch.cat([twist_responses(pairs.source, normals), gaps], -1)
    points = torch.cat([torch.ones_like(weights)[..., None], pairs.source, pairs.gap], -1)
    sums = (
        weighted_products(along_normal, responses, responses),
        weighted_products(weights, points, points),
        count[:, None],
    )
    return torch.cat([x.flatten(1) for x in sums], 1).cpu().numpy()


def _point_to_plane(pairs: ContactPairs, distance: float) -> tuple[Tensor, Tensor, Tensor]:
    """Weigh distances between planes, along the mean of both normals."""
    weights, count = plane_weights(pairs, distance)
    return weights, weights, count


def _generalised(pairs: ContactPairs, distance: float) -> tuple[Tensor, Tensor, Tensor]:
    """Weigh distances by the inverse of the uncertainty of both surfaces in their direction.

    A point is uncertain along its plane and nearly certain across it: C = 1 − (1 − s) n nᵀ. The inverse of
    the sum of two such matrices matters along the mean normal; in all directions it is about 1/2.
    """
    stiffness = 1 / (2 - (1 - NORMAL_VARIANCE) * (1 + pairs.cosine)) - 0.5
    return stiffness * pairs.share, pairs.share, (pairs.share > 0).sum(1)


def run_stage(
    source: CudaSurface, target: CudaSurface, poses: Floats, stage: Stage, resolution: float
) -> Iterated:
    """Iterate the poses (H, 4, 4), with triton in one kernel."""
    if not (source.points.is_cuda and has_triton()):
        return run_steps(source, target, poses, stage, resolution)
    from wsdesc.alignment.refine import device_stage

    return device_stage.run_stage(source, target, poses, stage, resolution)


def run_steps(
    source: CudaSurface, target: CudaSurface, poses: Floats, stage: Stage, resolution: float
) -> Iterated:
    """Iterate the poses, one sum and one solution of all equations per step."""
    T, converged = poses.copy(), np.zeros(len(poses), bool)
    active = np.arange(len(poses))
    distance = stage.distance * resolution
    for _ in range(stage.max_steps):
        equations = sum_equations(source, target, T[active], distance, stage.generalised)
        solved = solve_steps(equations, stage.isotropic, stage.weak)
        T[active] = np.matmul(solved.T_step, T[active])
        arrived = solved.moved < stage.tolerance * resolution
        converged[active] = solved.determined & arrived
        active = active[solved.determined & ~arrived]
        if len(active) == 0:
            break
    return T, converged


_BACKEND = Backend(run_stage, verify, compute_information)
refine = partial(gauss_newton.refine, _BACKEND)
evaluate = partial(gauss_newton.evaluate, _BACKEND)
