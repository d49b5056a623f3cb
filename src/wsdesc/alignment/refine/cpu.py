"""Refinement on the CPU: one pose per thread.

First generalised ICP in both directions, in two stages of decreasing distance, and the mean of both results.
Then a few Gauss-Newton steps on the samples of both surfaces in one problem, which settle the last
millimetres.
"""

from __future__ import annotations

import numpy as np
from scipy.spatial.transform import Rotation

from wsdesc.alignment.information.cpu import ContactPairs, contact_pairs, information_of
from wsdesc.alignment.information.matrix import MIN_PAIRS
from wsdesc.alignment.refine.result import (
    CONVERGED,
    MAX_STEPS,
    OVERLAP_DISTANCE,
    SCORE_TOLERANCE,
    STAGE_DISTANCES,
    RefinedPose,
    orthonormalise,
    step_of,
)
from wsdesc.alignment.surface.cpu import CpuSurface
from wsdesc.alignment.verify.cpu import verify_pose
from wsdesc.alignment.verify.score import score_refinement
from wsdesc.core.geometry import Floats, inverse
from wsdesc.core.kernels import run_each

_MIN_POINTS = 5  # fewer points have no covariances
_MAX_ANGLE, _MAX_SHIFT = 0.05, 10  # radians, resolutions: results of both directions that are averaged


def refine(source: CpuSurface, target: CpuSurface, poses: Floats, resolution: float) -> list[RefinedPose]:
    """See `wsdesc.alignment.refine.refine`."""
    if len(poses) and min(len(source.points), len(target.points)) >= _MIN_POINTS:
        run_each(lambda surface: (surface.gicp, surface.gicp_sample), (source, target))  # shared by all poses
    return run_each(lambda T: refine_pose(source, target, T, resolution), list(poses))


def evaluate(source: CpuSurface, target: CpuSurface, poses: Floats, resolution: float) -> list[RefinedPose]:
    """See `wsdesc.alignment.refine.evaluate`."""
    return run_each(lambda T: _evaluate_pose(source, target, T, resolution), list(poses))


def refine_pose(source: CpuSurface, target: CpuSurface, T_given: Floats, resolution: float) -> RefinedPose:
    """Refine one pose (4, 4)."""
    distance = OVERLAP_DISTANCE * resolution
    T = T_given
    if min(len(source.points), len(target.points)) >= _MIN_POINTS:
        for stage_distance in STAGE_DISTANCES:
            T = _gicp_both_ways(source, target, T, stage_distance * resolution, resolution)
    T, converged = _gauss_newton(source, target, T, distance, CONVERGED * resolution)

    before, after = (verify_pose(source, target, pose, distance) for pose in (T_given, T))
    worse = score_refinement(after, distance) < (1 - SCORE_TOLERANCE) * score_refinement(before, distance)
    T, score = (T_given, before) if worse else (T, after)
    information = information_of(contact_pairs(source, target, T, distance))
    return RefinedPose(T, converged and not worse, score.rmse_plane, information, score)


def _evaluate_pose(source: CpuSurface, target: CpuSurface, T: Floats, resolution: float) -> RefinedPose:
    distance = OVERLAP_DISTANCE * resolution
    score = verify_pose(source, target, T, distance)
    information = information_of(contact_pairs(source, target, T, distance))
    return RefinedPose(T, False, score.rmse_plane, information, score)


def _gicp_both_ways(
    source: CpuSurface, target: CpuSurface, T: Floats, max_distance: float, resolution: float
) -> Floats:
    """Average generalised ICP of both directions; take the better one where the results differ much."""
    T_forward = _gicp(source, target, T, max_distance, resolution)
    T_backward = inverse(_gicp(target, source, inverse(T), max_distance, resolution))
    T_difference = inverse(T_forward) @ T_backward
    rotation = Rotation.from_matrix(T_difference[:3, :3])
    if rotation.magnitude() < _MAX_ANGLE and np.linalg.norm(T_difference[:3, 3]) < _MAX_SHIFT * resolution:
        return _mean_pose(T_forward, T_backward)
    distance = OVERLAP_DISTANCE * resolution
    return max(
        (T_forward, T_backward),
        key=lambda pose: score_refinement(verify_pose(source, target, pose, distance), distance),
    )


def _gicp(
    source: CpuSurface, target: CpuSurface, T_target_source: Floats, max_distance: float, resolution: float
) -> Floats:
    import small_gicp

    cloud, tree = target.gicp
    result = small_gicp.align(
        cloud,
        source.gicp_sample,
        tree,
        T_target_source,
        max_correspondence_distance=max_distance,
        num_threads=1,  # more threads add in another order and change the last digits
        max_iterations=20,
        rotation_epsilon=1e-3,
        translation_epsilon=0.03 * resolution,
    )
    return orthonormalise(np.asarray(result.T_target_source))


def _gauss_newton(
    source: CpuSurface, target: CpuSurface, T: Floats, distance: float, tolerance: float
) -> tuple[Floats, bool]:
    """Minimise point-to-plane distances of both samples; return the pose and whether it converged."""
    for _ in range(MAX_STEPS):
        pairs = contact_pairs(source, target, T, distance)
        T_step, moved = _solve_step(pairs)
        if T_step is None:
            return T, False
        T = orthonormalise(T_step @ T)
        if moved < tolerance:
            return T, True
    return T, False


def _solve_step(pairs: ContactPairs) -> tuple[Floats | None, float]:
    """Find the step (4, 4) in the target's frame that joins the planes, and how far it moves the overlap."""
    if len(pairs.weights) < MIN_PAIRS or not pairs.weights.sum() > 0:
        return None, 0.0
    weights = pairs.weights / pairs.weights.sum()
    normals = pairs.source_normals + pairs.target_normals
    normals /= np.linalg.norm(normals, axis=1, keepdims=True)
    centre = np.einsum("n,ni->i", weights, pairs.source)
    arms = pairs.source - centre
    extent = np.sqrt(np.einsum("n,ni,ni->", weights, arms, arms))
    if not extent > 0:
        return None, 0.0
    responses = np.hstack([normals, np.cross(arms / extent, normals)])  # (M, 6)
    gaps = np.einsum("ni,ni->n", pairs.target - pairs.source, normals)
    values, vectors = np.linalg.eigh(np.einsum("n,ni,nj->ij", weights, responses, responses))
    slope = np.einsum("ik,n,ni,n->k", vectors, weights, responses, gaps, optimize=True)
    return step_of(values, vectors, slope, centre, extent)


def _mean_pose(T_a: Floats, T_b: Floats) -> Floats:
    """Average two poses that are close to each other."""
    T = np.eye(4)
    rotation = Rotation.from_matrix(T_a[:3, :3].T @ T_b[:3, :3]).as_rotvec()
    T[:3, :3] = T_a[:3, :3] @ Rotation.from_rotvec(rotation / 2).as_matrix()
    T[:3, 3] = (T_a[:3, 3] + T_b[:3, 3]) / 2
    return T
