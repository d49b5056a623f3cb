"""Curves of benchmark results: recall over a threshold, and distributions of errors."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from wsdesc.evaluation.metrics import feature_match_recall_curve
from wsdesc.evaluation.records import Record
from wsdesc.evaluation.summary import over_scenes, scene_figures

Points = tuple[list[float], list[float]]  # x ascending, y

_STEPS = 500  # largest number of steps of a distribution


def mean_recall_curve(records: Sequence[Record]) -> Points | None:
    """Compute the feature-match recall over τ2, mean over scenes; None for methods without matches."""
    by_scene: dict[str, list[float]] = {}
    for record in records:
        if record["inlier_ratio"] is not None:
            by_scene.setdefault(record["scene"], []).append(record["inlier_ratio"])
    curves = [feature_match_recall_curve(ratios) for ratios in by_scene.values()]
    if not curves:
        return None
    mean = np.mean([curve.recall.numpy() for curve in curves], axis=0)
    return curves[0].tau2.tolist(), mean.tolist()


def recall_over_keypoints(records: Sequence[Record], protocol: str) -> Points:
    """Compute the registration recall, by `r1` or `r2`, over the number of keypoints."""
    figures = scene_figures(records)
    counts, recalls = [], []
    for count in sorted({f.keypoints for f in figures}):
        spread = over_scenes([getattr(f, protocol) for f in figures if f.keypoints == count])
        if spread is not None:
            counts.append(float(count))
            recalls.append(spread.mean)
    return counts, recalls


def error_distribution(errors: Sequence[float | None]) -> Points:
    """Compute the cumulative distribution: errors ascending, and the share of pairs up to each.

    A pair without an estimate (None) counts, but is never reached. At most some hundred steps are kept.
    """
    finite = sorted(error for error in errors if error is not None and math.isfinite(error))
    ranks = np.unique(np.linspace(0, len(finite) - 1, min(_STEPS, len(finite))).round().astype(int)).tolist()
    return [finite[rank] for rank in ranks], [(rank + 1) / len(errors) for rank in ranks]
