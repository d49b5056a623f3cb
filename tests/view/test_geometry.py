"""Interpolation between poses, and even reduction of points."""

import numpy as np
import pytest
from scipy.spatial import cKDTree
from scipy.spatial.transform import Rotation

from view_helpers import corner
from wsdesc.view.geometry import QuaternionPose, interpolate, thin_points


def pose_of(rotation, position):
    return QuaternionPose.from_matrix(
        Rotation.from_rotvec(rotation).as_matrix(), np.array(position, dtype=float)
    )


def test_interpolation_is_rigid_and_even():
    start, end = pose_of((0, 0, 0), (0, 0, 0)), pose_of((0, 0, 2.0), (4, 2, 0))
    points = corner(50)
    for share in (0.0, 0.25, 0.5, 1.0):
        pose = interpolate(start, end, share)
        np.testing.assert_allclose(
            pose.rotation, Rotation.from_rotvec((0, 0, 2.0 * share)).as_matrix(), atol=1e-12
        )
        np.testing.assert_allclose(pose.position, [4 * share, 2 * share, 0], atol=1e-12)
        moved = pose.apply(points)
        np.testing.assert_allclose(moved, points @ pose.rotation.T + pose.position)
        np.testing.assert_allclose(
            np.linalg.norm(np.diff(moved, axis=0)), np.linalg.norm(np.diff(points, axis=0))
        )


def test_interpolation_takes_the_short_way():
    start, end = pose_of((0, 0, 3.0), (0, 0, 0)), pose_of((0, 0, -3.0), (0, 0, 0))
    for a in (start, start._replace(wxyz=-start.wxyz)):
        half = interpolate(a, end, 0.5).rotation
        np.testing.assert_allclose(half, Rotation.from_rotvec((0, 0, np.pi)).as_matrix(), atol=1e-12)


def test_interpolation_of_equal_poses():
    pose = pose_of((0.1, 0.2, 0.3), (1, 2, 3))
    for share in (0.0, 0.3, 1.0):
        np.testing.assert_allclose(interpolate(pose, pose, share).wxyz, pose.wxyz, atol=1e-12)


def test_thinned_points_are_an_even_subset():
    rng = np.random.default_rng(0)
    dense = rng.uniform(0, 0.2, (40_000, 3)) * [1, 1, 0]  # as near a scanner
    sparse = rng.uniform(0, 4, (10_000, 3)) * [1, 1, 0]
    cloud = np.concatenate([dense, sparse])
    thinned = thin_points(cloud, 2000)
    assert 1000 <= len(thinned) <= 2000
    assert cKDTree(cloud).query(thinned)[0].max() == 0
    assert (thinned[:, :2].max(axis=1) < 0.2).mean() < 0.05  # 0.8 before
    np.testing.assert_array_equal(thinned, thin_points(cloud, 2000))


def test_an_outlier_does_not_displace_other_points():
    cloud = np.concatenate([corner(10_000), [[1e7, 0, 0]]])
    assert 500 <= len(thin_points(cloud, 1000)) <= 1000


@pytest.mark.parametrize("cloud", [corner(100), np.zeros((100, 3))], ids=["few", "all the same"])
def test_small_clouds_are_not_thinned(cloud):
    np.testing.assert_array_equal(thin_points(cloud, 100), cloud)
    assert 1 <= len(thin_points(cloud, 10)) <= 10
