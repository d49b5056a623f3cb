"""Pair features: votes of pairs of points for poses."""

import numpy as np
import torch
from scipy.spatial import cKDTree

from object_scenes import bracket, pose, sampled
from wsdesc.cloud.clean import clean
from wsdesc.core.geometry import rotate, transform
from wsdesc.finding.pair_features import SPACING, make_table, normal_frames, vote
from wsdesc.finding.prepare import prepare_object


def prepared():
    thing = prepare_object(clean(sampled(bracket(), 0.0025)), 0.14 / 50)
    points, normals = thing.points[thing.coarse], thing.normals[thing.coarse]
    return points, normals, SPACING * thing.diameter


def votes_for_itself(flip):
    """Let a moved copy of the object vote; return the best pose and the true one."""
    points, normals, spacing = prepared()
    T = pose(0.5, -0.2, 0.3, yaw=2.0, pitch=0.7)
    moved, turned = transform(points, T), rotate(normals, T) * flip(len(points))[:, None]
    reference = np.arange(0, len(points), 5)
    near = np.tile(np.arange(len(points)), len(reference))
    starts = np.arange(len(reference) + 1) * len(points)
    result = vote(make_table(points, normals, spacing), moved, turned, reference, near, starts)
    return points, result, T


def test_object_votes_for_its_own_pose():
    points, result, T = votes_for_itself(np.ones)
    best = result.poses[result.votes.argmax()]
    assert cKDTree(transform(points, T)).query(transform(points, best))[0].mean() < 0.06


def test_sign_of_normals_does_not_matter():
    _, plain, _ = votes_for_itself(np.ones)
    _, flipped, _ = votes_for_itself(lambda n: np.random.default_rng(0).choice([-1.0, 1.0], n))
    best = [np.sort(result.votes.reshape(-1, 4).max(axis=1)) for result in (plain, flipped)]
    np.testing.assert_allclose(*best, rtol=0.1)


def test_frames_are_rotations_that_begin_with_the_normal():
    normals = np.random.default_rng(0).normal(size=(50, 3))
    normals /= np.linalg.norm(normals, axis=1, keepdims=True)
    frames = normal_frames(normals)
    np.testing.assert_allclose(frames[:, 0], normals)
    products = frames @ frames.transpose(0, 2, 1)
    np.testing.assert_allclose(products, np.tile(np.eye(3), (50, 1, 1)), atol=1e-12)
    np.testing.assert_allclose(np.linalg.det(frames), 1)


def test_number_of_threads_does_not_matter():
    before = torch.get_num_threads()
    results = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        results.append(votes_for_itself(np.ones)[1])
    torch.set_num_threads(before)
    assert np.array_equal(results[0].poses, results[1].poses)
