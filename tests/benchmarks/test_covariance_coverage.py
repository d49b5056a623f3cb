"""Ellipsoids of the covariance cover the errors of right poses of synthetic scans."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks.covariance import closings, fit, floors, right_poses, rooms, twist_between
from scipy.stats import chi2

from poses import random_pose
from wsdesc.alignment.covariance import NoiseModel
from wsdesc.core.geometry import transform


@pytest.mark.slow
@pytest.mark.parametrize(("make", "shares"), [(floors, (0.5, 0.8)), (rooms, (0.4, 0.7))])
def test_ellipsoids_cover_the_errors_of_right_poses(make, shares) -> None:
    rng = np.random.default_rng(0)
    poses = [pose for place in make(3) for pose in right_poses(place, rng, None)]
    assert len(poses) >= 6
    squared = [p.error @ np.linalg.solve(p.covariance(NoiseModel()), p.error) for p in poses]
    for level, share in zip((0.68, 0.95), shares, strict=True):
        assert np.mean(squared < chi2.ppf(level, 6)) >= share
    assert np.median(squared) > 0.2  # not far too large either
    assert np.isfinite(closings(poses)).all()
    assert all(0 <= value < 20 for value in fit([poses]))


def test_twist_moves_one_pose_to_the_other() -> None:
    T, step, centre = random_pose(1), random_pose(2, size=0.1), np.array([3.0, -2.0, 1.0])
    v = twist_between(T, step @ T, centre)[:3]
    np.testing.assert_allclose(centre + v, transform(centre[None], step)[0])
    np.testing.assert_allclose(twist_between(T, T, centre), 0, atol=1e-12)
