"""Registration at a scale that is given or estimated."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

import wsdesc
from wsdesc.core.errors import InputError
from wsdesc.core.geometry import transform
from wsdesc.datasets.synthetic import RoomPair
from wsdesc.registration.result import Registration
from wsdesc.registration.scale_search import ScaleHypothesis, Sizes
from wsdesc.registration.unknown_scale import COMPETING, _most_probable, _plausible, _refused_if_undetermined

FAST = {"keypoints": 300, "device": "cpu"}


def result_at(factor: float, confidence: float) -> Registration:
    T = np.diag([factor, factor, factor, 1.0])
    return Registration(
        T, confidence >= 0.9, confidence, 0.5, 0.01, 9, 20, 0.025, scale=factor, scale_deviation=0.02 * factor
    )


def test_the_only_scale_keeps_its_confidence():
    result = _most_probable([result_at(2.0, 0.95)])
    assert result.success
    assert result.confidence == pytest.approx(0.95)
    assert not result.alternatives


def test_two_plausible_scales_are_no_success():
    result = _most_probable([result_at(2.0, 0.93), result_at(3.0, 0.95)])
    assert not result.success
    assert result.factor == pytest.approx(3.0)
    assert result.confidence + result.alternatives[0].probability < 1
    assert result.alternatives[0].factor == pytest.approx(2.0)
    assert any("another scale is also plausible: 2" in warning for warning in result.warnings)


def test_an_implausible_scale_changes_little():
    assert _most_probable([result_at(2.0, 0.98), result_at(3.0, 0.1)]).success


@pytest.mark.parametrize("deviation", [0.2, math.inf])
def test_undetermined_scale_is_no_success(deviation):
    result = _refused_if_undetermined(replace(result_at(2.0, 0.99), scale_deviation=deviation))
    assert (result.success, result.confidence) == (False, 0.0)
    assert "does not determine the scale" in result.warnings[0]


def test_scales_that_fit_far_worse_are_not_registered():
    hypotheses = [
        ScaleHypothesis(1.0, 0.3),
        ScaleHypothesis(2.0, 0.2),
        ScaleHypothesis(3.0, 0.29 * COMPETING),
    ]
    assert [hypothesis.factor for hypothesis in _plausible(hypotheses)] == [1.0, 2.0]
    assert _plausible([]) == []


def test_resolution_of_scaled_sizes():
    sizes = Sizes((0.02, 20.0), (2.0, 2000.0))
    assert sizes.resolution(1000.0) == pytest.approx(
        1000 * Sizes((0.02, 0.02), (2.0, 2.0)).resolution(1.0), rel=0.01
    )


@pytest.mark.parametrize("scale", [0, -1, math.nan, math.inf, "guess", None, True, [2.0], 1e30])
def test_other_scales_are_refused(room: RoomPair, scale):
    with pytest.raises(InputError, match="scale"):
        wsdesc.register(room.source, room.target, scale=scale)


def test_initial_pose_needs_a_known_scale(room: RoomPair):
    with pytest.raises(InputError, match="known scale"):
        wsdesc.register(room.source, room.target, scale="estimate", initial=np.eye(4))


def test_known_factor_multiplies_the_source(room: RoomPair):
    plain = wsdesc.register(room.source, room.target, **FAST)
    feet = np.asarray(room.source, dtype=np.float64) / 0.3048
    result = wsdesc.register(feet, room.target, scale=0.3048, **FAST)
    assert result.factor == pytest.approx(0.3048, rel=1e-9)
    assert result.scale == pytest.approx(0.3048, rel=0.02)
    assert result.resolution == plain.resolution
    assert result.confidence == pytest.approx(plain.confidence, abs=0.1)
    np.testing.assert_allclose(result.apply(feet), plain.apply(np.asarray(room.source, float)), atol=0.02)
    swapped = result.inverse()
    np.testing.assert_allclose(swapped.apply(result.apply(feet)), feet, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("factor", [0.12, 8.0])
def test_estimated_factor(room: RoomPair, factor: float):
    R = Rotation.from_rotvec([0.3, -1.2, 0.5]).as_matrix()
    source = factor * np.asarray(room.source, dtype=np.float64) @ R.T
    result = wsdesc.register(source, room.target, scale="estimate", **FAST)
    assert result.success
    assert result.scale == pytest.approx(1 / factor, rel=0.02)
    assert result.scale == result.factor
    assert 0 < result.scale_deviation < 0.05 * result.scale
    true = transform(np.asarray(room.source, dtype=np.float64), room.T_target_source)
    assert np.linalg.norm(result.apply(source) - true, axis=1).max() < 0.15


@pytest.mark.slow
@pytest.mark.parametrize("walls", ["z", "xyz"])
def test_plane_and_corner_are_no_success(walls: str):
    scans = []
    for seed in (0, 1):
        rng = np.random.default_rng(seed)
        parts = []
        for axis in ("xyz".index(name) for name in walls):
            points = rng.uniform(0, 2.5 + seed, size=(8000, 3))
            points[:, axis] = rng.normal(scale=0.003, size=8000)
            parts.append(points)
        scans.append(np.concatenate(parts))
    result = wsdesc.register(3.0 * scans[0], scans[1], scale="estimate", **FAST)
    assert not result.success
    assert any("does not determine the scale" in warning for warning in result.warnings)


@pytest.mark.slow
def test_scaled_copy_of_a_vehicle_scan(data_folder: Path):
    folder = data_folder / "wild" / "car"
    if not folder.is_dir():
        pytest.skip("the data folder has no wild/car")
    result = wsdesc.register(
        folder / "car_cloud400_scaled.csv", folder / "car_cloud400.csv", scale="estimate", device="cpu"
    )
    assert result.success
    copy, original = (wsdesc.read_points(folder / f"car_cloud{name}.csv") for name in ("400_scaled", "400"))
    assert np.linalg.norm(result.apply(copy) - original, axis=1).mean() < 0.1
