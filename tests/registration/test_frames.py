"""The answer of register does not depend on the frames of its input."""

import numpy as np
import pytest

import wsdesc
from poses import random_pose
from wsdesc.core.geometry import inverse, transform

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def expected(room):
    return wsdesc.register(room.source, room.target, keypoints=400)


@pytest.mark.parametrize(
    ("shift", "dtype", "tolerance"),
    [(3.0, np.float64, 1e-6), (1e5, np.float64, 1e-4), (3.0, np.float32, 1e-2)],
    ids=["float64", "far away", "float32"],
)
def test_moved_scans_have_the_moved_pose(room, expected, shift, dtype, tolerance):
    """The tolerance is in resolutions."""
    T_source, T_target = random_pose(1, shift), random_pose(2, shift)
    moved = [transform(points, T) for points, T in ((room.source, T_source), (room.target, T_target))]
    result = wsdesc.register(*(points.astype(dtype) for points in moved), keypoints=400)
    assert result.resolution == expected.resolution
    assert result.success == expected.success
    assert result.confidence == pytest.approx(expected.confidence, abs=0.05)
    ends = transform(moved[0], result.T_target_source)
    expected_ends = transform(room.source, T_target @ expected.T_target_source)
    assert np.linalg.norm(ends - expected_ends, axis=1).max() < tolerance * expected.resolution


def test_displacement_does_not_depend_on_the_local_frame(room, expected):
    T = random_pose(3, 1.0)
    both = wsdesc.register(transform(room.source, T), transform(room.target, T), keypoints=400)
    assert both.displacement == pytest.approx(expected.displacement, rel=1e-6)
    T_back = inverse(T) @ both.T_target_source @ T
    np.testing.assert_allclose(T_back, expected.T_target_source, atol=1e-6)
