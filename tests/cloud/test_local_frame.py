"""The local frame moves with the scan: a moved scan has the same local points."""

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from poses import random_pose
from wsdesc.cloud.clean import clean
from wsdesc.cloud.local_frame import in_scan_frames, local_frame, to_local
from wsdesc.core.geometry import inverse, is_rigid, transform


def room(count: int = 4000, seed: int = 0) -> np.ndarray:
    """Points on a floor, a wall and a box, as an asymmetric scene."""
    rng = np.random.default_rng(seed)
    points = rng.uniform(0, 1, (count, 3)) * [5, 3, 0]
    points[: count // 3] = rng.uniform(0, 1, (count // 3, 3)) * [5, 0, 2.5]
    points[: count // 9] = rng.uniform(0, 1, (count // 9, 3)) * [0.8, 0.5, 0.4] + [0.3, 1, 0]
    return points + 0.005 * rng.normal(size=points.shape)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("size", [1.0, 5e6])
def test_moved_scans_have_the_same_local_points(seed, size):
    points = room()
    T = random_pose(seed, size)
    a, b = clean(points), clean(transform(points, T))
    rounding = 1e-6 if size == 1.0 else 1e-5  # float32 at 3 m, and float64 at 5000 km
    assert np.abs(a.points - b.points).max() < rounding
    np.testing.assert_allclose(b.T_scan_local, T @ a.T_scan_local, atol=1e-9 * max(size, 1.0) * 0.01 + 1e-9)
    if size == 1.0:
        assert (a.points == b.points).mean() > 0.9999


@pytest.mark.parametrize("seed", range(3))
def test_float32_files_of_a_moved_scan(seed):
    points = room(seed=seed)
    moved = transform(points, random_pose(seed, 3.0)).astype(np.float32)
    np.testing.assert_allclose(clean(moved).points, clean(points).points, atol=5e-6)


def test_the_order_of_points_does_not_matter():
    points = room()
    order = np.random.default_rng(1).permutation(len(points))
    np.testing.assert_allclose(clean(points[order]).points, clean(points).points[order], atol=1e-6)


@pytest.mark.parametrize("unit", [1e-12, 1e-3, 3.28, 1e12])
def test_the_unit_does_not_matter(unit):
    points = room()
    a, b = clean(points), clean(unit * points)
    np.testing.assert_allclose(b.points / unit, a.points, atol=1e-6)


def test_outliers_change_little():
    points = room()
    far = np.array([[3e4, -2e4, 5e4], [-4e4, 1e4, 2e4]])
    T_before, T_after = local_frame(points), local_frame(np.concatenate([points, far]))
    assert np.linalg.norm(T_before[:3, 3] - T_after[:3, 3]) < 1.0
    cleaned = clean(np.concatenate([points, far]))
    assert np.abs(transform(cleaned.points, cleaned.T_scan_local)[:-2] - points).max() < 1e-6


def test_denser_points_in_one_place_change_little():
    """A part of the scan has thirty times the density, as near a scanner."""
    rng = np.random.default_rng(3)
    points = room(20_000)
    near = points[np.linalg.norm(points - [1, 1, 0], axis=1) < 0.5]
    dense = np.concatenate([points, *(near + 0.002 * rng.normal(size=near.shape) for _ in range(30))])
    R = local_frame(points)[:3, :3] @ local_frame(dense)[:3, :3].T
    assert np.degrees(Rotation.from_matrix(R).magnitude()) < 10


rng = np.random.default_rng(0)
DEGENERATE = {
    "one point": rng.normal(size=(1, 3)),
    "two points": rng.normal(size=(2, 3)),
    "three points": rng.normal(size=(3, 3)),
    "equal points": np.tile(rng.normal(size=(1, 3)), (50, 1)),
    "a line": rng.exponential(size=(200, 1)) * [[1.0, 2.0, -1.0]],
    "a plane": np.c_[rng.exponential(size=(300, 2)) * [3, 1], np.zeros(300)],
    "a tiny scan": 1e-300 * room(200),
    "the smallest numbers": np.array([[0, 0, 0], [5e-324, 0, 0], [0, 1e-323, 0]]),
    "a huge scan": 1e37 * room(200),
    "a cube": np.stack(np.meshgrid(*[[-1.0, 1.0]] * 3), -1).reshape(-1, 3),
    "a sphere": rng.normal(size=(500, 3)) / np.linalg.norm(rng.normal(size=(500, 3)), axis=1, keepdims=True),
}


@pytest.mark.parametrize("name", DEGENERATE)
def test_degenerate_scans_have_a_rigid_frame(name):
    points = DEGENERATE[name]
    cleaned = clean(points)
    assert is_rigid(cleaned.T_scan_local)
    size = np.abs(points).max()
    back = transform(cleaned.points.astype(np.float64), cleaned.T_scan_local)
    np.testing.assert_allclose(back, points[cleaned.index], atol=max(1e-6 * size, 1e-45))


@pytest.mark.parametrize("name", ["three points", "a line", "a plane"])
def test_degenerate_scans_move_with_their_frame(name):
    points = DEGENERATE[name]
    a, b = clean(points).points, clean(transform(points, random_pose(7, 1.0))).points
    np.testing.assert_allclose(a, b, atol=1e-5)


def test_a_symmetric_scan_has_the_same_points_in_each_of_its_frames():
    points = DEGENERATE["a cube"] * [1, 2, 3]
    a, b = (clean(scan).points for scan in (points, transform(points, random_pose(1, 1.0))))
    nearest = np.linalg.norm(a[:, None] - b, axis=2).min(axis=1)
    assert nearest.max() < 1e-5


def test_the_frame_is_the_same_on_any_number_of_threads(monkeypatch):
    import torch

    points = room(300_000)
    results = []
    for threads in (1, 3):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        results.append(local_frame(points))
    np.testing.assert_array_equal(*results)


def test_poses_between_local_frames_become_poses_between_scans():
    """Geographic coordinates keep their precision."""
    points = room()
    T_source, T_target = random_pose(1, 5e6), random_pose(2, 5e6)
    source, target = transform(points, T_source), transform(points, T_target)
    a, b = clean(source), clean(target)
    T_local = inverse(b.T_scan_local) @ T_target @ inverse(T_source) @ a.T_scan_local
    T_local[:3, 3] = 0.0  # rounding at 5000 km; both origins are the same point
    T = in_scan_frames(T_local, a.T_scan_local, b.T_scan_local)
    assert np.abs(transform(source, T) - target).max() < 1e-6
    exact = to_local(source, a.T_scan_local, np.float64)
    assert np.abs(exact - a.points).max() < 1e-6
