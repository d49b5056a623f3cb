"""Results whose pose contains a factor of lengths."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from wsdesc.cloud.cloud import Cloud
from wsdesc.cloud.viewpoint import Viewpoint
from wsdesc.core.geometry import make_pose
from wsdesc.registration.result import AlternativePose, Registration

FACTOR = 0.3048


@pytest.fixture
def similarity() -> Registration:
    T = make_pose(
        FACTOR * Rotation.from_euler("xyz", [10, 20, 30], degrees=True).as_matrix(), (4.0, -5.0, 6.0)
    )
    root = np.random.default_rng(0).normal(size=(6, 6))
    return Registration(
        T_target_source=T,
        success=True,
        confidence=0.95,
        overlap=0.5,
        rmse=0.03,
        inliers=10,
        matches=20,
        resolution=0.06,
        scale=FACTOR,
        scale_deviation=0.01,
        overlap_target=0.6,
        alternatives=[AlternativePose(T, 0.02, 0.4, 0.05, 0.3), AlternativePose(np.eye(4), 0.01, 0.1, 0.1)],
        viewpoints=(Viewpoint(np.array([1.0, 2.0, 3.0]), "given"), None),
        covariance=root @ root.T,
        covariance_centre=np.array([1.0, 2.0, 3.0]),
    )


def test_parts_of_the_pose(similarity):
    assert similarity.factor == pytest.approx(FACTOR)
    np.testing.assert_allclose(similarity.rotation @ similarity.rotation.T, np.eye(3), atol=1e-12)
    assert np.linalg.norm(similarity.quaternion) == pytest.approx(1)
    np.testing.assert_allclose(similarity.euler("xyz"), [10, 20, 30])
    assert "rotation 35." in str(similarity)


def test_lengths_grow_by_the_factor(similarity):
    points = np.random.default_rng(1).normal(size=(50, 3))
    moved = similarity.apply(points)
    np.testing.assert_allclose(
        np.linalg.norm(np.diff(moved, axis=0), axis=1),
        FACTOR * np.linalg.norm(np.diff(points, axis=0), axis=1),
    )
    np.testing.assert_allclose(similarity.inverse().apply(moved), points, atol=1e-12)


def test_normals_stay_unit_vectors(similarity):
    normals = np.random.default_rng(2).normal(size=(50, 3))
    normals /= np.linalg.norm(normals, axis=1, keepdims=True)
    names = dict(zip(("nx", "ny", "nz"), normals.T, strict=True))
    moved = similarity.apply(Cloud(normals, names, viewpoint=np.zeros(3)))
    lengths = np.linalg.norm(np.stack([moved.attributes[name] for name in names]), axis=0)
    np.testing.assert_allclose(lengths, 1)
    np.testing.assert_allclose(moved.viewpoint, similarity.translation)


def test_open3d_normals_stay_unit_vectors(similarity):
    open3d = pytest.importorskip("open3d")
    cloud = open3d.geometry.PointCloud(open3d.utility.Vector3dVector(np.eye(3)))
    cloud.normals = open3d.utility.Vector3dVector(np.eye(3))
    moved = similarity.apply(cloud)
    np.testing.assert_allclose(np.linalg.norm(np.asarray(moved.normals), axis=1), 1)


def test_inverse_has_the_lengths_of_the_source(similarity):
    swapped = similarity.inverse()
    np.testing.assert_allclose(swapped.T_target_source @ similarity.T_target_source, np.eye(4), atol=1e-12)
    assert swapped.scale == pytest.approx(1 / FACTOR)
    assert swapped.scale_deviation / swapped.scale == pytest.approx(0.01 / FACTOR)
    assert (swapped.rmse, swapped.resolution) == pytest.approx((0.03 / FACTOR, 0.06 / FACTOR))
    assert swapped.alternatives[0].rmse == pytest.approx(0.05 / FACTOR)
    again = swapped.inverse()
    np.testing.assert_allclose(again.covariance, similarity.covariance)
    np.testing.assert_allclose(again.covariance_centre, similarity.covariance_centre)
    # Shifts of the source's frame are 1 / FACTOR as long.
    assert np.trace(swapped.covariance[:3, :3]) == pytest.approx(
        np.trace(similarity.covariance[:3, :3]) / FACTOR**2
    )


def test_file_keeps_the_similarity(similarity, tmp_path):
    similarity.save(tmp_path / "T.json")
    loaded = Registration.load(tmp_path / "T.json")
    np.testing.assert_array_equal(loaded.T_target_source, similarity.T_target_source)
    assert (loaded.scale, loaded.scale_deviation) == (FACTOR, 0.01)
    similarity.save(tmp_path / "T.txt")
    np.testing.assert_array_equal(np.loadtxt(tmp_path / "T.txt"), similarity.T_target_source)


def test_rigid_form_moves_the_multiplied_source(similarity):
    rigid = similarity.as_rigid()
    points = np.random.default_rng(3).normal(size=(20, 3))
    assert rigid.factor == 1
    np.testing.assert_allclose(rigid.apply(similarity.factor * points), similarity.apply(points), atol=1e-12)
    assert rigid.scale == pytest.approx(1)
    np.testing.assert_allclose(rigid.viewpoints[0].position, FACTOR * np.array([1, 2, 3]))
    assert len(rigid.alternatives) == 1  # the other one has another factor
    assert rigid.as_rigid() is rigid
    assert replace(rigid, T_target_source=np.eye(4)).as_rigid().factor == 1
