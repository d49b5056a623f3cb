"""Is a confidence worth its name? Precision and recall of what is called a success, and the calibration."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from wsdesc.core.atomic import atomic_write
from wsdesc.core.errors import InputError


class Reliability(NamedTuple):
    """How far confidences can be believed. Shares are NaN where there is nothing to take a share of."""

    poses: int
    right: int
    called: int  # successes
    precision: float  # share of the called ones that are right
    recall: float  # share of the right ones that are called
    calibration_error: float  # mean distance of confidence and share of right ones, over bins

    def __str__(self) -> str:
        return (
            f"{self.poses} poses, {self.right} right; {self.called} called a success, "
            f"{self.precision:.1%} of them right; {self.recall:.1%} of the right ones called so; "
            f"expected calibration error {self.calibration_error:.3f}"
        )


class Bin(NamedTuple):
    """Poses of similar confidence."""

    confidence: float  # mean
    right: float  # share
    poses: int


def reliability(confidence: ArrayLike, right: ArrayLike, success: float = 0.9, bins: int = 10) -> Reliability:
    """Judge the confidences (M,) of poses that are right or not, (M,)."""
    sure, good = _checked(confidence, right)
    called = sure >= success
    gaps = [b.poses * abs(b.confidence - b.right) for b in reliability_bins(sure, good, bins)]
    return Reliability(
        poses=len(sure),
        right=int(good.sum()),
        called=int(called.sum()),
        precision=float(good[called].mean()) if called.any() else float("nan"),
        recall=float(called[good].mean()) if good.any() else float("nan"),
        calibration_error=sum(gaps) / len(sure),
    )


def reliability_bins(confidence: ArrayLike, right: ArrayLike, bins: int = 10) -> list[Bin]:
    """Bins of equal width over 0 … 1; empty ones are left out."""
    sure, good = _checked(confidence, right)
    number = np.minimum((sure * bins).astype(int), bins - 1)
    return [
        Bin(float(sure[number == k].mean()), float(good[number == k].mean()), int((number == k).sum()))
        for k in np.unique(number)
    ]


def draw_reliability(confidence: ArrayLike, right: ArrayLike, path: str | Path, title: str = "") -> None:
    """The reliability diagram as a PNG: share of right poses over confidence, and how many there are."""
    from matplotlib.figure import Figure

    bins = reliability_bins(confidence, right)
    figure = Figure(figsize=(5, 5.4), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    above.plot([0, 1], [0, 1], color="0.7", linewidth=1)
    above.plot([b.confidence for b in bins], [b.right for b in bins], "o-", color="#2c6fbb")
    above.set(ylabel="share of right poses", title=title, xlim=(0, 1), ylim=(-0.02, 1.02))
    below.bar([b.confidence for b in bins], [b.poses for b in bins], width=0.06, color="#2c6fbb")
    below.set(xlabel="confidence", ylabel="poses", yscale="log")
    with atomic_write(path) as temporary:
        figure.savefig(temporary, dpi=150)


def _checked(confidence: ArrayLike, right: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    sure, good = np.asarray(confidence, dtype=np.float64), np.asarray(right, dtype=np.bool_)
    if sure.ndim != 1 or sure.shape != good.shape or len(sure) == 0:
        raise InputError(f"needs a confidence and an answer for each pose, not {sure.shape} and {good.shape}")
    if not ((sure >= 0) & (sure <= 1)).all():
        raise InputError("confidences lie in 0 … 1")
    return sure, good
