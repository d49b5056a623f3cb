"""Covariance of poses: definite, moves with the scans and their unit, and as large as the errors."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.spatial.transform import Rotation
from scipy.stats import chi2

from poses import perturbed, random_pose
from shapes import RESOLUTION, scan
from wsdesc.alignment.covariance import (
    PoseCovariance,
    estimate_covariance,
    largest_deviations,
    move_covariance,
)
from wsdesc.alignment.refine import RefinedPose, evaluate, refine
from wsdesc.alignment.surface import CpuSurface, CudaSurface
from wsdesc.core.geometry import inverse, transform


def refined_pose(name: str, seed: int = 3, noise: float = 0.25, scale: float = 1.0) -> tuple:
    """Refine the true pose of two scans of a shape; return surfaces, the pose, and the truth."""
    T = random_pose(seed)
    source = scale * transform(scan(name, 2 * seed, noise), inverse(T))
    T[:3, 3] *= scale
    p, q = CpuSurface.of(source), CpuSurface.of(scale * scan(name, 2 * seed + 1, noise))
    start = perturbed(T, source, 1.0, scale * RESOLUTION, seed)
    (refined,) = refine(p, q, start[None], scale * RESOLUTION)
    return (p, q), refined, T


def covariance_of(name: str, seed: int = 3, noise: float = 0.25, scale: float = 1.0) -> PoseCovariance:
    surfaces, refined, _ = refined_pose(name, seed, noise, scale)
    covariance = estimate_covariance(*surfaces, refined, scale * RESOLUTION)
    assert covariance is not None
    return covariance


def error_twist(refined: RefinedPose, T: np.ndarray, centre: np.ndarray) -> np.ndarray:
    """Return the twist (v, ω) about the centre from a pose to the truth."""
    D = T @ inverse(refined.T_target_source)
    v = transform(centre[None], D)[0] - centre
    return np.concatenate([v, Rotation.from_matrix(D[:3, :3]).as_rotvec()])


@pytest.mark.parametrize("name", ["room", "corner", "corridor", "plane", "sphere"])
def test_covariance_is_symmetric_positive_definite_and_finite(name: str) -> None:
    matrix = covariance_of(name).matrix
    assert matrix.shape == (6, 6)
    np.testing.assert_array_equal(matrix, matrix.T)
    values = np.linalg.eigvalsh(matrix)
    assert values[0] > 0
    assert np.isfinite(values).all()


def test_identical_scans_have_a_small_but_definite_covariance() -> None:
    surface = CpuSurface.of(scan("room", 1))
    (refined,) = refine(surface, surface, np.eye(4)[None], RESOLUTION)
    covariance = estimate_covariance(surface, surface, refined, RESOLUTION)
    assert covariance is not None
    assert np.linalg.eigvalsh(covariance.matrix)[0] > 0
    assert largest_deviations(covariance.matrix)[0] < 0.01 * RESOLUTION


def test_unit_of_the_scans_scales_the_covariance() -> None:
    large, small = covariance_of("room"), covariance_of("room", scale=1024.0)  # a power of 2: equal samples
    scale = np.array([1024.0] * 3 + [1.0] * 3)
    tolerance = 0.03 * np.sqrt(np.outer(*2 * [np.diag(small.matrix)]))
    assert (np.abs(small.matrix - large.matrix * np.outer(scale, scale)) < tolerance).all()
    np.testing.assert_allclose(small.centre, 1024 * large.centre, rtol=1e-3)


def test_covariance_moves_with_the_target() -> None:
    """Samples of the surfaces depend on the frame, so the covariances are equal only nearly."""
    (p, q), refined, _ = refined_pose("room")
    D = random_pose(8, size=50.0)
    moved = CpuSurface.of(transform(np.asarray(q.points), D))
    (again,) = refine(p, moved, (D @ refined.T_target_source)[None], RESOLUTION)
    a = estimate_covariance(p, q, refined, RESOLUTION)
    b = estimate_covariance(p, moved, again, RESOLUTION)
    assert a is not None
    assert b is not None
    expected = a.in_frame(D)
    np.testing.assert_allclose(b.centre, expected.centre, atol=0.05)
    # Compare ellipsoids: eigenvalues of one relative to the other.
    relative = np.linalg.eigvals(np.linalg.solve(expected.matrix, b.matrix)).real
    assert (relative > 0.4).all()
    assert (relative < 2.5).all()


def test_frame_and_unit_change_the_matrix_as_they_change_twists() -> None:
    rng = np.random.default_rng(0)
    root = rng.normal(size=(6, 6))
    covariance = PoseCovariance(root @ root.T, rng.normal(size=3))
    T, unit, point = random_pose(5), 3.0, rng.normal(size=3)
    twists = rng.multivariate_normal(np.zeros(6), covariance.matrix, 20_000)
    moved = twists[:, :3] + np.cross(twists[:, 3:], point - covariance.centre)
    rotated = np.hstack([unit * moved @ T[:3, :3].T, twists[:, 3:] @ T[:3, :3].T])
    changed = covariance.in_frame(T, unit)
    result = changed.at(unit * T[:3, :3] @ point + T[:3, 3])
    expected = np.cov(rotated.T)
    assert np.abs(result - expected).max() < 0.05 * np.abs(expected).max()


def test_covariance_moves_there_and_back() -> None:
    matrix, shift = covariance_of("room").matrix, np.array([5e5, -6e6, 100.0])
    shifted = move_covariance(matrix, shift)
    assert np.sqrt(shifted[0, 0]) > 1000 * np.sqrt(matrix[0, 0])
    near = move_covariance(move_covariance(matrix, shift / 1e6), -shift / 1e6)
    np.testing.assert_allclose(near, matrix, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("name", ["two planes", "corridor"])
def test_deviation_is_large_along_a_corridor_only(name: str) -> None:
    matrix = covariance_of(name).matrix
    assert np.sqrt(matrix[0, 0]) > 0.5  # the extent of the scans, in metres
    assert np.sqrt(matrix[1, 1]) < RESOLUTION
    assert np.sqrt(matrix[2, 2]) < RESOLUTION


def test_deviation_is_large_along_a_wall_and_about_its_normal() -> None:
    matrix = covariance_of("plane").matrix
    v, w = np.sqrt(np.diag(matrix)[:3]), np.sqrt(np.diag(matrix)[3:])
    assert min(v[:2]) > 0.5
    assert v[2] < RESOLUTION
    assert w[2] > 0.5
    assert max(w[:2]) < 0.05


def test_noise_and_a_pose_that_is_not_refined_increase_the_deviation() -> None:
    quiet, noisy = (largest_deviations(covariance_of("room", noise=noise).matrix) for noise in (0.1, 0.5))
    assert noisy[0] > 1.5 * quiet[0]
    surfaces, refined, T = refined_pose("room")
    (coarse,) = evaluate(*surfaces, perturbed(T, surfaces[0].points, 0.5, RESOLUTION, 1)[None], RESOLUTION)
    before, after = (estimate_covariance(*surfaces, pose, RESOLUTION) for pose in (coarse, refined))
    assert before is not None
    assert after is not None
    error = error_twist(coarse, T, before.centre)
    assert error @ np.linalg.solve(before.matrix, error) < chi2.ppf(0.999, 6)
    assert largest_deviations(before.matrix)[0] > 3 * largest_deviations(after.matrix)[0]


def test_scans_that_do_not_touch_have_no_covariance() -> None:
    p, q = CpuSurface.of(scan("room", 1)), CpuSurface.of(scan("room", 2) + 100.0)
    (refined,) = evaluate(p, q, np.eye(4)[None], RESOLUTION)
    assert estimate_covariance(p, q, refined, RESOLUTION) is None


def test_backends_agree() -> None:
    surfaces, refined, _ = refined_pose("room")
    on_cuda = tuple(CudaSurface.of(torch.as_tensor(s.points, dtype=torch.float64)) for s in surfaces)
    a = estimate_covariance(*surfaces, refined, RESOLUTION)
    b = estimate_covariance(*on_cuda, refined, RESOLUTION)
    assert a is not None
    assert b is not None
    relative = np.linalg.eigvals(np.linalg.solve(a.matrix, b.matrix)).real
    np.testing.assert_allclose(relative, 1, atol=0.3)
