"""Pairs whose triangles do not close are found."""

from itertools import combinations

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from poses import random_motion
from wsdesc.adaptation.triangles import contradicted_pairs, displacement
from wsdesc.core.geometry import inverse, make_pose
from wsdesc.reconstruction.disambiguation import LOOP_TOLERANCE


def right_poses(count, seed=0):
    """Make poses of all pairs with a noise of some millimetres."""
    rng = np.random.default_rng(seed)
    T_world_scan = [random_motion(rng, 2.0, 2.0) for _ in range(count)]
    return {
        (p, q): inverse(T_world_scan[q]) @ T_world_scan[p] @ random_motion(rng, 0.002, 0.005)
        for p, q in combinations(range(count), 2)
    }


def test_right_poses_contradict_nothing():
    assert contradicted_pairs(right_poses(4), [1.5] * 4) == set()
    assert contradicted_pairs({}, []) == set()


@pytest.mark.parametrize("wrong", range(6))
@pytest.mark.parametrize("turn", [0.0, np.pi])
def test_a_wrong_pose_is_found(wrong, turn):
    poses = right_poses(4)
    ends = list(poses)[wrong]
    poses[ends] = poses[ends] @ make_pose(Rotation.from_rotvec([0, 0, turn]).as_matrix(), (0.3, 0, 0))
    assert contradicted_pairs(poses, [1.5] * 4) == {wrong}


def test_several_wrong_poses_are_found():
    poses = right_poses(8)
    wrong = {3, 10, 20}
    for number in wrong:
        ends = list(poses)[number]
        poses[ends] = random_motion(np.random.default_rng(number), 2.0, 2.0)
    assert contradicted_pairs(poses, [1.5] * 8) == wrong


def test_displacement_bounds_the_distance_of_points():
    rng = np.random.default_rng(4)
    T = random_motion(rng, 0.3, 0.2)
    points = rng.normal(size=(2000, 3))
    points *= 1.5 / np.linalg.norm(points, axis=1, keepdims=True)
    farthest = np.linalg.norm(points @ T[:3, :3].T + T[:3, 3] - points, axis=1).max()
    assert 0.8 * displacement(T, 1.5) < farthest <= displacement(T, 1.5)
    assert displacement(np.eye(4), 9.0) < 1e-6 < LOOP_TOLERANCE
