"""Warnings of a registration."""

from types import SimpleNamespace

import numpy as np
import pytest

from wsdesc.alignment.scale import RelativeScale
from wsdesc.registration.advice import as_sentence, no_alignment_found, warnings_about
from wsdesc.registration.result import AlternativePose

DETERMINED = SimpleNamespace(warning=None)


def evidence(ambiguous=False, repetitive=False):
    return SimpleNamespace(ambiguous=ambiguous, repetitive=repetitive)


def test_success_has_no_warnings():
    assert warnings_about(DETERMINED, evidence(ambiguous=True), 0.95, 0.025) == []


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (evidence(ambiguous=True), "second pose fits nearly as well"),
        (evidence(repetitive=True), "repetitive structure"),
        (evidence(), "Try another resolution (this one: 0.025) or more keypoints."),
    ],
)
def test_failure_has_a_reason_or_advice(given, text):
    (warning,) = warnings_about(DETERMINED, given, 0.4, 0.025)
    assert text in warning


@pytest.mark.parametrize("kind", ["ambiguous", "repetitive"])
def test_second_pose_is_named_with_its_probability(kind):
    (warning,) = warnings_about(
        DETERMINED,
        evidence(**{kind: True}),
        0.4,
        0.025,
        alternatives=[AlternativePose(np.eye(4), 0.314, 0.5, 0.01)],
    )
    assert "probability 0.31, see --all" in warning


def test_undetermined_direction_comes_first():
    warnings = warnings_about(SimpleNamespace(warning="the overlap is a plane"), evidence(), 0.0, 0.025)
    assert warnings == ["The overlap is a plane."]


def test_no_alignment_says_what_to_try():
    assert "Do the scans overlap?" in no_alignment_found(0.025)
    assert "0.025" in no_alignment_found(0.025)


def test_sentences_end_once():
    assert as_sentence("a b.") == as_sentence("a b") == "A b."


def test_wrong_scale_is_named_with_its_factor():
    scale = RelativeScale(1.062, 0.01)
    (warning,) = warnings_about(DETERMINED, evidence(), 0.0, 0.025, scale)[:1]
    assert "1.062 ± 0.011" in warning
    assert "1.062" in warning.split("divide")[1]


def test_success_at_a_suspicious_scale_has_a_warning():
    (warning,) = warnings_about(DETERMINED, evidence(), 0.95, 0.025, RelativeScale(1.04, 0.016))
    assert "1.040 ± 0.017" in warning
