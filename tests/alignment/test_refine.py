from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.spatial.transform import Rotation

from wsdesc.alignment.refine import merit, refine
from wsdesc.alignment.surface import Surface
from wsdesc.alignment.verify import agreement
from wsdesc.cloud.sampling import voxel_downsample
from wsdesc.core.errors import InputError
from wsdesc.core.geometry import inverse

STEP = 0.04


def motion(seed: int) -> np.ndarray:
    T = np.eye(4)
    T[:3, :3] = Rotation.random(random_state=seed).as_matrix()
    T[:3, 3] = np.random.default_rng(seed).uniform(-3, 3, 3)
    return T


def moved(points: np.ndarray, T: np.ndarray) -> np.ndarray:
    return points @ T[:3, :3].T + T[:3, 3]


def scan(seed: int) -> np.ndarray:
    """A room of 2 m: floor, two walls, some boxes; with noise, at the resolution."""
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
    points += g.normal(0, 0.2 * STEP, points.shape)
    return voxel_downsample(torch.from_numpy(points), STEP).numpy()


@pytest.fixture(scope="module")
def room() -> tuple[Surface, Surface, np.ndarray]:
    """Two scans that overlap in part, and T_target_source; both have been moved somewhere."""
    T, T_target_world = motion(5), motion(6)
    source, target = scan(0), scan(1)
    source, target = source[source[:, 0] < 0.7], target[target[:, 1] > -0.6]
    source = moved(source, inverse(T) @ T_target_world)
    return Surface.of(source), Surface.of(moved(target, T_target_world)), T


def disturbed(room: tuple, degrees: float, steps: float, seed: int) -> np.ndarray:
    """The true pose, off by a turn about the source's centre and a shift in units of the resolution."""
    source, _, T = room
    g = np.random.default_rng(seed)
    turn, shift = (v / np.linalg.norm(v) for v in g.normal(size=(2, 3)))
    centre = source.points.mean(0)
    D = np.eye(4)
    D[:3, :3] = Rotation.from_rotvec(np.radians(degrees) * turn).as_matrix()
    D[:3, 3] = centre - D[:3, :3] @ centre + steps * STEP * shift
    return T @ D


def apart(points: np.ndarray, T_a: np.ndarray, T_b: np.ndarray) -> float:
    """The greatest distance between the same point under two poses, in units of the resolution."""
    return float(np.linalg.norm(moved(points, T_a) - moved(points, T_b), axis=1).max() / STEP)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("degrees", "steps"), [(0, 0), (5, 2), (10, 3)])
def test_finds_the_true_pose_nearby(room: tuple, degrees: float, steps: float, seed: int) -> None:
    source, target, T = room
    start = disturbed(room, degrees, steps, seed)
    result = refine(source, target, start, resolution=STEP)
    assert result.converged
    assert apart(source.points, result.T_target_source, T) < 0.25
    assert result.rmse < 0.4 * STEP
    assert result.agreement == agreement(source, target, result.T_target_source, 2 * STEP)
    assert np.linalg.eigvalsh(result.information.matrix).min() > 0.02
    R = result.T_target_source[:3, :3]
    np.testing.assert_allclose(R @ R.T, np.eye(3), atol=1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_swapping_inverts(room: tuple, seed: int) -> None:
    source, target, _ = room
    start = disturbed(room, 5, 2, seed)
    there = refine(source, target, start, resolution=STEP)
    back = refine(target, source, inverse(start), resolution=STEP)
    assert apart(source.points, there.T_target_source, inverse(back.T_target_source)) < 0.05
    assert back.rmse == pytest.approx(there.rmse, rel=0.02)


@pytest.mark.parametrize("which", ["source", "target"])
def test_moving_a_cloud_moves_the_result(room: tuple, which: str) -> None:
    source, target, _ = room
    start, M = disturbed(room, 5, 2, 9), motion(12)
    here = refine(source, target, start, resolution=STEP).T_target_source
    if which == "source":
        cloud = Surface.of(moved(source.points, M))
        there = refine(cloud, target, start @ inverse(M), resolution=STEP).T_target_source @ M
    else:
        cloud = Surface.of(moved(target.points, M))
        there = inverse(M) @ refine(source, cloud, M @ start, resolution=STEP).T_target_source
    assert apart(source.points, here, there) < 0.05


def test_same_bits_twice(room: tuple) -> None:
    source, target, _ = room
    start = disturbed(room, 5, 2, 1)
    first = refine(source, target, start, resolution=STEP)
    again = refine(Surface.of(source.points), Surface.of(target.points), start, resolution=STEP)
    np.testing.assert_array_equal(first.T_target_source, again.T_target_source)
    np.testing.assert_array_equal(first.information.matrix, again.information.matrix)


def test_units_do_not_matter(room: tuple) -> None:
    source, target, T = room
    start = disturbed(room, 3, 2, 2)
    scale = np.diag([1000.0, 1000, 1000, 1])
    large = refine(
        Surface.of(1000 * source.points),
        Surface.of(1000 * target.points),
        scale @ start @ np.linalg.inv(scale),
        resolution=1000 * STEP,
    )
    assert apart(source.points, np.linalg.inv(scale) @ large.T_target_source @ scale, T) < 0.25


@pytest.mark.parametrize("seed", range(6))
def test_never_agrees_less_than_the_pose_given(room: tuple, seed: int) -> None:
    source, target, _ = room
    start = disturbed(room, 60, 15, seed)
    result = refine(source, target, start, resolution=STEP)
    reach = 2 * STEP
    assert merit(result.agreement, reach) >= 0.99 * merit(agreement(source, target, start, reach), reach)
    if not result.converged:
        assert np.isfinite(result.T_target_source).all()


def test_a_cloud_on_itself_stays() -> None:
    cloud = Surface.of(scan(0))
    result = refine(cloud, cloud, np.eye(4), resolution=STEP)
    assert result.converged
    assert apart(cloud.points, result.T_target_source, np.eye(4)) < 1e-3
    assert result.rmse < 1e-3 * STEP


def test_clouds_apart_keep_the_pose() -> None:
    cloud, T = Surface.of(scan(0)), np.eye(4)
    T[0, 3] = 50
    result = refine(cloud, cloud, T, resolution=STEP)
    assert not result.converged
    np.testing.assert_array_equal(result.T_target_source, T)
    assert result.rmse == np.inf
    assert result.information.places == 0


@pytest.mark.parametrize("points", [np.eye(3)[:1], np.eye(3)[:2], np.eye(3), np.ones((50, 3))])
def test_clouds_that_are_hardly_any(points: np.ndarray) -> None:
    few, many = Surface.of(points), Surface.of(scan(0))
    for pair in ((few, few), (few, many), (many, few)):
        result = refine(*pair, np.eye(4), resolution=STEP)
        assert np.isfinite(result.T_target_source).all()
        assert not result.converged


def test_refuses_bad_input(room: tuple) -> None:
    source, target, T = room
    with pytest.raises(InputError, match="resolution"):
        refine(source, target, T, resolution=0.0)
    with pytest.raises(InputError, match="pose"):
        refine(source, target, 2 * T, resolution=STEP)
