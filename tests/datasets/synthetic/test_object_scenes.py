"""Scenes that contain an object: poses, visible shares, seeds."""

import numpy as np
import pytest
from scipy.spatial import cKDTree

from object_scenes import bracket, sampled
from wsdesc.core.geometry import is_rigid, transform
from wsdesc.datasets.synthetic.object_scenes import MIN_VISIBLE, diameter, object_scene, patches

POINTS = sampled(bracket(), 0.0025)


def first_scene(**options):
    for seed in range(20):
        scene = object_scene(bracket(), POINTS, 10, seed, **options)
        if scene is not None:
            return seed, scene
    raise AssertionError("no scene")


def test_patches_cover_the_surface():
    squares = patches(POINTS, np.random.default_rng(0))
    assert squares.shape == (2 * len(POINTS), 3, 3)
    assert cKDTree(POINTS).query(squares.reshape(-1, 3))[0].max() < 0.01


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"copies": 2}, {"views": 3}])
def test_scene_shows_the_object_where_its_pose_says(options):
    seed, scene = first_scene(**options)
    assert len(scene.poses) == options.get("copies", 1)
    assert is_rigid(scene.poses).all()
    assert scene.visible.min() >= MIN_VISIBLE
    thing = POINTS * scene.size / diameter(POINTS)
    tree = cKDTree(scene.points)
    for T in scene.poses:
        near = tree.query(transform(thing, T))[0] < 0.03 * scene.size
        assert near.mean() >= MIN_VISIBLE
    again = object_scene(bracket(), POINTS, 10, seed, **options)
    assert np.array_equal(scene.points, again.points)
