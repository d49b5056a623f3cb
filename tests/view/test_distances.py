"""Distances between scans: to the surface, not to the nearest point."""

import numpy as np
import pytest

from poses import pose_of
from view_helpers import corner
from wsdesc.core.geometry import transform
from wsdesc.view.build import pair_scene
from wsdesc.view.distances import PlaneDistances, neighbour_distances


def plane(count, seed=0):
    return np.random.default_rng(seed).uniform(-1, 1, (count, 3)) * [1, 1, 0]


def test_distance_does_not_depend_on_the_density():
    above = plane(500, 1) + np.array([0, 0, 0.02])
    for count in (2000, 50_000):
        distances = PlaneDistances(plane(count), 0.1).measure(above)
        assert distances.share == 1
        assert distances.median == pytest.approx(0.02, rel=1e-6)
        assert distances.quantile(0.95) == pytest.approx(0.02, rel=1e-6)


def test_far_points_have_no_partner():
    points = np.concatenate([plane(300, 1) + np.array([0, 0, 0.05]), plane(100, 2) + np.array([0, 0, 3.0])])
    distances = PlaneDistances(plane(5000), 0.2).measure(points)
    assert distances.share == pytest.approx(0.75)
    assert np.isnan(distances.values[300:]).all()
    nothing = PlaneDistances(plane(5000), 0.2).measure(points[300:])
    assert nothing.share == 0
    assert np.isnan(nothing.median)


def test_points_on_a_line_have_the_distance_to_the_nearest_point():
    line = np.linspace(0, 1, 200)[:, None] * [1.0, 0, 0]
    for points in (line, line[:1]):
        distances = PlaneDistances(points, 0.1).measure(points + np.array([0, 0.03, 0.04]))
        assert distances.median == pytest.approx(0.05)


def test_each_choice_has_its_distances():
    T = pose_of((0, 0, 0), (0, 0, 0.01))
    scene = pair_scene(plane(3000, 1), plane(3000, 2), T, resolution=0.02)
    (distances,) = scene.scans[0].distances
    assert distances.median == pytest.approx(0.01, rel=1e-6)
    assert scene.scans[1].distances == ()


def test_distances_of_many_scans_are_those_to_their_neighbours():
    poses = {name: pose_of((0, 0, 0), (0, 0, z)) for name, z in (("a", 0.0), ("b", 0.01), ("c", 0.03))}
    clouds = {name: transform(plane(4000, k), np.eye(4)) for k, name in enumerate(poses)}
    distances = neighbour_distances(clouds, clouds, poses, [("a", "b"), ("b", "c")], 0.02)
    assert distances["a"].median == pytest.approx(0.01, rel=1e-6)
    assert distances["b"].median == pytest.approx(0.01, rel=1e-6)  # c is farther
    assert distances["c"].median == pytest.approx(0.02, rel=1e-6)
    assert neighbour_distances(clouds, clouds, poses, [], 0.02) == {}


def test_corner_of_other_points_is_close():
    distances = PlaneDistances(corner(20_000), 0.2).measure(corner(2000, seed=1))
    assert distances.quantile(0.9) < 1e-6
