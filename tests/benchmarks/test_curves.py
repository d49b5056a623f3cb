"""Curves of the report, computed by hand."""

from __future__ import annotations

import pytest
from benchmarks.report.curves import error_distribution, mean_recall_curve, recall_over_keypoints

from benchmark_records import RECORDS, record


def test_recall_curve_is_the_mean_over_scenes() -> None:
    curve = mean_recall_curve(RECORDS)
    assert curve is not None
    tau2, recall = curve
    assert recall[tau2.index(pytest.approx(0.05))] == (0.75 + 1) / 2
    assert mean_recall_curve([record("a", None, True, True)]) is None


def test_recall_over_keypoints() -> None:
    fewer = [record("a", 0.1, True, False, keypoints=250)]
    assert recall_over_keypoints([*RECORDS, *fewer], "r2") == ([250.0, 5000.0], [0.0, 0.875])


def test_distribution_counts_pairs_without_a_pose() -> None:
    assert error_distribution([3.0, None, 1.0, None]) == ([1.0, 3.0], [0.25, 0.5])
    assert error_distribution([None]) == ([], [])
