"""Neighbours in blocks of cells equal those of a k-d tree."""

import numpy as np
import pytest
from scipy.spatial import cKDTree

from wsdesc.core.cells import Cells, count_within, nearest_neighbours


def _surface(count: int, seed: int = 0) -> np.ndarray:
    """Return points on two walls and a few outliers far from them."""
    rng = np.random.default_rng(seed)
    points = rng.uniform(-2, 2, (count, 3))
    points[: count // 2, 0], points[count // 2 :, 2] = 0, 1
    points[-3:] *= 50
    return points


@pytest.mark.parametrize("count", [1, 4, 20])
@pytest.mark.parametrize("points", [20, 700, 3000])
def test_nearest_neighbours_equal_those_of_a_tree(points: int, count: int) -> None:
    cloud = _surface(points)
    distance, expected = cKDTree(cloud).query(cloud, count)
    near = nearest_neighbours(cloud, count)
    assert near.shape == (points, count)
    np.testing.assert_array_equal(near, expected.reshape(points, count))
    distances = np.linalg.norm(cloud[near] - cloud[:, None], axis=2)
    np.testing.assert_allclose(distances, distance.reshape(points, count), atol=1e-12)


def test_points_in_one_place_and_dense_clusters() -> None:
    assert (nearest_neighbours(np.zeros((5, 3)), 3) < 5).all()
    rng = np.random.default_rng(1)
    cloud = np.concatenate([rng.normal(size=(2000, 3)) * 1e-4, rng.uniform(-5, 5, (300, 3))])
    np.testing.assert_array_equal(nearest_neighbours(cloud, 6), cKDTree(cloud).query(cloud, 6)[1])


def test_a_point_far_away_costs_no_memory() -> None:
    cloud = np.concatenate([_surface(500), [[1e9, 0, 0]]])
    cells = Cells.of(cloud, 0.1)
    assert len(cells.keys) <= len(cloud)
    np.testing.assert_array_equal(nearest_neighbours(cloud, 4), cKDTree(cloud).query(cloud, 4)[1])


@pytest.mark.parametrize("radius", [0.05, 0.3, 20.0])
def test_counts_equal_those_of_a_tree(radius: float) -> None:
    cloud = _surface(1500).astype(np.float32)
    expected = cKDTree(cloud.astype(float)).query_ball_point(cloud, radius, return_length=True)
    np.testing.assert_array_equal(count_within(cloud, radius), expected)
