"""Scans of synthetic sites: reproducible, plausible, and as repetitive as intended."""

import numpy as np
import pytest

from wsdesc.core.errors import InputError
from wsdesc.datasets.synthetic import SITES, site_scans


def test_same_seed_same_bits_for_any_count() -> None:
    one, two = site_scans("courtyard", 3, 1, "lidar16"), site_scans("courtyard", 3, 2, "lidar16")
    assert len(two) == 2
    assert one[0].points.tobytes() == two[0].points.tobytes()
    assert one[0].T_world_scan.tobytes() == two[0].T_world_scan.tobytes()
    assert site_scans("courtyard", 4, 1, "lidar16")[0].points.tobytes() != one[0].points.tobytes()


@pytest.mark.parametrize("kind", SITES)
def test_scans_are_plausible(kind: str) -> None:
    scan = site_scans(kind, 1, 1)[0]
    assert scan.points.dtype == np.float32
    assert np.isfinite(scan.points).all()
    assert 1_000 < len(scan.points) <= 131_072
    rotation = scan.T_world_scan[:3, :3]
    assert np.allclose(rotation @ rotation.T, np.eye(3))
    assert np.linalg.det(rotation) > 0


@pytest.mark.parametrize(
    ("kind", "seed", "count", "sensor", "message"),
    [
        ("castle", 0, 1, None, "unknown synthetic site 'castle': choose one of street"),
        ("street", -1, 1, None, "must not be negative"),
        ("street", 0, -1, None, "must not be negative"),
        ("street", 0, 1, "sonar", "sensor 'sonar' cannot scan"),
        ("street", 0, 1, "depth_camera", "sensor 'depth_camera' cannot scan"),
    ],
)
def test_bad_input_is_refused(kind: str, seed: int, count: int, sensor: str | None, message: str) -> None:
    with pytest.raises(InputError, match=message):
        site_scans(kind, seed, count, sensor)
