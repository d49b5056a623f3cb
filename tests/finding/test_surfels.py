"""Surfels: normals, and lookups against a tree."""

import numpy as np
from scipy.spatial import cKDTree

from object_scenes import pose
from wsdesc.core.geometry import transform
from wsdesc.finding.surfels import Surfels, ball_normals, contacts, make_lookup, make_surfels

SIDE = 0.06


def box(count=20_000):
    """Sample the surface of a cube with sides of 2; return points and normals."""
    rng = np.random.default_rng(0)
    points, normals = rng.uniform(-1, 1, (count, 3)), np.zeros((count, 3))
    axis, sign = rng.integers(0, 3, count), rng.choice([-1.0, 1.0], count)
    rows = np.arange(count)
    points[rows, axis], normals[rows, axis] = sign, sign
    return points, normals


def surfels_of(points, cell=SIDE):
    means, normals = make_surfels(points, SIDE, 0.7)
    return Surfels(means, normals, make_lookup(means, cell))


def on_faces(points, normals):
    """Return the cosines of the points' normals with those of their faces, away from the edges."""
    inner = np.sort(np.abs(points), axis=1)[:, 1] < 0.8
    axis = np.abs(points).argmax(axis=1)
    return np.abs(normals[np.arange(len(points)), axis])[inner]


def test_normals_are_those_of_the_faces():
    points, _ = box()
    surfels = surfels_of(points)
    assert on_faces(surfels.points, surfels.normals).min() > 0.99
    assert on_faces(points, ball_normals(points, 0.1, 0.7)).min() > 0.99


def test_scattered_points_have_no_normals():
    points = np.random.default_rng(0).uniform(-1, 1, (20_000, 3))
    assert (~ball_normals(points, 0.3, 0.5).any(axis=1)).mean() > 0.7


def test_geographic_coordinates_change_no_normal():
    points, _ = box()
    far = surfels_of(points + np.array([4e5, 5e6, 200.0]))
    assert on_faces(far.points - np.array([4e5, 5e6, 200.0]), far.normals).min() > 0.99


def test_contacts_agree_with_a_tree():
    points, normals = box()
    surfels = surfels_of(points)
    rng = np.random.default_rng(1)
    poses = np.stack([np.eye(4), pose(0.02, 0.01, 0.03), pose(0.3, 0.2, 0.1, yaw=0.6), pose(9.0, 0.0)])
    sample = rng.choice(len(points), 500, replace=False)
    touched = contacts(surfels, points[sample], normals[sample], poses, SIDE)
    tree = cKDTree(surfels.points)
    near = np.stack([tree.query(transform(points[sample], T))[0] < SIDE for T in poses])
    assert touched.touching[0].mean() > 0.9
    assert touched.touching[1].mean() > 0.8
    assert not touched.touching[3].any()
    # The surfel nearest to the middle of a cell stands for all positions in it: shares agree, not each point.
    similar = np.abs(touched.touching.mean(axis=1) - near.mean(axis=1))
    assert similar.max() < 0.15


def test_an_empty_scene_touches_nothing():
    empty = Surfels(np.empty((0, 3)), np.empty((0, 3)), make_lookup(np.empty((0, 3)), SIDE))
    points, normals = box(50)
    assert not contacts(empty, points, normals, np.eye(4)[None], SIDE).touching.any()
