"""Warnings about a pose: what may be wrong, and what to try next."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from wsdesc.alignment.scale import RelativeScale
from wsdesc.registration.advice import as_sentence, no_alignment_found, suggest_find, warnings_about

SAME = RelativeScale(1.0, 0.016)


def candidate(
    confidence: float = 0.4,
    rival: float = 0.0,
    violation: float | None = None,
    warning: str | None = None,
    scale: RelativeScale = SAME,
) -> Any:
    return SimpleNamespace(
        confidence=confidence,
        probability=0.95,
        rival=rival,
        ambiguous=rival > 0.05,
        evidence=SimpleNamespace(violation=violation),
        degeneracy=SimpleNamespace(warning=warning),
        scale=scale,
    )


def test_a_success_has_no_warning() -> None:
    assert warnings_about(candidate(0.95, rival=0.06, violation=0.02), 0.025) == []


@pytest.mark.parametrize(
    ("pose", "part"),
    [
        (candidate(rival=0.31), "Another pose is also plausible (probability 0.31, see --all)"),
        (candidate(violation=0.042), "4.2% of the points in view lie where the other scanner saw free space"),
        (candidate(), "Try another resolution (this one: 0.025) or more keypoints."),
        (candidate(warning="the overlap is a plane"), "The overlap is a plane."),
        (candidate(scale=RelativeScale(1.042, 0.002)), "the source is 1.042 ± 0.002 times as large"),
    ],
)
def test_a_failure_says_what_may_be_wrong(pose: Any, part: str) -> None:
    (warning,) = warnings_about(pose, 0.025)
    assert part in warning


def test_a_success_with_a_suspicious_scale_has_a_warning() -> None:
    (warning,) = warnings_about(candidate(0.95, scale=RelativeScale(1.04, 0.016)), 0.025)
    assert "may differ in scale: the source may be 1.040 ± 0.017 times as large" in warning


def test_a_success_whose_scale_is_unchecked_says_so() -> None:
    (warning,) = warnings_about(candidate(0.95, scale=RelativeScale(1.0, 0.03)), 0.025)
    assert "does not show whether the scans have the same scale" in warning


def test_sentences_start_with_a_capital_and_end_with_a_period() -> None:
    assert as_sentence("the scans differ") == "The scans differ."
    assert no_alignment_found(0.025).startswith("No alignment found.")


def test_much_smaller_scan_is_perhaps_an_object():
    points = np.random.default_rng(0).uniform(-1, 1, (3000, 3))
    assert suggest_find(points, 2 * points) == []
    (small_source,), (small_target,) = suggest_find(points, 10 * points), suggest_find(10 * points, points)
    assert "wsdesc find SOURCE TARGET" in small_source
    assert "wsdesc find TARGET SOURCE" in small_target
