from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from wsdesc.alignment.surface import SAMPLE, Surface, contact
from wsdesc.core.errors import InputError


def motion(seed: int) -> np.ndarray:
    T = np.eye(4)
    T[:3, :3] = Rotation.random(random_state=seed).as_matrix()
    T[:3, 3] = np.random.default_rng(seed).uniform(-3, 3, 3)
    return T


def moved(points: np.ndarray, T: np.ndarray) -> np.ndarray:
    return points @ T[:3, :3].T + T[:3, 3]


def sphere(count: int, seed: int = 0) -> np.ndarray:
    v = np.random.default_rng(seed).normal(size=(count, 3))
    return v / np.linalg.norm(v, axis=1, keepdims=True)


def test_normals_of_a_sphere_are_its_radii() -> None:
    points = sphere(4000)
    surface = Surface.of(points)
    cosine = np.abs(np.einsum("ni,ni->n", surface.normals, points))
    assert cosine.min() > 0.99
    np.testing.assert_allclose(np.linalg.norm(surface.normals, axis=1), 1)


def test_bend_tells_edges_from_planes() -> None:
    g = np.random.default_rng(0)
    floor = np.c_[g.uniform(-1, 1, (3000, 2)), np.zeros(3000)]
    wall = np.c_[np.full(1500, -1.0), g.uniform(-1, 1, 1500), g.uniform(0, 1, 1500)]
    surface = Surface.of(np.r_[floor, wall])
    from_edge = np.maximum(np.abs(surface.points[:, 0] + 1), surface.points[:, 2])
    assert surface.bend[from_edge > 0.3].max() < 1e-9
    assert np.median(surface.bend[from_edge < 0.03]) > 0.1
    assert surface.bend.min() >= 0
    assert surface.bend.max() <= 1


def test_rare_directions_weigh_more() -> None:
    g = np.random.default_rng(1)
    floor = np.c_[g.uniform(-1, 1, (4500, 2)), np.zeros(4500)]
    wall = np.c_[np.full(500, 2.0), g.uniform(-0.3, 0.3, (500, 2))]
    surface = Surface.of(np.r_[floor, wall])
    assert surface.rarity.sum() == pytest.approx(1)
    on_wall = surface.rarity[surface.points[surface.sample, 0] == 2]
    assert 0.35 < on_wall.sum() < 0.65  # a tenth of the points, half of the say


@pytest.mark.parametrize("count", [1, 2, 3, 5, 19, 20, 5000])
def test_a_moved_cloud_is_the_same_surface(count: int) -> None:
    points = np.random.default_rng(2).normal(size=(count, 3))
    T = motion(3)
    here, there = Surface.of(points), Surface.of(moved(points, T))
    np.testing.assert_array_equal(here.sample, there.sample)
    assert len(here.sample) == min(count, SAMPLE)
    np.testing.assert_allclose(here.bend, there.bend, atol=1e-9)
    np.testing.assert_allclose(here.rarity, there.rarity, atol=1e-9)
    turned = here.normals @ T[:3, :3].T
    np.testing.assert_allclose(
        np.abs((turned * there.normals).sum(1)), np.linalg.norm(turned, axis=1), atol=1e-6
    )


@pytest.mark.parametrize(
    "points",
    [np.zeros((1, 3)), np.ones((50, 3)), np.c_[np.arange(40.0), np.zeros((40, 2))], np.eye(3)[:2]],
    ids=["one", "equal", "line", "two"],
)
def test_what_is_no_surface_has_no_normals(points: np.ndarray) -> None:
    surface = Surface.of(points)
    assert not surface.normals.any()
    assert not surface.bend.any()
    np.testing.assert_allclose(surface.rarity, 1 / len(points))


def test_contact_is_that_of_brute_force() -> None:
    a, b, T = sphere(300, 1), sphere(200, 2), motion(0)
    asking, other = Surface.of(a), Surface.of(moved(b, T))
    c = contact(asking, other, T, 0.1)
    distance = np.linalg.norm(moved(a, T)[:, None] - other.points, axis=2)
    nearest = distance.min(1)
    found = nearest <= 0.1
    assert 0.3 < found.mean() < 1  # both cases occur
    np.testing.assert_array_equal(np.isfinite(c.distance), found)
    np.testing.assert_allclose(c.distance[found], nearest[found])
    np.testing.assert_array_equal(c.partner[found], distance.argmin(1)[found])
    assert (c.offset <= c.distance + 1e-12).all()
    assert c.cosine[found].min() > 0.9
    assert not c.cosine[~found].any()


def test_keeps_a_copy() -> None:
    points = sphere(100)
    surface = Surface.of(points)
    points[:] = 0
    assert surface.points.any()


@pytest.mark.parametrize("bad", [np.zeros((0, 3)), np.zeros((4, 2)), np.full((4, 3), np.nan)])
def test_refuses_bad_points(bad: np.ndarray) -> None:
    with pytest.raises(InputError, match="surface"):
        Surface.of(bad)
