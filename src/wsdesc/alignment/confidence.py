"""Confidence: the probability that a pose is right, given its evidence and the other poses of the pair.

At most one pose of a pair is right, or none. Each pose gets log odds against "none": a sum of one
piecewise linear function per feature, all monotone. The probabilities of all poses of a pair and of "none"
sum to 1. `benchmarks/calibrate.py` fitted the functions, which are in `confidence.json`.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Self

import numpy as np

from wsdesc.alignment.evidence import FEATURES, Evidence, features
from wsdesc.core.atomic import atomic_write
from wsdesc.core.geometry import Floats

CONFIDENCE_FILE = Path(__file__).with_suffix(".json")


@dataclass(frozen=True)
class ConfidenceModel:
    """Log odds of a pose as a sum of piecewise linear functions of its features.

    Attributes:
        knots: (F, K) ascending values of each feature. Values beyond the first and last count as these.
        log_odds: (F, K) log odds at the knots; a feature that is NaN adds nothing.
        bias: Log odds to which all features add.
        poses: Number of poses of the fit.
    """

    knots: Floats
    log_odds: Floats
    bias: float
    poses: int

    def score(self, x: Floats) -> Floats:
        """Return the log odds (M,) of features (M, F), against the case that no pose of the pair is right."""
        total = np.full(len(x), self.bias)
        for column, knots, values in zip(x.T, self.knots, self.log_odds, strict=True):
            total += np.where(np.isnan(column), 0.0, np.interp(column, knots, values))
        return total

    def probabilities(self, x: Floats, prior: float = 0.0) -> Floats:
        """Return the probabilities (K,) of all poses of one pair with features (K, F).

        `prior` are log odds that are added to each pose; see `PosePrior.log_odds`.
        """
        score = self.score(x) + prior
        top = max(0.0, score.max(initial=0.0))
        odds = np.exp(score - top)
        return np.asarray(odds / (np.exp(-top) + odds.sum()))

    def save(self, path: Path = CONFIDENCE_FILE, names: Collection[str] = FEATURES.keys()) -> None:
        """Write the model as JSON, atomically; `names` are those of the features."""
        functions = {
            name: {"at": np.round(at, 4).tolist(), "log_odds": np.round(values, 4).tolist()}
            for name, at, values in zip(names, self.knots, self.log_odds, strict=True)
        }
        content = {"poses": self.poses, "bias": round(self.bias, 4), "features": functions}
        with atomic_write(path) as temporary:
            temporary.write_text(json.dumps(content, indent=1) + "\n")

    @classmethod
    def load(cls, path: Path = CONFIDENCE_FILE, names: Collection[str] = FEATURES.keys()) -> Self:
        """Read a model that `save` wrote for features of these names."""
        content = json.loads(path.read_text())
        functions = [content["features"][name] for name in names]
        knots, log_odds = (np.array([f[key] for f in functions]) for key in ("at", "log_odds"))
        return cls(knots, log_odds, float(content["bias"]), int(content["poses"]))


def confidences(candidates: Sequence[Evidence], prior: float = 0.0) -> Floats:
    """Return the probability (K,) of each pose of one pair; their sum is at most 1.

    Args:
        candidates: Evidence of the poses.
        prior: Log odds that are added to each pose; see `PosePrior.log_odds`.
    """
    return _shipped().probabilities(features(candidates), prior)


def log_odds(candidates: Sequence[Evidence]) -> Floats:
    """Return the log odds (K,) of each pose of one pair against the case that none is right."""
    return _shipped().score(features(candidates))


@lru_cache(maxsize=1)
def _shipped() -> ConfidenceModel:
    return ConfidenceModel.load()
