"""Laser scans of synthetic floors: poses, extent, repetitive structure."""

from __future__ import annotations

import numpy as np
import pytest

from wsdesc import WSDescError
from wsdesc.datasets.synthetic import overlap
from wsdesc.datasets.synthetic.floor import Floor, floor_scans


@pytest.fixture(scope="module")
def scans():
    return floor_scans(1, 3)


def test_scans_of_one_floor_overlap_under_their_poses(scans):
    a, b = scans[:2]
    T_b_a = np.linalg.inv(b.T_world_scan) @ a.T_world_scan
    assert overlap(a.points, b.points, T_b_a, 0.1) > 0.3
    T_b_a[:3, 3] += 1.0
    assert overlap(a.points, b.points, T_b_a, 0.1) < 0.3


def test_points_lie_within_the_floor(scans):
    floor = Floor(1)
    for scan in scans:
        world = scan.points @ scan.T_world_scan[:3, :3].T + scan.T_world_scan[:3, 3]
        assert np.abs(world[:, 0]).max() < floor.length / 2 + 3  # open doors show a part of the outside
        assert world[:, 2].min() > -0.05
        assert world[:, 2].max() < floor.height + 0.05
        assert len(scan.points) > 20_000


def test_a_shift_by_one_bay_overlaps_too(scans):
    """The structure is repetitive, the furniture is not."""
    floor, scan = Floor(1), scans[1]
    step = np.eye(4)
    step[:3, 3] = scan.T_world_scan[:3, :3].T @ [floor.pitch, 0.0, 0.0]
    beside = np.eye(4)
    beside[:3, 3] = scan.T_world_scan[:3, :3].T @ [0.0, floor.pitch, 0.0]
    assert overlap(scan.points, scan.points, step, 0.1) > 1.2 * overlap(scan.points, scan.points, beside, 0.1)


@pytest.mark.slow
def test_same_seed_same_scans(scans):
    again = floor_scans(1, 3)
    assert all(np.array_equal(a.points, b.points) for a, b in zip(scans, again, strict=True))
    assert not np.array_equal(floor_scans(2, 1)[0].points[:100], scans[0].points[:100])


def test_invalid_arguments():
    with pytest.raises(WSDescError, match="seed -1"):
        floor_scans(-1, 2)
    with pytest.raises(WSDescError, match="resolution 9"):
        floor_scans(1, 2, resolution=9)
