"""Scans of synthetic sites: reproducible, plausible, and as repetitive as intended."""

from itertools import combinations

import numpy as np
import pytest
import torch

from wsdesc.core.errors import InputError
from wsdesc.datasets.synthetic import SENSORS, SITES, SyntheticScan, overlap, site_scans
from wsdesc.datasets.synthetic.sites import SUITABLE, build_site


def thinned(points: np.ndarray, size: float) -> np.ndarray:
    _, first = np.unique(np.floor(points / size), axis=0, return_index=True)
    return points[first]


def shared(source: SyntheticScan, target: SyntheticScan, T_target_source: np.ndarray, size: float) -> float:
    """Overlap of two scans of different density, in the direction in which it is smaller."""
    a, b = thinned(source.points, size), thinned(target.points, size)
    forward = overlap(a, b, T_target_source, 2 * size)
    return min(forward, overlap(b, a, np.linalg.inv(T_target_source), 2 * size))


def relative(source: SyntheticScan, target: SyntheticScan) -> np.ndarray:
    return np.linalg.inv(target.T_world_scan) @ source.T_world_scan


def test_same_seed_same_bits_for_any_count_and_number_of_threads() -> None:
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        one = site_scans("courtyard", 3, 1, "lidar16")
        torch.set_num_threads(3)
        two = site_scans("courtyard", 3, 2, "lidar16")
    finally:
        torch.set_num_threads(before)
    assert len(two) == 2
    assert one[0].points.tobytes() == two[0].points.tobytes()
    assert one[0].T_world_scan.tobytes() == two[0].T_world_scan.tobytes()
    assert site_scans("courtyard", 4, 1, "lidar16")[0].points.tobytes() != one[0].points.tobytes()


@pytest.mark.parametrize("kind", SITES)
def test_scans_are_plausible(kind: str) -> None:
    scan = site_scans(kind, 1, 1)[0]
    assert scan.sensor in SUITABLE[kind]
    assert scan.points.dtype == np.float32
    assert np.isfinite(scan.points).all()
    assert 5_000 < len(scan.points) <= 131_072
    rotation = scan.T_world_scan[:3, :3]
    assert np.allclose(rotation @ rotation.T, np.eye(3))
    assert np.linalg.det(rotation) > 0
    if scan.viewpoint is not None:
        assert np.array_equal(scan.viewpoint, np.zeros(3))


@pytest.mark.slow
@pytest.mark.parametrize("kind", SITES)
def test_every_sensor_scans_every_suitable_site(kind: str) -> None:
    for sensor in SUITABLE[kind]:
        for scan in site_scans(kind, 2, 2, sensor):
            assert scan.sensor == sensor
            assert (scan.viewpoint is None) == (sensor in ("fused_camera", "orthographic"))
            assert np.isfinite(scan.points).all()
            assert 1_000 < len(scan.points) <= 131_072
            ranges = np.linalg.norm(scan.points, axis=1)
            assert ranges.max() < 210
            if sensor.startswith("lidar") or sensor in ("terrestrial", "solid_state"):
                assert ranges.min() > 0.2


def test_every_sensor_suits_a_site() -> None:
    assert set().union(*SUITABLE.values()) == set(SENSORS)


@pytest.mark.slow
def test_counterparts_fit_nearly_as_well_as_the_right_pose() -> None:
    ratios = []
    for seed in range(40):
        site = build_site("courtyard", seed)
        if site.fold < 4 or len(site.symmetries) > 3:  # one court with 4-fold repetition
            continue
        source, target = site_scans("courtyard", seed, 2, "terrestrial")
        right = shared(source, target, relative(source, target), 0.15)
        wrong = [
            shared(source, target, np.linalg.inv(target.T_world_scan) @ T @ source.T_world_scan, 0.15)
            for T in site.symmetries
        ]
        ratios.append(max(wrong) / right)
        if len(ratios) == 3:
            break
    assert len(ratios) == 3
    assert np.median(ratios) > 0.7


@pytest.mark.slow
def test_overlaps_range_from_none_to_nearly_all() -> None:
    overlaps = [
        shared(a, b, relative(a, b), 0.2)
        for kind in ("courtyard", "warehouse")
        for seed in range(6)
        for a, b in combinations(site_scans(kind, seed, 3, "lidar64"), 2)
    ]
    assert min(overlaps) < 0.1
    assert max(overlaps) > 0.7
    assert np.histogram(overlaps, [0.05, 0.4, 0.8])[0].min() > 2


def test_sites_differ_and_repeat() -> None:
    assert {build_site("courtyard", seed).fold for seed in range(6)} == {2, 4}
    sizes = [np.ptp(build_site("hall", seed).spots, axis=0) for seed in range(6)]
    assert len(np.unique(np.round(sizes, 3), axis=0)) == len(sizes)


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


def test_bad_overlaps_are_refused() -> None:
    for overlaps in ((0.5, 0.2), (-0.1, 0.5), (0.1, 1.5), (float("nan"), 1.0)):
        with pytest.raises(InputError, match="between 0 and 1"):
            site_scans("street", 0, 1, overlaps=overlaps)


def test_no_scans() -> None:
    assert site_scans("objects", 0, 0) == []
