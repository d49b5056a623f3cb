"""Detection of the viewpoint: single scans have one, merged, fused and shifted clouds have none."""

from functools import cache

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from wsdesc.cloud.viewpoint import Viewpoint, check_viewpoint, detect_viewpoint
from wsdesc.core.errors import InputError
from wsdesc.datasets.synthetic import room_scans
from wsdesc.datasets.synthetic.floor import floor_scans


@cache
def scan(seed: int = 1) -> np.ndarray:
    return floor_scans(seed, 2)[0].points


def test_terrestrial_scan_has_its_viewpoint_at_the_origin():
    assert detect_viewpoint(scan())


def test_rotated_and_scaled_scan():
    R = Rotation.random(random_state=2).as_matrix()
    assert detect_viewpoint(1000 * scan() @ R.T)


def test_local_coordinates():
    offset = np.array([3.0, -2.0, 1.0])
    assert detect_viewpoint(scan() + offset, offset)
    assert not detect_viewpoint(scan() + offset)


@pytest.mark.parametrize("shift", [(2.0, 1.0, 0.0), (0.0, 0.0, 5.0), (5e5, 4e6, 100.0)])
def test_shifted_scan_has_none(shift):
    assert not detect_viewpoint(scan().astype(np.float64) + shift)


def test_merged_scans_have_none():
    a, b = floor_scans(1, 2)
    T = np.linalg.inv(a.T_world_scan) @ b.T_world_scan
    assert not detect_viewpoint(np.concatenate([a.points, b.points @ T[:3, :3].T + T[:3, 3]]))


def test_fused_fragment_has_none():
    assert not any(detect_viewpoint(s.points) for s in room_scans(0, 2))


@pytest.mark.parametrize(
    "points",
    [
        np.zeros((10, 3)),
        np.array([[1.0, 2, 3]]),
        np.tile([1.0, 0, 0], (1000, 1)),
        np.random.default_rng(0).normal(size=(5000, 3)),
        np.random.default_rng(0).uniform(size=(5000, 3)) * [1, 1, 0],
    ],
)
def test_degenerate_points_have_none(points):
    assert not detect_viewpoint(points)


def test_closed_shell_has_none():
    points = np.random.default_rng(0).normal(size=(30_000, 3))
    assert not detect_viewpoint(points / np.abs(points).max(axis=1, keepdims=True))  # a cube seen from inside


@pytest.mark.parametrize("bad", [(1, 2), (1, 2, np.nan), "here", None, (np.inf, 0, 0), [[1, 2, 3]]])
def test_check_viewpoint_refuses(bad):
    with pytest.raises(InputError, match="source_viewpoint must be three"):
        check_viewpoint(bad, "source_viewpoint")


def test_text():
    assert str(Viewpoint(np.zeros(3), "detected")) == "detected at the origin"
    assert str(Viewpoint(np.array([1.0, 2.5, -3.0]), "file")) == "file at (1, 2.5, -3)"
