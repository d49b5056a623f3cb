"""Confidence: the probability that a pose is right, by a logistic model of its evidence.

`benchmarks/calibrate.py` fitted the model to poses of synthetic rooms and of indoor scans with and without
overlap. `benchmarks/repeats.py` fitted a second, smaller model to floors with repetitive structure, for pairs
with several plausible poses. The coefficients are in the JSON files of this package.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from wsdesc.alignment.information import Degeneracy
from wsdesc.alignment.verify import PoseScore, score_candidate
from wsdesc.core.atomic import atomic_write

CALIBRATION_FILE = Path(__file__).with_suffix(".json")
REPETITIVE_FILE = CALIBRATION_FILE.with_name("repetitive.json")
# Relative score of another pose from which on a pair is ambiguous: above it are 3 % of the right poses of
# the fit and all 15 wrong poses of repetitive floors that the model alone would accept.
AMBIGUOUS = 0.2
PLAUSIBLE = 0.5  # confidence from which on another pose, taken alone, is plausible
NEGATIVE_FEATURES = 2  # the last features lower the confidence
_MARGIN = 0.01  # shares closer to 0 or 1 do not change the log odds
_REGULARISATION = 1.0  # of each weight, in units of a pair


class Alternative(NamedTuple):
    """Another pose of the same pair."""

    score: PoseScore
    votes: float  # of the matches
    confidence: float  # if it were the only pose of the pair


class Evidence(NamedTuple):
    """Figures of a pose from which its confidence is computed. Swapping the scans hardly changes them."""

    overlap_min: float  # overlap of the scan where it is smaller
    overlap_max: float  # overlap of the other scan
    weighted_overlap: float  # smaller overlap with the same influence for each direction of normals
    aligned_normals: float  # this and the next as in `PoseScore`
    uncrossed: float
    free_space: float
    curvature_similarity: float
    detail_similarity: float
    tightness: float
    conditioning: float  # of the information matrix, 0 … 1
    inliers: int
    inlier_share: float  # of all matches
    alternative_score: float  # best `score_candidate` of other poses over that of this one
    alternative_votes: float  # best votes of other poses over those of this one
    alternative_confidence: float  # largest confidence that another pose would have alone
    score: float  # `score_candidate`
    misfit_ratio: float  # least misfit of plausible other poses over that of this one; 1 without any

    @classmethod
    def of(
        cls,
        score: PoseScore,
        degeneracy: Degeneracy,
        *,
        inliers: int,
        matches: int,
        votes: float,
        alternatives: Sequence[Alternative] = (),
    ) -> Self:
        """Collect the evidence of a pose among the other poses of its pair."""
        own = score_candidate(score)
        best_other = max((score_candidate(other.score) for other in alternatives), default=0.0)
        misfits = [other.score.misfit for other in alternatives if other.confidence > PLAUSIBLE]
        return cls(
            overlap_min=min(score.overlap_source, score.overlap_target),
            overlap_max=max(score.overlap_source, score.overlap_target),
            weighted_overlap=min(score.weighted_overlap_source, score.weighted_overlap_target),
            aligned_normals=score.aligned_normals,
            uncrossed=score.uncrossed,
            free_space=score.free_space,
            curvature_similarity=score.curvature_similarity,
            detail_similarity=score.detail_similarity,
            tightness=score.tightness,
            conditioning=degeneracy.conditioning,
            inliers=inliers,
            inlier_share=inliers / max(1, matches),
            alternative_score=best_other / max(own, 1e-12),
            alternative_votes=max((other.votes for other in alternatives), default=0.0) / max(votes, 1e-9),
            alternative_confidence=max((other.confidence for other in alternatives), default=0.0),
            score=own,
            misfit_ratio=_ratio(min(misfits), score.misfit) if misfits else 1.0,
        )

    @property
    def base_confidence(self) -> float:
        """Confidence by the first model, before ambiguity and repetitive structure are considered."""
        return float(_load(CALIBRATION_FILE).probability(self.features()))

    @property
    def ambiguous(self) -> bool:
        """True if another pose fits nearly as well."""
        return self.alternative_score > AMBIGUOUS

    @property
    def repetitive(self) -> bool:
        """True if another pose is plausible when taken alone: the scene may contain repetitive structure."""
        return self.alternative_confidence > PLAUSIBLE

    def features(self) -> NDArray[np.float64]:
        """Return features (F,) that nearly linearly separate right from wrong poses."""
        shares = [self.overlap_min, self.overlap_max, self.weighted_overlap, self.aligned_normals]
        shares += [self.uncrossed, self.free_space, self.curvature_similarity, self.detail_similarity]
        shares += [self.tightness]
        others = (
            math.log10(max(self.conditioning, 1e-4)),
            math.log1p(self.inliers),
            math.log10(max(self.inlier_share, 1e-3)),
            min(self.alternative_score, 1.5),
            min(self.alternative_votes, 1.5),
        )
        return np.array([*map(_log_odds, shares), *others])

    def repetitive_features(self) -> NDArray[np.float64]:
        """Return features (3,) that tell the right one of several plausible poses in repetitive structure.

        Equal parts of a scene differ in the objects within them and by millimetres in their surfaces.
        """
        ratio = min(max(self.misfit_ratio, 0.5), 1.6)  # beyond, other kinds of surfaces overlap
        relative = 1 / min(max(self.alternative_score, 1e-3), 1e3)
        return np.log10([max(self.score, 1e-6), relative, ratio])


@dataclass(frozen=True)
class Calibration:
    """A logistic model of standardised features."""

    mean: NDArray[np.float64]  # (F,)
    scale: NDArray[np.float64]  # (F,)
    weights: NDArray[np.float64]  # (F,)
    bias: float
    poses: int  # number of poses of the fit

    def probability(self, features: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return probabilities (…) of features (…, F)."""
        # Features beyond the range of the fit count as its limits.
        standard = np.clip((features - self.mean) / self.scale, -4.0, 4.0)
        return np.asarray(1 / (1 + np.exp(-(standard @ self.weights + self.bias))))

    @classmethod
    def fit(
        cls,
        features: NDArray[np.float64],
        correct: NDArray[np.bool_],
        *,
        negative: int = NEGATIVE_FEATURES,
        weights: NDArray[np.float64] | None = None,
    ) -> Self:
        """Fit the model to features (M, F) of poses that are correct or not (M,).

        A feature may only raise the confidence, the last `negative` ones only lower it: opposite signs in a
        sample are accidental and would not generalise.

        Args:
            features: (M, F).
            correct: (M,).
            negative: number of features, the last ones, that lower the confidence.
            weights: (M,) about 1 each; None gives correct and wrong poses the same total weight.
        """
        from scipy.optimize import minimize

        mean, scale = features.mean(axis=0), features.std(axis=0) + 1e-9
        standard = np.clip((features - mean) / scale, -4.0, 4.0)
        sign = np.where(correct, 1.0, -1.0)
        count = weights
        if count is None:
            count = np.where(correct, 0.5 / max(correct.mean(), 1e-9), 0.5 / max((~correct).mean(), 1e-9))

        def cost(x: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
            margin = sign * (standard @ x[:-1] + x[-1])
            pull = -sign * count / (1 + np.exp(margin))
            gradient = np.append(standard.T @ pull + _REGULARISATION * x[:-1], pull.sum())
            return float(
                (count * np.logaddexp(0, -margin)).sum() + _REGULARISATION * x[:-1] @ x[:-1] / 2
            ), gradient

        positive = features.shape[1] - negative
        bounds = [(0, None)] * positive + [(None, 0)] * negative + [(None, None)]
        start = np.zeros(features.shape[1] + 1)
        solution = minimize(cost, start, jac=True, method="L-BFGS-B", bounds=bounds).x
        return cls(mean, scale, solution[:-1], float(solution[-1]), len(features))

    def save(self, path: Path = CALIBRATION_FILE) -> None:
        """Write the model as JSON, atomically."""
        values = {name: np.round(getattr(self, name), 6).tolist() for name in ("mean", "scale", "weights")}
        with atomic_write(path) as temporary:
            temporary.write_text(json.dumps({**values, "bias": self.bias, "poses": self.poses}, indent=1))

    @classmethod
    def load(cls, path: Path = CALIBRATION_FILE) -> Self:
        """Read a model that `save` wrote."""
        values = json.loads(path.read_text())
        arrays = {name: np.array(values[name]) for name in ("mean", "scale", "weights")}
        return cls(**arrays, bias=values["bias"], poses=values["poses"])


def confidence(evidence: Evidence) -> float:
    """Return the probability, 0 … 1, that a pose with this evidence is right.

    Of two different poses that fit nearly as well, at most one is right, so the confidence is at most 0.5.
    The model alone cannot know this, because the rooms of its fit are seldom symmetric. If another pose is
    plausible when taken alone, most evidence does not distinguish them, and the model of repetitive structure
    applies.
    """
    base = evidence.base_confidence
    if evidence.repetitive:
        repetitive = _load(REPETITIVE_FILE).probability(evidence.repetitive_features())
        return min(base, float(repetitive))
    return min(base, 0.5) if evidence.ambiguous else base


@lru_cache(maxsize=2)
def _load(path: Path) -> Calibration:
    return Calibration.load(path)


def _ratio(a: float, b: float) -> float:
    """Divide two lengths that may be zero or infinite."""
    return min(max(a, 1e-9), 1e9) / min(max(b, 1e-9), 1e9)


def _log_odds(share: float) -> float:
    share = min(max(share, _MARGIN), 1 - _MARGIN)
    return math.log(share / (1 - share))
