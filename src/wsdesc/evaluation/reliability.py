"""Measure how reliable confidences are: precision and recall of successes, and the calibration error."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from wsdesc.core.errors import InputError
from wsdesc.core.geometry import Floats


class Reliability(NamedTuple):
    """Reliability of the confidences of poses. Shares are NaN where their denominator is 0."""

    poses: int
    right: int  # correct poses
    successes: int  # poses whose confidence reaches the threshold
    precision: float  # share of successes that are correct
    recall: float  # share of correct poses that are successes
    calibration_error: float  # mean over bins of |confidence − share of correct poses|

    def __str__(self) -> str:
        return (
            f"{self.poses} poses, {self.right} correct; {self.successes} successes, "
            f"precision {self.precision:.1%}, recall {self.recall:.1%}; "
            f"expected calibration error {self.calibration_error:.3f}"
        )


class Bin(NamedTuple):
    """Poses of similar confidence."""

    confidence: float  # mean
    right: float  # share of correct poses
    poses: int


def reliability(confidence: ArrayLike, right: ArrayLike, success: float = 0.9, bins: int = 10) -> Reliability:
    """Compare confidences (M,) with the correctness (M,) of their poses.

    Args:
        confidence: 0 … 1.
        right: True for correct poses.
        success: Confidence from which a pose is a success.
        bins: Number of bins of the calibration error.
    """
    confidences, correct = _check(confidence, right)
    successes = confidences >= success
    gaps = [b.poses * abs(b.confidence - b.right) for b in reliability_bins(confidences, correct, bins)]
    return Reliability(
        poses=len(confidences),
        right=int(correct.sum()),
        successes=int(successes.sum()),
        precision=float(correct[successes].mean()) if successes.any() else float("nan"),
        recall=float(successes[correct].mean()) if correct.any() else float("nan"),
        calibration_error=sum(gaps) / len(confidences),
    )


def reliability_bins(confidence: ArrayLike, right: ArrayLike, bins: int = 10) -> list[Bin]:
    """Group poses into bins of equal width over 0 … 1; empty bins are left out."""
    confidences, correct = _check(confidence, right)
    number = np.minimum((confidences * bins).astype(int), bins - 1)
    inside = [number == k for k in np.unique(number)]
    return [Bin(float(confidences[m].mean()), float(correct[m].mean()), int(m.sum())) for m in inside]


def _check(confidence: ArrayLike, right: ArrayLike) -> tuple[Floats, NDArray[np.bool_]]:
    confidences, correct = np.asarray(confidence, dtype=np.float64), np.asarray(right, dtype=np.bool_)
    if confidences.ndim != 1 or confidences.shape != correct.shape or len(confidences) == 0:
        raise InputError(
            f"confidence and right must both be (M,), M ≥ 1, not {confidences.shape} and {correct.shape}"
        )
    if not ((confidences >= 0) & (confidences <= 1)).all():
        raise InputError("confidences must be between 0 and 1")
    return confidences, correct
