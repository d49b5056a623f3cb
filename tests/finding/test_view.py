"""Which side of an object is seen, and distances in a grid, against plain references."""

import numpy as np
from scipy.spatial import cKDTree

from wsdesc.finding.distance_grid import DistanceGrid
from wsdesc.finding.view import facing, sides


def ball(radius=0.6, count=4000):
    k = np.arange(count) + 0.5
    z, turn = 1 - 2 * k / count, np.pi * (1 + 5**0.5) * k
    ring = np.sqrt(1 - z * z)
    return radius * np.stack([ring * np.cos(turn), ring * np.sin(turn), z], axis=1)


def test_the_near_side_of_a_ball_faces_the_viewpoint():
    points = ball()
    seen = facing(points, np.array([0.0, 0.0, 10.0]))
    assert seen[points[:, 2] > 0.1].all()
    assert not seen[points[:, 2] < -0.2].any()


def test_a_flat_object_faces_both_ways():
    sheet = np.random.default_rng(0).uniform((-0.5, -0.5, 0), (0.5, 0.5, 0), (2000, 3))
    assert facing(sheet, np.array([0.0, 0.0, 8.0])).all()
    assert facing(sheet, np.array([0.0, 0.0, -8.0])).all()


def test_every_point_of_a_ball_is_on_half_of_the_sides():
    seen = sides(ball())
    assert 0.4 < seen.mean() < 0.7
    assert (seen.mean(axis=0) > 0.3).all()


def test_distances_in_a_grid_are_those_of_a_tree():
    rng = np.random.default_rng(0)
    points = ball(count=2000)
    grid = DistanceGrid.around(points)
    queries = rng.uniform(-0.75, 0.75, (3000, 3))
    expected, _ = cKDTree(points).query(queries)
    cells = tuple(((queries - grid.low) / grid.cell).astype(int).T)
    assert np.abs(grid.values[cells] - expected).max() < 2 * grid.cell
    to_point = np.linalg.norm(points[grid.nearest[cells]] - queries, axis=1)
    assert np.abs(to_point - expected).max() < 2 * grid.cell
