"""Range images: known free space, across the edges of the cube, with bad and sparse input."""

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from wsdesc.cloud.range_image import CELLS, RangeImage, neighbourhoods


def sphere(count: int = 300_000, radius: float = 2.0) -> np.ndarray:
    """Points all around the origin."""
    directions = np.random.default_rng(0).normal(size=(count, 3))
    return radius * directions / np.linalg.norm(directions, axis=1, keepdims=True)


def test_sphere_is_known_in_all_directions():
    image = RangeImage.of(sphere(), np.zeros(3))
    assert image.known == 1.0
    assert image.free.shape == (6, CELLS, CELLS)
    np.testing.assert_allclose(image.free, 2.0, rtol=1e-5)


def test_viewpoint_moves_the_ranges():
    centre = np.array([10.0, 20.0, 30.0])
    image = RangeImage.of(sphere() + centre, np.array([10.5, 20.0, 30.0]))
    ahead = image.free[0, CELLS // 2, CELLS // 2]
    behind = image.free[1, CELLS // 2, CELLS // 2]
    assert ahead == pytest.approx(1.5, abs=0.01)
    assert behind == pytest.approx(2.5, abs=0.01)


def test_rotation_about_the_viewpoint_keeps_the_known_share():
    points = sphere()
    points = points[points[:, 2] > 0.8]
    R = Rotation.random(random_state=1).as_matrix()
    shares = [RangeImage.of(p, np.zeros(3)).known for p in (points, points @ R.T)]
    assert shares[0] == pytest.approx(shares[1], rel=0.03)


def test_directions_without_returns_are_unknown():
    points = sphere()
    image = RangeImage.of(points[points[:, 0] > 1.6], np.zeros(3))
    assert image.free[0].max() > 1.9
    assert image.free[1:].max() == 0


def test_sparse_scanner_is_known_at_a_coarser_level():
    azimuth, elevation = np.meshgrid(np.radians(np.arange(0, 360, 0.2)), np.radians(np.arange(-15, 15.1, 2)))
    level = np.cos(elevation)
    rays = np.stack([level * np.cos(azimuth), level * np.sin(azimuth), np.sin(elevation)], -1).reshape(-1, 3)
    image = RangeImage.of(5 * rays, np.zeros(3))
    assert 0.2 < image.known < 0.3  # 30° of 180°, in cells of equal angles
    assert image.free[4:].max() == 0


def test_near_points_only_shrink_the_free_space():
    points = sphere()
    stray = np.array([[0.5, 0.001, 0.001]])
    before, after = (RangeImage.of(p, np.zeros(3)).free for p in (points, np.concatenate([points, stray])))
    assert (after <= before).all()
    assert 0 < (after < before).mean() < 0.001


@pytest.mark.parametrize(
    "points",
    [np.zeros((5, 3)), np.array([[1.0, 2, 3]]), np.full((3, 3), 1e30), np.tile([1.0, 0, 0], (1000, 1))],
)
def test_degenerate_points_tell_nothing(points):
    image = RangeImage.of(points.astype(np.float32), np.zeros(3))
    assert np.isfinite(image.free).all()
    assert image.known == 0
    assert image.coarse.known == 0


def test_viewpoint_far_away_tells_nothing():
    assert RangeImage.of(sphere(20_000), np.full(3, 1e9)).known < 1e-3


def test_coarse_image_is_never_farther():
    image = RangeImage.of(sphere() * np.random.default_rng(1).uniform(0.5, 1.0, (300_000, 1)), np.zeros(3))
    coarse = image.coarse.free.repeat(4, axis=1).repeat(4, axis=2)
    assert (coarse <= image.free)[image.free > 0].all()


def test_neighbourhoods_cross_the_edges_of_the_cube():
    x = RangeImage.of(sphere() + np.array([0.3, -0.2, 0.1]), np.zeros(3)).free  # smooth over the sphere
    around = neighbourhoods(x)
    assert np.abs(around - x).max() < 0.1


def test_scaled():
    image = RangeImage.of(sphere(), np.ones(3) * 0.1).scaled(3.0)
    np.testing.assert_allclose(image.viewpoint, 0.3)
    assert 5 < image.free.max() < 7
