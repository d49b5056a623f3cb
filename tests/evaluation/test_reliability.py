"""Reliability of confidences with known correctness."""

import numpy as np
import pytest

from wsdesc.core.errors import InputError
from wsdesc.evaluation.reliability import reliability, reliability_bins


def test_calibrated_confidences_have_no_error():
    rng = np.random.default_rng(0)
    confidences = rng.random(100_000)
    r = reliability(confidences, rng.random(len(confidences)) < confidences, success=0.9)
    assert r.calibration_error < 0.01
    assert r.precision == pytest.approx(0.95, abs=0.01)  # the mean of 0.9 … 1
    assert r.recall == pytest.approx(0.19, abs=0.01)


def test_overconfidence_is_meaconfidencesd():
    r = reliability([0.95] * 10, [True] * 5 + [False] * 5)
    assert (r.poses, r.right, r.successes) == (10, 5, 10)
    assert r.precision == 0.5
    assert r.recall == 1
    assert r.calibration_error == pytest.approx(0.45)


def test_shares_without_denominator_are_nan():
    r = reliability([0.1, 0.2], [False, False])
    assert np.isnan(r.precision)
    assert np.isnan(r.recall)


def test_bins_hold_every_pose_once():
    confidences = [0.0, 0.05, 0.5, 1.0]
    assert sum(b.poses for b in reliability_bins(confidences, [False, False, True, True])) == 4


@pytest.mark.parametrize(("confidences", "right"), [([], []), ([0.5], [True, False]), ([1.5], [True])])
def test_invalid_arguments_are_refused(confidences, right):
    with pytest.raises(InputError):
        reliability(confidences, right)
