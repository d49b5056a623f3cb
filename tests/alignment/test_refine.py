"""Refinement on the CPU: accuracy, symmetry, determinism, and scans without overlap."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import poses
from poses import largest_difference, random_pose
from wsdesc.alignment.refine import RefinedPose, compiled_steps, equations, refine
from wsdesc.alignment.surface import CpuSurface, Surface
from wsdesc.alignment.verify import PoseScore, score_refinement, verify
from wsdesc.cloud.sampling import voxel_downsample
from wsdesc.core.errors import InputError
from wsdesc.core.geometry import inverse, transform

RESOLUTION = 0.04


def scan(seed: int) -> np.ndarray:
    """Scan a room of 2 m with floor, two walls and boxes, with noise, at the resolution."""
    g = np.random.default_rng([seed, 3])
    boxes = [
        (-1, -1, 0, 3, 3, 3),
        (0.4, 0.2, 0, 1, 1, 1.2),
        (-0.8, -0.7, 0, 0.8, 0.7, 0.6),
        (-0.9, 0.5, 0, 0.3, 0.4, 0.9),
    ]
    faces = []
    for box in boxes:
        low, size = np.array(box[:3]), np.array(box[3:])
        for axis in range(3):
            points = low + size * g.uniform(0, 1, (int(2000 * size.prod() / size[axis]), 3))
            points[:, axis] = low[axis] + (
                0 if len(faces) < 3 else size[axis] * g.integers(0, 2, len(points))
            )
            faces.append(points)
    points = np.concatenate(faces)
    points = points[(points < 1.2).all(1)]
    points += g.normal(0, 0.2 * RESOLUTION, points.shape)
    return voxel_downsample(torch.from_numpy(points), RESOLUTION).numpy()


@pytest.fixture(scope="module")
def room() -> tuple[CpuSurface, CpuSurface, np.ndarray]:
    """Two scans that overlap in part, in random frames, and T_target_source."""
    T, T_target_world = random_pose(5), random_pose(6)
    source, target = scan(0), scan(1)
    source, target = source[source[:, 0] < 0.7], target[target[:, 1] > -0.6]
    source = transform(source, inverse(T) @ T_target_world)
    return CpuSurface.of(source), CpuSurface.of(transform(target, T_target_world)), T


def perturbed(room: tuple, degrees: float, steps: float, seed: int) -> np.ndarray:
    """Perturb the true pose by an angle and a distance in resolutions."""
    source, _, T = room
    return poses.perturbed(T, source.points, degrees, steps * RESOLUTION, seed)


def difference(points: np.ndarray, T_a: np.ndarray, T_b: np.ndarray) -> float:
    """Return the largest distance between two poses in resolutions."""
    return largest_difference(points, T_a, T_b) / RESOLUTION


def refined(source: Surface, target: Surface, T: np.ndarray, resolution: float = RESOLUTION) -> RefinedPose:
    """Refine one pose (4, 4)."""
    (result,) = refine(source, target, T[None], resolution)
    return result


def score(source: Surface, target: Surface, T: np.ndarray) -> PoseScore:
    """Verify one pose (4, 4)."""
    (result,) = verify(source, target, T[None], 2 * RESOLUTION)
    return result


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("degrees", "steps"), [(0, 0), (5, 2), (10, 3)])
def test_refinement_finds_the_true_pose_nearby(room: tuple, degrees: float, steps: float, seed: int) -> None:
    source, target, T = room
    start = perturbed(room, degrees, steps, seed)
    result = refined(source, target, start)
    assert result.converged
    assert difference(source.points, result.T_target_source, T) < 0.25
    assert result.rmse < 0.4 * RESOLUTION
    assert result.score == score(source, target, result.T_target_source)
    assert np.linalg.eigvalsh(result.information.matrix).min() > 0.02
    R = result.T_target_source[:3, :3]
    np.testing.assert_allclose(R @ R.T, np.eye(3), atol=1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_swapping_the_scans_inverts_the_pose(room: tuple, seed: int) -> None:
    source, target, _ = room
    start = perturbed(room, 5, 2, seed)
    forward = refined(source, target, start)
    backward = refined(target, source, inverse(start))
    assert difference(source.points, forward.T_target_source, inverse(backward.T_target_source)) < 0.05
    assert backward.rmse == pytest.approx(forward.rmse, rel=0.02)


@pytest.mark.parametrize("which", ["source", "target"])
def test_moving_a_scan_moves_the_pose(room: tuple, which: str) -> None:
    source, target, _ = room
    start, M = perturbed(room, 5, 2, 9), random_pose(12)
    expected = refined(source, target, start).T_target_source
    if which == "source":
        other = CpuSurface.of(transform(source.points, M))
        moved = refined(other, target, start @ inverse(M)).T_target_source @ M
    else:
        other = CpuSurface.of(transform(target.points, M))
        moved = inverse(M) @ refined(source, other, M @ start).T_target_source
    assert difference(source.points, expected, moved) < 0.05


def test_two_runs_give_the_same_bits(room: tuple) -> None:
    source, target, _ = room
    start = perturbed(room, 5, 2, 1)
    first = refined(source, target, start)
    again = refined(CpuSurface.of(source.points), CpuSurface.of(target.points), start)
    np.testing.assert_array_equal(first.T_target_source, again.T_target_source)
    np.testing.assert_array_equal(first.information.matrix, again.information.matrix)


def test_units_do_not_change_the_pose(room: tuple) -> None:
    source, target, T = room
    start = perturbed(room, 3, 2, 2)
    scale = np.diag([1000.0, 1000, 1000, 1])
    large = refined(
        CpuSurface.of(1000 * source.points),
        CpuSurface.of(1000 * target.points),
        scale @ start @ np.linalg.inv(scale),
        resolution=1000 * RESOLUTION,
    )
    assert difference(source.points, np.linalg.inv(scale) @ large.T_target_source @ scale, T) < 0.25


@pytest.mark.parametrize("seed", range(6))
def test_refinement_never_lowers_the_score(room: tuple, seed: int) -> None:
    source, target, _ = room
    start = perturbed(room, 60, 15, seed)
    result = refined(source, target, start)
    before, after = (
        score_refinement(x, 2 * RESOLUTION) for x in (score(source, target, start), result.score)
    )
    assert after >= 0.99 * before
    if not result.converged:
        assert np.isfinite(result.T_target_source).all()


def test_a_scan_on_itself_stays() -> None:
    cloud = CpuSurface.of(scan(0))
    result = refined(cloud, cloud, np.eye(4))
    assert result.converged
    assert difference(cloud.points, result.T_target_source, np.eye(4)) < 1e-3
    assert result.rmse < 1e-3 * RESOLUTION


def test_scans_apart_keep_the_given_pose() -> None:
    cloud, T = CpuSurface.of(scan(0)), np.eye(4)
    T[0, 3] = 50
    result = refined(cloud, cloud, T)
    assert not result.converged
    np.testing.assert_array_equal(result.T_target_source, T)
    assert result.rmse == np.inf
    assert result.information.pairs == 0


@pytest.mark.parametrize("points", [np.eye(3)[:1], np.eye(3)[:2], np.eye(3), np.ones((50, 3))])
def test_scans_of_few_points(points: np.ndarray) -> None:
    few, many = CpuSurface.of(points), CpuSurface.of(scan(0))
    for pair in ((few, few), (few, many), (many, few)):
        result = refined(*pair, np.eye(4))
        assert np.isfinite(result.T_target_source).all()
        assert not result.converged


def test_invalid_input_is_rejected(room: tuple) -> None:
    source, target, T = room
    with pytest.raises(InputError, match="resolution"):
        refined(source, target, T, resolution=0.0)
    with pytest.raises(InputError, match="poses"):
        refined(source, target, 2 * T)


@pytest.mark.parametrize("isotropic", [0.0, 0.5])
def test_compiled_steps_equal_those_of_numpy(isotropic: float) -> None:
    rng = np.random.default_rng(0)
    normals = np.array([0.0, 0.0, 1.0]) + rng.normal(0, [[[1e-3]], [[0.3]], [[1.0]]], (3, 200, 3))
    points, gaps = rng.normal(size=(3, 200, 3)), rng.normal(0, 0.01, (3, 200, 3))
    along = (gaps * normals).sum(-1, keepdims=True)
    rows = np.concatenate([normals, np.cross(points, normals), along], -1)
    places = np.concatenate([np.ones_like(along), points, gaps], -1)
    products = [np.einsum("hni,hnj->hij", x, x).reshape(3, 49) for x in (rows, places)]
    sums = np.concatenate([*products, np.array([[200.0], [200.0], [2.0]])], 1)  # the last has too few pairs
    expected = [equations.solve_step(pose, isotropic, 1e-3) for pose in sums]
    steps = compiled_steps.solve_steps(sums, isotropic, 1e-3)
    assert steps.determined.tolist() == [step is not None for step in expected] == [True, True, False]
    for k, step in enumerate(expected[:2]):
        np.testing.assert_allclose(steps.T_step[k], step.T, atol=1e-12)
        np.testing.assert_allclose(steps.moved[k], step.moved, atol=1e-12)
