"""A pose at a wrong scale is never called a success."""

from __future__ import annotations

import numpy as np
import pytest

import wsdesc
from wsdesc.datasets.synthetic import RoomPair


@pytest.mark.slow
@pytest.mark.parametrize("factor", [0.8, 0.93, 0.98, 1.03, 1.1, 1.3])
def test_scaled_source_is_no_success(room: RoomPair, factor: float):
    result = wsdesc.register(factor * np.asarray(room.source), room.target, keypoints=600, device="cpu")
    assert not result.success
    if result.confidence == 0 and result.scale_deviation < 0.03:
        assert result.scale == pytest.approx(1 / factor, rel=0.02)
        assert any("differ in scale" in warning for warning in result.warnings)


@pytest.mark.slow
def test_scale_of_a_success_is_one_and_saved(room: RoomPair, tmp_path):
    result = wsdesc.register(room.source, room.target, keypoints=600, device="cpu")
    assert result.success
    assert result.scale == pytest.approx(1.0, abs=0.01)
    result.save(tmp_path / "T.json")
    assert wsdesc.Registration.load(tmp_path / "T.json").scale == result.scale
