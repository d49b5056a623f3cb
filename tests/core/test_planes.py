"""Planes through neighbours: known surfaces, invariance, a plain reference, degenerate points."""

import numpy as np
import pytest
from scipy.spatial import cKDTree

from poses import random_pose
from wsdesc.core.geometry import rotate, transform
from wsdesc.core.planes import NEIGHBOURS, local_planes, normals


def random_points(count, seed=0):
    return np.random.default_rng(seed).normal(size=(count, 3))


def test_normals_of_a_plane():
    points = np.random.default_rng(0).uniform(size=(500, 3)) * (1, 1, 0)
    planes = local_planes(points)
    np.testing.assert_allclose(np.abs(planes.normals[:, 2]), 1, atol=1e-9)
    np.testing.assert_allclose(planes.curvature, 0, atol=1e-12)


def test_normals_of_a_sphere():
    points = random_points(2000)
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    cosine = np.abs(np.einsum("ni,ni->n", normals(points), points))
    assert np.quantile(cosine, 0.05) > 0.99


def test_normals_follow_the_points():
    points, T = random_points(200) * (1, 1, 0.05), random_pose(1)
    cosine = np.einsum("ni,ni->n", normals(transform(points, T)), rotate(normals(points), T))
    np.testing.assert_allclose(np.abs(cosine), 1, atol=1e-6)
    np.testing.assert_allclose(
        local_planes(transform(points, T)).curvature, local_planes(points).curvature, atol=1e-9
    )


def test_a_given_tree_changes_nothing():
    points = random_points(100)
    np.testing.assert_array_equal(normals(points, cKDTree(points)), normals(points))


@pytest.mark.parametrize("count", [0, 1, 2])
def test_too_few_points(count):
    planes = local_planes(random_points(count))
    assert planes.normals.shape == (count, 3)
    assert not planes.normals.any()
    assert not planes.curvature.any()


@pytest.mark.parametrize(
    "points", [np.zeros((30, 3)), np.outer(np.arange(30.0), (1, 2, 3)), np.full((30, 3), 1e6)]
)
def test_points_and_lines_have_no_normal(points):
    planes = local_planes(points)
    assert not planes.normals.any()
    assert not planes.curvature.any()


def test_planes_equal_eigenvectors_of_the_covariance():
    points = random_points(300) * (2, 1, 0.1)
    near = points[cKDTree(points).query(points, NEIGHBOURS)[1]]
    offsets = near - near.mean(axis=1, keepdims=True)
    values, vectors = np.linalg.eigh(np.einsum("nki,nkj->nij", offsets, offsets))
    planes = local_planes(points)
    np.testing.assert_allclose(planes.curvature, 3 * values[:, 0] / values.sum(axis=1), atol=1e-12)
    cosine = np.einsum("ni,ni->n", planes.normals, vectors[:, :, 0])
    np.testing.assert_allclose(np.abs(cosine), 1, atol=1e-9)
