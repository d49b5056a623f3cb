"""Refinement by Gauss-Newton steps, of both backends: a backend does the steps of a stage.

First come two stages of generalised ICP on the coarse samples of both surfaces in one problem. The last
stage minimises point-to-plane distances of the whole samples, which settles the last millimetres.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from wsdesc.alignment.information.matrix import Information
from wsdesc.alignment.refine.result import OVERLAP_DISTANCE, WEAK, RefinedPose, orthonormalise
from wsdesc.alignment.verify.score import PoseScore, score_refinement
from wsdesc.core.geometry import Floats

NORMAL_VARIANCE = 1e-3  # of a point along its normal in generalised ICP, in units of that along its plane

# Numbers that sum up the pairs of a pose: 49 products of (responses to twists about the origin along the mean
# normals, gap along it), 49 products of (1, point, gap), and the number of pairs.
SUMS = 99

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
    Stage(generalised=True, distance=8.0, max_steps=20, tolerance=0.3, weak=1e-9, isotropic=0.5),
    Stage(generalised=True, distance=3.0, max_steps=20, tolerance=0.03, weak=1e-9, isotropic=0.5),
)
LAST_STAGE = Stage(generalised=False, distance=OVERLAP_DISTANCE, max_steps=12, tolerance=3e-4, weak=WEAK)

Iterated = tuple[Floats, NDArray[np.bool_]]  # poses (H, 4, 4), and which have converged


class Backend(NamedTuple):
    """Functions of two surfaces and poses (H, 4, 4), of one backend."""

    run_stage: Callable[[Any, Any, Floats, Stage, float], Iterated]  # of a stage and the resolution
    verify: Callable[[Any, Any, Floats, float], list[PoseScore]]  # of the overlap distance
    compute_information: Callable[[Any, Any, Floats, float], list[Information]]  # of the overlap distance


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
) -> Iterated:
    """Iterate each of the poses (H, 4, 4); return the poses and which have converged (H,).

    Poses with too few contact pairs stay as they are.
    """
    T, converged = backend.run_stage(source, target, poses, stage, resolution)
    return orthonormalise(T), converged


def _group_equal(poses: Floats, resolution: float) -> tuple[list[int], list[int]]:
    """Group poses (H, 4, 4) that are nearly equal: the group of each, and the first pose of each group."""
    group: list[int] = []
    first: list[int] = []
    # ‖R_a − R_b‖ is 2 √2 sin(angle / 2).
    rotations, positions = poses[:, :3, :3].reshape(-1, 9), poses[:, :3, 3]
    chord = 2 * np.sqrt(2) * np.sin(_EQUAL_ANGLE / 2)
    for R, t in zip(rotations, positions, strict=True):
        equal = np.linalg.norm(rotations[first] - R, axis=1) < chord
        equal &= np.linalg.norm(positions[first] - t, axis=1) < _EQUAL_SHIFT * resolution
        if equal.any():
            group.append(int(equal.argmax()))
        else:
            first.append(len(group))
            group.append(len(first) - 1)
    return group, first
