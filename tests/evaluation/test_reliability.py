"""Calibration figures on confidences whose worth is known."""

import numpy as np
import pytest

from wsdesc.core.errors import InputError
from wsdesc.evaluation.reliability import draw_reliability, reliability, reliability_bins


def test_honest_confidences_have_no_calibration_error():
    rng = np.random.default_rng(0)
    sure = rng.random(100_000)
    r = reliability(sure, rng.random(len(sure)) < sure, success=0.9)
    assert r.calibration_error < 0.01
    assert r.precision == pytest.approx(0.95, abs=0.01)  # the mean of 0.9 … 1
    assert r.recall == pytest.approx(0.19, abs=0.01)


def test_boasting_is_measured():
    r = reliability([0.95] * 10, [True] * 5 + [False] * 5)
    assert (r.poses, r.right, r.called) == (10, 5, 10)
    assert r.precision == 0.5
    assert r.recall == 1
    assert r.calibration_error == pytest.approx(0.45)


def test_nothing_called_and_nothing_right():
    r = reliability([0.1, 0.2], [False, False])
    assert np.isnan(r.precision)
    assert np.isnan(r.recall)


def test_bins_hold_every_pose_once():
    sure = [0.0, 0.05, 0.5, 1.0]
    assert sum(b.poses for b in reliability_bins(sure, [False, False, True, True])) == 4


@pytest.mark.parametrize(("sure", "right"), [([], []), ([0.5], [True, False]), ([1.5], [True])])
def test_nonsense_is_refused(sure, right):
    with pytest.raises(InputError):
        reliability(sure, right)


def test_diagram(tmp_path):
    draw_reliability([0.1, 0.9, 0.95], [False, True, True], tmp_path / "r.png", "title")
    assert (tmp_path / "r.png").read_bytes().startswith(b"\x89PNG")
