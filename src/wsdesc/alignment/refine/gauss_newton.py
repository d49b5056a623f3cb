"""Gauss-Newton steps of both backends: a backend sums equations, this module solves six unknowns per pose.

First come two stages of generalised ICP on the coarse samples of both surfaces in one problem. The last
stage minimises point-to-plane distances of the whole samples, which settles the last millimetres.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation

from wsdesc.alignment.information.matrix import MIN_PAIRS, Information, centre_moments
from wsdesc.alignment.refine.result import OVERLAP_DISTANCE, WEAK, RefinedPose, orthonormalise
from wsdesc.alignment.verify.score import PoseScore, score_refinement
from wsdesc.core.geometry import Floats, inverse

NORMAL_VARIANCE = 1e-3  # of a point along its normal in generalised ICP, in units of that along its plane
SUMS = 99  # numbers that `sum_equations` gives for a pose

_SCORE_TOLERANCE = 0.01  # relative difference of scores that may come from the choice of the sample
_EQUAL_SHIFT, _EQUAL_ANGLE = 1.0, 0.005  # resolutions and radians: closer poses have one minimum


class Stage(NamedTuple):
    """Gauss-Newton steps of one kind. Lengths in resolutions."""

    generalised: bool  # generalised ICP on the coarse samples; else planes of the whole samples
    distance: float  # within which partners are searched
    max_steps: int
    tolerance: float  # a step that moves the overlap by less is the last
    weak: float  # eigenvalues below this share of the largest leave their motion as it is
    isotropic: float = 0.0  # weight of distances in all directions


COARSE_STAGES = (
    Stage(generalised=True, distance=8.0, max_steps=20, tolerance=0.03, weak=1e-9, isotropic=0.5),
    Stage(generalised=True, distance=3.0, max_steps=20, tolerance=0.03, weak=1e-9, isotropic=0.5),
)
LAST_STAGE = Stage(generalised=False, distance=OVERLAP_DISTANCE, max_steps=12, tolerance=3e-4, weak=WEAK)


class Backend(NamedTuple):
    """Functions of two surfaces, poses (H, 4, 4) and a distance, of one backend.

    `sum_equations` also takes whether to generalise. It sums over the pairs of each pose (H, 99): 49 products
    of (responses to twists about the origin along the mean normals, gap along it), 49 products of (1, point,
    gap), and the number of pairs.
    """

    sum_equations: Callable[[Any, Any, Floats, float, bool], Floats]
    verify: Callable[[Any, Any, Floats, float], list[PoseScore]]
    compute_information: Callable[[Any, Any, Floats, float], list[Information]]


def refine(backend: Backend, source: Any, target: Any, poses: Floats, resolution: float) -> list[RefinedPose]:
    """See `wsdesc.alignment.refine.refine`."""
    if len(poses) == 0:
        return []
    distance = OVERLAP_DISTANCE * resolution
    T = poses
    for stage in COARSE_STAGES:
        T, _ = _run_stage(backend, source, target, T, stage, resolution)
    group, first = _group_equal(T, resolution)  # several hypotheses often lead to one pose
    T, converged = _run_stage(backend, source, target, T[first], LAST_STAGE, resolution)
    scores = backend.verify(source, target, np.concatenate([poses, T]), distance)
    before, after = scores[: len(poses)], scores[len(poses) :]
    limits = [(1 - _SCORE_TOLERANCE) * score_refinement(score, distance) for score in before]
    worse = [score_refinement(after[g], distance) < limit for g, limit in zip(group, limits, strict=True)]
    kept = [k for k, is_worse in enumerate(worse) if is_worse]  # poses that stay as they were given
    T_all = np.concatenate([T, poses[kept]])
    informations = backend.compute_information(source, target, T_all, distance)
    results = []
    for k, g in enumerate(group):
        at, score = (len(T) + kept.index(k), before[k]) if worse[k] else (g, after[g])
        reliable = bool(converged[g]) and not worse[k]
        results.append(RefinedPose(T_all[at], reliable, score.rmse_plane, informations[at], score))
    return results


def evaluate(
    backend: Backend, source: Any, target: Any, poses: Floats, resolution: float
) -> list[RefinedPose]:
    """See `wsdesc.alignment.refine.evaluate`."""
    distance = OVERLAP_DISTANCE * resolution
    scores = backend.verify(source, target, poses, distance)
    informations = backend.compute_information(source, target, poses, distance)
    return [
        RefinedPose(T, False, score.rmse_plane, information, score)
        for T, score, information in zip(poses, scores, informations, strict=True)
    ]


def _run_stage(
    backend: Backend, source: Any, target: Any, poses: Floats, stage: Stage, resolution: float
) -> tuple[Floats, NDArray[np.bool_]]:
    """Iterate each of the poses (H, 4, 4); return the poses and which have converged (H,).

    Poses with too few contact pairs stay as they are.
    """
    T, converged = poses.copy(), np.zeros(len(poses), bool)
    active = list(range(len(poses)))
    distance = stage.distance * resolution
    for _ in range(stage.max_steps):
        equations = backend.sum_equations(source, target, T[active], distance, stage.generalised)
        for k, sums in zip(list(active), equations, strict=True):
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


def _group_equal(poses: Floats, resolution: float) -> tuple[list[int], list[int]]:
    """Group poses (H, 4, 4) that are nearly equal: the group of each, and the first pose of each group."""
    group: list[int] = []
    first: list[int] = []
    for T in poses:
        for g, k in enumerate(first):
            D = inverse(poses[k]) @ T
            angle = np.linalg.norm(Rotation.from_matrix(D[:3, :3]).as_rotvec())
            if angle < _EQUAL_ANGLE and np.linalg.norm(D[:3, 3]) < _EQUAL_SHIFT * resolution:
                group.append(g)
                break
        else:
            first.append(len(group))
            group.append(len(first) - 1)
    return group, first


def _solve_step(sums: Floats, stage: Stage) -> tuple[Floats | None, float]:
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
    # Undetermined motions stay as they are; noise would move them.
    determined = values > stage.weak * values[-1]
    along_vectors = ((change @ slope) @ vectors) / np.where(determined, values, 1.0)
    twist = vectors @ np.where(determined, along_vectors, 0.0)
    T = np.eye(4)
    T[:3, :3] = Rotation.from_rotvec(twist[3:] / extent).as_matrix()
    T[:3, 3] = centre + twist[:3] - T[:3, :3] @ centre
    return T, float(np.linalg.norm(twist))


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
