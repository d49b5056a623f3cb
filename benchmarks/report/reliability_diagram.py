"""Draw the reliability diagram of confidences."""

from __future__ import annotations

from pathlib import Path

from numpy.typing import ArrayLike

from wsdesc.core.atomic import atomic_write
from wsdesc.evaluation.reliability import reliability_bins


def draw_reliability(confidence: ArrayLike, right: ArrayLike, path: str | Path, title: str = "") -> None:
    """Draw a PNG: share of correct poses over confidence, and the number of poses.

    Args:
        confidence: confidences (M,).
        right: whether the poses are correct (M,).
        path: file of the PNG.
        title: title of the diagram.
    """
    from matplotlib.figure import Figure

    bins = reliability_bins(confidence, right)
    figure = Figure(figsize=(5, 5.4), layout="constrained")
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    upper.plot([0, 1], [0, 1], color="0.7", linewidth=1)
    upper.plot([b.confidence for b in bins], [b.right for b in bins], "o-", color="#2c6fbb")
    upper.set(ylabel="share of correct poses", title=title, xlim=(0, 1), ylim=(-0.02, 1.02))
    lower.bar([b.confidence for b in bins], [b.poses for b in bins], width=0.06, color="#2c6fbb")
    lower.set(xlabel="confidence", ylabel="poses", yscale="log")
    with atomic_write(path) as temporary:
        figure.savefig(temporary, dpi=150)
