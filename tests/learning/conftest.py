"""Data that several tests of learning share."""

from __future__ import annotations

import pytest

from tiny_training import tiny_clouds
from wsdesc.datasets.synthetic import RoomPair, room_scans
from wsdesc.learning.sources import ScanPairs


@pytest.fixture(scope="module")
def source(room: RoomPair) -> ScanPairs:
    """Two clouds of a room in both orders."""
    return ScanPairs(tiny_clouds(room), [(0, 1), (1, 0)], seed=0)


@pytest.fixture(scope="session")
def six_scans():
    """Six successive scans of a synthetic room."""
    return room_scans(seed=3, count=6)
