"""From records of pairs to the figures of a table: each scene, then the mean and spread over scenes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from wsdesc.evaluation.metrics import RecallCurve, feature_match_recall, feature_match_recall_curve
from wsdesc.evaluation.records import Record

_STEPS = 500  # of a distribution, at most


@dataclass(frozen=True)
class SceneFigures:
    """What a method reaches on one scene with one number of keypoints; shares are 0 … 1."""

    scene: str
    keypoints: int
    pairs: int
    matches: float | None  # mean of a pair; None, as all about matches, for methods that estimate poses
    inlier_ratio: float | None
    recall_005: float | None  # feature-match recall at τ2 = 0.05
    recall_02: float | None  # and at 0.2
    r1: float | None  # registration recall by R1; None where it counts no pair
    r1_pairs: int  # pairs it counts
    r2: float
    failures: int  # pairs in which the method had no say


@dataclass(frozen=True)
class Spread:
    """Mean and standard deviation over scenes; the latter is None for a single scene."""

    mean: float
    deviation: float | None

    def percent(self) -> str:
        """As it stands in a table."""
        spread = "" if self.deviation is None else f" ± {100 * self.deviation:.1f}"
        return f"{100 * self.mean:.1f}{spread}"


def scene_figures(records: Sequence[Record]) -> list[SceneFigures]:
    """The figures of each scene and number of keypoints, in the order of the records."""
    groups: dict[tuple[str, int], list[Record]] = {}
    for record in records:
        groups.setdefault((record["scene"], record["keypoints"]), []).append(record)
    return [_figures(scene, keypoints, some) for (scene, keypoints), some in groups.items()]


def _figures(scene: str, keypoints: int, records: list[Record]) -> SceneFigures:
    ratios = inlier_ratios(records)
    r1 = [record["r1"] for record in records if record["r1"] is not None]
    return SceneFigures(
        scene,
        keypoints,
        len(records),
        float(np.mean([record["matches"] for record in records])) if ratios else None,
        float(np.mean(ratios)) if ratios else None,
        feature_match_recall(ratios, 0.05) if ratios else None,
        feature_match_recall(ratios, 0.2) if ratios else None,
        float(np.mean(r1)) if r1 else None,
        len(r1),
        float(np.mean([record["r2"] for record in records])),
        sum(record["failure"] is not None for record in records),
    )


def inlier_ratios(records: Sequence[Record]) -> list[float]:
    """Those of the pairs that have one: all of them, or none."""
    return [record["inlier_ratio"] for record in records if record["inlier_ratio"] is not None]


def over_scenes(values: Sequence[float | None]) -> Spread | None:
    """The plain mean over scenes and their standard deviation (n − 1); None where there is no figure."""
    known = [value for value in values if value is not None]
    if not known:
        return None
    deviation = float(np.std(known, ddof=1)) if len(known) > 1 else None
    return Spread(float(np.mean(known)), deviation)


def mean_curve(records: Sequence[Record]) -> RecallCurve | None:
    """Feature-match recall over τ2, the mean over scenes; records of one number of keypoints."""
    by_scene: dict[str, list[float]] = {}
    for record in records:
        if record["inlier_ratio"] is not None:
            by_scene.setdefault(record["scene"], []).append(record["inlier_ratio"])
    curves = [feature_match_recall_curve(ratios) for ratios in by_scene.values()]
    if not curves:
        return None
    return RecallCurve(curves[0].tau2, torch.stack([curve.recall for curve in curves]).mean(0))


def error_distribution(errors: Sequence[float | None]) -> tuple[list[float], list[float]]:
    """Steps of the cumulative distribution: errors ascending and the share of pairs up to each.

    A pair without an estimate (None) counts, and is never reached. Of thousands of steps some hundreds are
    kept, the last among them: no picture shows more.
    """
    known = sorted(error for error in errors if error is not None and math.isfinite(error))
    ranks = np.unique(np.linspace(0, len(known) - 1, min(_STEPS, len(known))).round().astype(int)).tolist()
    return [known[rank] for rank in ranks], [(rank + 1) / len(errors) for rank in ranks]
