"""Pairs of partial views by the PRNet and RPM-Net protocols."""

import math
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from scipy.spatial import cKDTree
from scipy.spatial.transform import Rotation

from wsdesc.core.errors import InputError
from wsdesc.core.geometry import transform
from wsdesc.datasets.partial_views import ShapePair, independent_pair, item_generator, partial_pair


def sorted_shape(count: int = 2048, seed: int = 0) -> np.ndarray:
    """Create a bumpy ball in the unit sphere, with sorted points as in the real files."""
    directions = np.random.default_rng(seed).normal(size=(count, 3))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    points = directions * (0.7 + 0.3 * np.sin(5 * directions[:, :1]) * np.cos(4 * directions[:, 1:2]))
    return points[np.lexsort(points.T)].astype(np.float32)


MAKERS = [partial(partial_pair, noise=0.01), independent_pair]


@pytest.mark.parametrize("maker", MAKERS)
def test_items_depend_on_their_seed_only(maker: Callable[..., ShapePair]):
    shape = sorted_shape()
    before = shape.copy()
    first, again, other = (maker(shape, item_generator(3, item)) for item in (7, 7, 8))
    np.testing.assert_array_equal(shape, before)
    for name in ("source", "target", "T_target_source"):
        np.testing.assert_array_equal(getattr(first, name), getattr(again, name))
        assert not np.array_equal(getattr(first, name), getattr(other, name))
    assert first.source.dtype == first.target.dtype == np.float32
    assert first.T_target_source.dtype == np.float64


def test_partial_pairs_have_the_same_samples():
    shape = sorted_shape()
    for item in range(20):
        pair = partial_pair(shape, item_generator(0, item))
        assert pair.source.shape == pair.target.shape == (768, 3)
        R = pair.T_target_source[:3, :3]
        np.testing.assert_allclose(R @ R.T, np.eye(3), atol=1e-12)
        x, y, z = Rotation.from_matrix(R).as_euler("zyx", degrees=True)[::-1]
        assert min(x, y, z) >= 0
        assert max(x, y, z) <= 45
        assert np.abs(pair.T_target_source[:3, 3]).max() <= 0.5
        distance, match = cKDTree(pair.target).query(transform(pair.source, pair.T_target_source))
        shared = distance < 1e-5
        assert shared.sum() >= 512  # 256 of 1024 are missing in either, so at most 512 in one or the other
        assert not shared.all()
        assert len(set(match[shared])) == shared.sum()
        assert np.corrcoef(np.flatnonzero(shared), match[shared])[0, 1] < 0.3  # permuted


def test_the_sample_covers_a_sorted_shape():
    shape = sorted_shape()
    pair = partial_pair(shape, item_generator(0, 0), keep=1024)
    index = cKDTree(shape).query(pair.source)[1]
    assert len(set(index)) == 1024
    assert 900 < np.median(index) < 1150
    assert index.max() > 2000


def test_each_cloud_keeps_the_points_nearest_to_the_far_point():
    """With the same random numbers, a pair without a crop shows which points the crop keeps."""
    signs = set()
    for item in range(12):
        whole, part = (partial_pair(sorted_shape(), item_generator(1, item), keep=k) for k in (1024, 768))
        for all_points, kept in ((whole.source, part.source), (whole.target, part.target)):
            along = all_points.astype(np.float64).sum(axis=1)  # the far point is along ±(1, 1, 1)
            taken = (all_points[:, None] == kept[None]).all(-1).any(1)
            assert taken.sum() == 768
            sign = 1 if along[taken].mean() > along[~taken].mean() else -1
            # The border is a sphere around a point 866 away, moved by up to one: very nearly a plane.
            assert (sign * along[taken]).min() > (sign * along[~taken]).max() - 0.02
            signs.add(sign)
    assert signs == {-1, 1}


class Wild(np.random.Generator):
    """A generator whose normal numbers are 100 times too large."""

    def normal(self, *arguments):
        return 100 * super().normal(*arguments)


def test_noise_is_clipped_and_added_before_the_crop():
    shape = sorted_shape()
    clean = partial_pair(shape, item_generator(0, 5), keep=1024)
    noisy = partial_pair(shape, item_generator(0, 5), keep=1024, noise=0.01)
    for a, b in ((clean.source, noisy.source), (clean.target, noisy.target)):
        noise = (b - a).astype(np.float64)
        assert abs(noise.std() - 0.01) < 0.001
        assert np.abs(noise).max() <= 0.05 + 1e-6
    assert not np.allclose(noisy.source - clean.source, noisy.target - clean.target)
    np.testing.assert_array_equal(clean.T_target_source, noisy.T_target_source)
    wild = partial_pair(shape, Wild(item_generator(0, 5).bit_generator), keep=1024, noise=0.01)
    np.testing.assert_allclose(np.abs(wild.source - clean.source).max(), 0.05, atol=1e-6)


def test_independent_pairs_have_independent_samples_and_crops():
    shape = sorted_shape()
    overlaps = []
    for item in range(20):
        pair = independent_pair(shape, item_generator(0, item), noise=0.0)
        assert pair.source.shape == pair.target.shape == (math.ceil(0.7 * 1024), 3)
        T = pair.T_target_source
        np.testing.assert_allclose(T[:3, :3] @ T[:3, :3].T, np.eye(3), atol=1e-12)
        x, y, z = Rotation.from_matrix(T[:3, :3].T).as_euler("zyx", degrees=True)[::-1]
        assert 0 <= min(x, y, z) <= max(x, y, z) <= 45
        assert np.abs(T[:3, :3].T @ T[:3, 3]).max() <= 0.5
        in_target = transform(pair.source, T)
        assert cKDTree(shape).query(in_target)[0].max() < 1e-5  # the target is in the frame of the shape
        assert cKDTree(shape).query(pair.target)[0].max() < 1e-5
        overlaps.append((cKDTree(pair.target).query(in_target)[0] < 1e-5).mean())
    # Of a sample half is in the other, and of that the share which the other's crop has kept, 0.4 to 1.
    assert 0.2 < np.mean(overlaps) < 0.5
    assert np.std(overlaps) > 0.02


def test_independent_pairs_are_cropped_by_a_plane():
    shape = sorted_shape().astype(np.float64)
    pair = independent_pair(shape, item_generator(0, 0), noise=0.0, keep=0.5, points=1024)
    assert len(pair.target) == 512
    # On one side of a plane: a direction exists along which the kept half is beyond the centre of the whole.
    direction = pair.target.mean(axis=0) - shape.mean(axis=0)
    assert ((pair.target - shape.mean(axis=0)) @ direction > -0.1).mean() > 0.95


def test_all_rotations():
    angles = []
    for item in range(60):
        pair = independent_pair(sorted_shape(), item_generator(0, item), max_angle=180)
        angles.append(np.degrees(Rotation.from_matrix(pair.T_target_source[:3, :3]).magnitude()))
    assert max(angles) > 150


def test_invalid_arguments():
    shape, generator = sorted_shape(1024), item_generator(0, 0)
    with pytest.raises(InputError, match="need a shape of 2048, this has 1024"):
        independent_pair(shape, generator)
    assert len(independent_pair(shape, generator, points=512).source) == 359
    with pytest.raises(InputError, match="keep must be above 0"):
        independent_pair(shape, generator, points=512, keep=0)
    with pytest.raises(InputError, match="cannot choose 2000 points from a shape of 1024"):
        partial_pair(shape, generator, points=2000)
    with pytest.raises(InputError, match="keep must be between 1 and points \\(1024\\), not 1025"):
        partial_pair(shape, generator, keep=1025)
