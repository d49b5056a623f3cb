"""Votes for places, packed frames and tiles, against plain references."""

import numpy as np
import torch
from scipy.spatial.transform import Rotation

from wsdesc.mapping.index import DescriptorIndex
from wsdesc.mapping.pieces import pack_descriptors, pack_frames, unpack_frames
from wsdesc.mapping.places import _agreeing, centre_and_radius, vote
from wsdesc.mapping.tiles import TileGrid


def test_right_matches_outvote_many_scattered_ones():
    rng = np.random.default_rng(0)
    keypoints, frames = rng.uniform(-3, 3, (100, 3)), Rotation.random(100, random_state=1).as_matrix()
    R, t = Rotation.random(random_state=2), np.array([50.0, -20.0, 4.0])
    positions = rng.uniform(-200, 200, (1000, 3))
    map_frames = Rotation.random(1000, random_state=3).as_matrix()
    matched = rng.permutation(1000).reshape(100, 10)
    right = rng.permutation(100)[:12]  # of 100 keypoints have one right match among ten
    rows = matched[right, 5]
    positions[rows] = R.apply(keypoints[right]) + t
    noise = Rotation.from_rotvec(rng.normal(0, 0.05, (12, 3)))
    map_frames[rows] = (noise * R * Rotation.from_matrix(frames[right])).as_matrix()
    best, *others = vote(keypoints, frames, matched, positions, map_frames, 5)
    assert np.linalg.norm(best.centre - (R.apply(keypoints.mean(axis=0)) + t)) < 1.0
    assert all(other.votes < best.votes / 2 for other in others)


def test_agreeing_poses_are_those_of_a_plain_loop():
    rng = np.random.default_rng(0)
    count, reach = 300, 0.8
    centres = rng.uniform(-2, 2, (count, 3))
    turns = Rotation.from_rotvec(rng.normal(0, 0.4, (count, 3)))
    source, weights = rng.integers(0, 60, count), rng.uniform(0.1, 1, count)
    expected = np.zeros(count)
    for i in range(count):
        angle = (turns[i].inv() * turns).magnitude()
        near = np.linalg.norm(centres - centres[i], axis=1) <= reach
        expected[i] = weights[near & (angle < np.radians(30)) & (source != source[i])].sum()
    agreeing = _agreeing(centres, turns.as_matrix(), source, weights, reach)
    np.testing.assert_allclose(agreeing, expected, atol=1e-9)
    assert expected.max() > 1


def test_no_votes_give_no_places():
    keypoints = np.zeros((1, 3))
    frames = np.eye(3)[None]
    assert vote(keypoints, frames, np.array([[0]]), np.zeros((1, 3)), frames, 5) == []
    assert centre_and_radius(keypoints)[1] == 0.0


def test_packed_frames_and_descriptors_are_exact_enough():
    frames = Rotation.random(500, random_state=0)
    turned = frames.inv() * Rotation.from_matrix(unpack_frames(pack_frames(frames.as_matrix())))
    assert np.degrees(turned.magnitude()).max() < 1.0
    descriptors = torch.nn.functional.normalize(torch.randn(100, 32, generator=torch.manual_seed(0)), dim=1)
    packed = torch.from_numpy(pack_descriptors(descriptors)).float() / 127
    assert (packed - descriptors).norm(dim=1).max() < 0.02


def test_the_index_finds_nearly_always_the_nearest():
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(3000, 32)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    packed = pack_descriptors(torch.from_numpy(vectors))
    index = DescriptorIndex.of(packed)
    queries = vectors[::10] + rng.normal(0, 0.02, (300, 32)).astype(np.float32)
    nearest = index.search(queries, 5)
    assert nearest.shape == (300, 5)
    assert (nearest[:, 0] == np.arange(0, 3000, 10)).mean() > 0.98
    assert np.array_equal(nearest, DescriptorIndex.of(packed).search(queries, 5))
    assert index.search(queries[:2], 5000).shape == (2, 3000)


def test_tiles_hold_one_point_for_each_voxel_of_the_map():
    rng = np.random.default_rng(0)
    origin = np.array([431_000.0, 5_411_000.0, 200.0])
    points = origin + rng.uniform(-30, 30, (20_000, 3)) * (1, 1, 0.01)
    grid = TileGrid(origin, 0.1)
    for part in np.array_split(points, 7):
        grid.add(part)
    arrays = grid.arrays()
    voxels = np.unique(np.floor((points - origin) / 0.1), axis=0)
    assert len(arrays["points"]) == len(voxels)
    tile = np.repeat(np.arange(len(arrays["cells"])), np.diff(arrays["point_starts"]))
    absolute = origin + grid.side * arrays["cells"][tile] + arrays["points"].astype(np.float64)
    assert np.array_equal(np.unique(np.floor((absolute - origin) / 0.1), axis=0), voxels)
    assert (arrays["points"] >= 0).all()
    assert (arrays["points"] <= grid.side).all()
