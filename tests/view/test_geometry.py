"""Ways between poses, and clouds that become smaller without losing their shape."""

import numpy as np
import pytest
from looking import corner
from scipy.spatial import cKDTree
from scipy.spatial.transform import Rotation

from wsdesc.view.geometry import Placement, between, thinned


def placed(turn, position):
    return Placement.of(Rotation.from_rotvec(turn).as_matrix(), np.array(position, dtype=float))


def test_the_way_between_two_places_is_rigid_and_even():
    start, end = placed((0, 0, 0), (0, 0, 0)), placed((0, 0, 2.0), (4, 2, 0))
    points = corner(50)
    for share in (0.0, 0.25, 0.5, 1.0):
        at = between(start, end, share)
        np.testing.assert_allclose(
            at.rotation, Rotation.from_rotvec((0, 0, 2.0 * share)).as_matrix(), atol=1e-12
        )
        np.testing.assert_allclose(at.position, [4 * share, 2 * share, 0], atol=1e-12)
        moved = at.apply(points)
        np.testing.assert_allclose(moved, points @ at.rotation.T + at.position)
        np.testing.assert_allclose(
            np.linalg.norm(np.diff(moved, axis=0)), np.linalg.norm(np.diff(points, axis=0))
        )


def test_the_short_way_round_is_taken():
    start, end = placed((0, 0, 3.0), (0, 0, 0)), placed((0, 0, -3.0), (0, 0, 0))
    for a in (start, start._replace(wxyz=-start.wxyz)):
        half = between(a, end, 0.5).rotation
        np.testing.assert_allclose(half, Rotation.from_rotvec((0, 0, np.pi)).as_matrix(), atol=1e-12)


def test_equal_places_have_no_way_between_them():
    at = placed((0.1, 0.2, 0.3), (1, 2, 3))
    for share in (0.0, 0.3, 1.0):
        np.testing.assert_allclose(between(at, at, share).wxyz, at.wxyz, atol=1e-12)


def test_thinned_clouds_are_a_subset_and_evenly_spread():
    rng = np.random.default_rng(0)
    dense = rng.uniform(0, 0.2, (40_000, 3)) * [1, 1, 0]  # as close to a scanner
    sparse = rng.uniform(0, 4, (10_000, 3)) * [1, 1, 0]
    cloud = np.concatenate([dense, sparse])
    few = thinned(cloud, 2000)
    assert 1000 <= len(few) <= 2000
    assert cKDTree(cloud).query(few)[0].max() == 0
    assert (few[:, :2].max(axis=1) < 0.2).mean() < 0.05  # of the points before: 0.8
    np.testing.assert_array_equal(few, thinned(cloud, 2000))


def test_a_point_far_away_does_not_eat_the_others():
    cloud = np.concatenate([corner(10_000), [[1e7, 0, 0]]])
    assert 500 <= len(thinned(cloud, 1000)) <= 1000


@pytest.mark.parametrize("cloud", [corner(100), np.zeros((100, 3))], ids=["few", "all the same"])
def test_small_clouds_stay_as_they_are(cloud):
    np.testing.assert_array_equal(thinned(cloud, 100), cloud)
    assert 1 <= len(thinned(cloud, 10)) <= 10
