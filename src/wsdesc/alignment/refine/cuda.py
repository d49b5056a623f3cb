"""Refinement on a GPU: several poses at once, in plain torch.

The GPU sums the equations of all poses. The CPU solves the six unknowns of each and finds which have
converged. First come two stages of generalised ICP on the samples of both surfaces in one problem, then the
same last steps as on the CPU, which end at the same pose.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from wsdesc.alignment.information.cuda import (
    ContactPairs,
    centre_moments,
    compute_information,
    contact_pairs,
    plane_weights,
    twist_responses,
    weighted_products,
)
from wsdesc.alignment.information.matrix import MIN_PAIRS
from wsdesc.alignment.refine.result import (
    CONVERGED,
    MAX_STEPS,
    OVERLAP_DISTANCE,
    SCORE_TOLERANCE,
    STAGE_DISTANCES,
    WEAK,
    RefinedPose,
    orthonormalise,
    step_of,
)
from wsdesc.alignment.surface.cuda import CudaSurface
from wsdesc.alignment.verify.cuda import verify
from wsdesc.alignment.verify.score import score_refinement
from wsdesc.core.geometry import Floats

_NORMAL_VARIANCE = 1e-3  # variance of a point along its normal, in units of that along its plane


class _Stage(NamedTuple):
    """Gauss-Newton steps of one kind. Lengths in resolutions."""

    weigh: Callable[[ContactPairs, float], tuple[Tensor, Tensor, Tensor]]
    distance: float  # within which partners are searched
    max_steps: int
    tolerance: float  # a step that moves the overlap by less is the last
    weak: float  # eigenvalues below this share of the largest leave their motion as it is
    isotropic: float = 0.0  # weight of distances in all directions


def refine(source: CudaSurface, target: CudaSurface, poses: Floats, resolution: float) -> list[RefinedPose]:
    """See `wsdesc.alignment.refine.refine`."""
    if len(poses) == 0:
        return []
    distance = OVERLAP_DISTANCE * resolution
    T = poses
    for stage in _STAGES:
        T, converged = _gauss_newton(source, target, T, stage, resolution)
    scores = verify(source, target, np.concatenate([poses, T]), distance)
    before, after = scores[: len(T)], scores[len(T) :]
    limits = [(1 - SCORE_TOLERANCE) * score_refinement(score, distance) for score in before]
    worse = [score_refinement(a, distance) < limit for a, limit in zip(after, limits, strict=True)]
    T = np.where(np.array(worse)[:, None, None], poses, T)
    results = []
    for k, information in enumerate(compute_information(source, target, T, distance)):
        score = before[k] if worse[k] else after[k]
        reliable = bool(converged[k]) and not worse[k]
        results.append(RefinedPose(T[k], reliable, score.rmse_plane, information, score))
    return results


def evaluate(source: CudaSurface, target: CudaSurface, poses: Floats, resolution: float) -> list[RefinedPose]:
    """See `wsdesc.alignment.refine.evaluate`."""
    distance = OVERLAP_DISTANCE * resolution
    scores = verify(source, target, poses, distance)
    informations = compute_information(source, target, poses, distance)
    return [
        RefinedPose(T, False, score.rmse_plane, information, score)
        for T, score, information in zip(poses, scores, informations, strict=True)
    ]


def _gauss_newton(
    source: CudaSurface, target: CudaSurface, poses: Floats, stage: _Stage, resolution: float
) -> tuple[Floats, NDArray[np.bool_]]:
    """Iterate each of the poses (H, 4, 4); return the poses and which have converged (H,).

    Poses with too few contact pairs stay as they are.
    """
    T, converged = poses.copy(), np.zeros(len(poses), bool)
    active = list(range(len(poses)))
    for _ in range(stage.max_steps):
        pairs = contact_pairs(source, target, T[active], stage.distance * resolution)
        for k, sums in zip(list(active), _sum_equations(pairs, stage, resolution), strict=True):
            T_step, moved = _solve_step(sums, stage)
            if T_step is None:
                active.remove(k)
                continue
            T[k] = T_step @ T[k]
            if moved < stage.tolerance * resolution:
                converged[k] = True
                active.remove(k)
        if not active:
            break
    return np.stack([orthonormalise(pose) for pose in T]), converged


def _sum_equations(pairs: ContactPairs, stage: _Stage, resolution: float) -> Floats:
    """Sum over the pairs of each pose: (H, 99).

    Products of (responses along the mean normals, gap) are 49 sums, products of (1, point, gap) are 49, and
    the last is the number of pairs.
    """
    along_normal, weights, count = stage.weigh(pairs, stage.distance * resolution)
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
    stiffness = 1 / (2 - (1 - _NORMAL_VARIANCE) * (1 + pairs.cosine)) - 0.5
    return stiffness * pairs.share, pairs.share, (pairs.share > 0).sum(1)


def _solve_step(sums: Floats, stage: _Stage) -> tuple[Floats | None, float]:
    """Solve the equations (99,) of a pose: the step (4, 4) in the target's frame, and how far it moves."""
    along, points, count = sums[:49].reshape(7, 7), sums[49:98].reshape(7, 7), sums[98]
    total = points[0, 0]
    if count < MIN_PAIRS or not total > 0:
        return None, 0.0
    centre, extent, _, change = centre_moments(points[0, 1:4] / total, points[1:4, 1:4] / total)
    if not extent > 0:
        return None, 0.0
    matrix, slope = along[:6, :6] / total, along[:6, 6] / total
    if stage.isotropic:
        isotropic = _isotropic_equations(points / total)
        matrix = matrix + stage.isotropic * isotropic[:, :6]
        slope = slope + stage.isotropic * isotropic[:, 6]
    values, vectors = np.linalg.eigh(change @ matrix @ change.T)
    return step_of(values, vectors, (change @ slope) @ vectors, centre, extent, stage.weak)


def _isotropic_equations(mean: Floats) -> Floats:
    """Build matrix and right side (6, 7) of point distances from mean products (7, 7) of (1, point, gap)."""
    (x, y, z), second, across = mean[0, 1:4], mean[1:4, 1:4], mean[1:4, 4:]
    result = np.zeros((6, 7))
    result[:3, :3] = np.eye(3)
    result[3:, :3] = [[0, -z, y], [z, 0, -x], [-y, x, 0]]
    result[:3, 3:6] = result[3:, :3].T
    result[3:, 3:6] = np.trace(second) * np.eye(3) - second
    result[:3, 6] = mean[0, 4:]
    result[3:, 6] = across[1, 2] - across[2, 1], across[2, 0] - across[0, 2], across[0, 1] - across[1, 0]
    return result


_STAGES = (
    *(_Stage(_generalised, distance, 20, 0.03, weak=1e-9, isotropic=0.5) for distance in STAGE_DISTANCES),
    _Stage(_point_to_plane, OVERLAP_DISTANCE, MAX_STEPS, CONVERGED, WEAK),
)
