"""Summarise the records of pairs: figures of each scene, then mean and spread over scenes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import shorten

import numpy as np

from wsdesc.evaluation.metrics import feature_match_recall
from wsdesc.evaluation.records import Record


@dataclass(frozen=True)
class SceneFigures:
    """Figures of a method on one scene with one keypoint count; shares are 0 … 1.

    Figures of matches are None for methods that estimate poses.
    """

    scene: str
    keypoints: int
    pairs: int
    matches: float | None  # mean per pair
    inlier_ratio: float | None
    recall_005: float | None  # feature-match recall at τ2 = 0.05
    recall_02: float | None  # and at 0.2
    r1: float | None  # registration recall by R1; None where R1 counts no pair
    r1_pairs: int  # pairs that R1 counts
    r2: float
    failures: int  # pairs for which the method gave no usable result


@dataclass(frozen=True)
class Spread:
    """Mean and standard deviation over scenes."""

    mean: float
    deviation: float | None  # None for a single scene

    def percent(self) -> str:
        """Format for a table."""
        spread = "" if self.deviation is None else f" ± {100 * self.deviation:.1f}"
        return f"{100 * self.mean:.1f}{spread}"


def scene_figures(records: Sequence[Record]) -> list[SceneFigures]:
    """Compute the figures of each scene and keypoint count, in the order of the records."""
    groups: dict[tuple[str, int], list[Record]] = {}
    for record in records:
        groups.setdefault((record["scene"], record["keypoints"]), []).append(record)
    return [_figures(scene, keypoints, group) for (scene, keypoints), group in groups.items()]


def _figures(scene: str, keypoints: int, records: list[Record]) -> SceneFigures:
    ratios = [record["inlier_ratio"] for record in records if record["inlier_ratio"] is not None]
    r1 = [record["r1"] for record in records if record["r1"] is not None]
    return SceneFigures(
        scene=scene,
        keypoints=keypoints,
        pairs=len(records),
        matches=float(np.mean([record["matches"] for record in records])) if ratios else None,
        inlier_ratio=float(np.mean(ratios)) if ratios else None,
        recall_005=feature_match_recall(ratios, 0.05) if ratios else None,
        recall_02=feature_match_recall(ratios, 0.2) if ratios else None,
        r1=float(np.mean(r1)) if r1 else None,
        r1_pairs=len(r1),
        r2=float(np.mean([record["r2"] for record in records])),
        failures=sum(record["failure"] is not None for record in records),
    )


def most_keypoints(figures: Sequence[SceneFigures]) -> list[SceneFigures]:
    """Select the figures with the largest keypoint count."""
    largest = max((f.keypoints for f in figures), default=0)
    return [f for f in figures if f.keypoints == largest]


def over_scenes(values: Sequence[float | None]) -> Spread | None:
    """Compute the mean over scenes and their standard deviation (n − 1); None without any value."""
    present = [value for value in values if value is not None]
    if not present:
        return None
    deviation = float(np.std(present, ddof=1)) if len(present) > 1 else None
    return Spread(float(np.mean(present)), deviation)


def failure_notes(results: dict[str, list[Record]]) -> list[str]:
    """Write one line for each method with failed pairs."""
    failed = {name: [r["failure"] for r in records if r["failure"]] for name, records in results.items()}
    return [
        f"{name}: {len(reasons)} pairs failed; the first: {shorten(reasons[0], 160, placeholder=' …')}"
        for name, reasons in failed.items()
        if reasons
    ]
