"""`Cloud` and its transformation."""

import numpy as np
import pytest
import torch
from scipy.spatial.transform import Rotation

from wsdesc import Cloud
from wsdesc.core.errors import InputError
from wsdesc.core.geometry import make_pose

RNG = np.random.default_rng(0)


@pytest.fixture
def pose() -> np.ndarray:
    return make_pose(Rotation.random(random_state=0).as_matrix(), (1, -2, 3))


def test_text_of_a_cloud_is_one_short_line():
    cloud = Cloud(RNG.normal(size=(2000, 3)), {"intensity": np.arange(2000)}, dropped=3)
    assert repr(cloud) == "Cloud(2,000 points; attributes intensity; 3 points dropped)"
    assert cloud != Cloud(cloud.points)  # comparing raises no error


def test_points_are_moved_and_the_original_stays(pose):
    points = RNG.normal(size=(20, 3))
    cloud = Cloud(points.copy(), {"intensity": np.arange(20)}, dropped=3)
    moved = cloud.transformed(pose)
    np.testing.assert_allclose(moved.points, points @ pose[:3, :3].T + pose[:3, 3])
    np.testing.assert_array_equal(moved.attributes["intensity"], np.arange(20))
    assert (len(moved), moved.dropped) == (20, 3)
    np.testing.assert_array_equal(cloud.points, points)
    np.testing.assert_allclose(cloud.transformed(torch.from_numpy(pose)).points, moved.points)


@pytest.mark.parametrize("names", [("nx", "ny", "nz"), ("normal_x", "normal_y", "normal_z")])
def test_columns_of_normals_are_rotated(pose, names):
    normals = RNG.normal(size=(20, 3)).astype(np.float32)
    cloud = Cloud(np.zeros((20, 3)), dict(zip(names, normals.T, strict=True)))
    moved = cloud.transformed(pose).attributes
    for axis, name in enumerate(names):
        assert moved[name].dtype == np.float32
        np.testing.assert_allclose(moved[name], (normals @ pose[:3, :3].T)[:, axis], rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(cloud.attributes[name], normals[:, axis])


def test_arrays_of_normals_are_rotated(pose):
    normals = RNG.normal(size=(20, 3))
    cloud = Cloud(np.zeros((20, 3)), {"normals": normals, "colors": normals, "nx": normals[:, 0]})
    moved = cloud.transformed(pose).attributes
    np.testing.assert_allclose(moved["normals"], normals @ pose[:3, :3].T)
    np.testing.assert_array_equal(moved["colors"], normals)
    np.testing.assert_array_equal(moved["nx"], normals[:, 0])


def test_only_rigid_transformations_are_accepted():
    cloud = Cloud(np.zeros((2, 3)))
    for bad in (np.eye(3), 2 * np.eye(4), np.full((4, 4), np.nan)):
        with pytest.raises(InputError, match="T "):
            cloud.transformed(bad)
