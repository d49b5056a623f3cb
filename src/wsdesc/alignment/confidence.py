"""The probability that a pose is right: a logistic model over what speaks for it.

It was fitted, by a command that the repository keeps, to poses of synthetic rooms and of indoor scans that do
and that do not overlap. A second, smaller one was fitted to floors whose bays are built alike, for pairs of
which several poses would be believed. Their numbers lie beside this file.
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

from wsdesc.alignment.observability import Degeneracy
from wsdesc.alignment.verify import Agreement, plausibility
from wsdesc.core.atomic import atomic_write

FITTED = Path(__file__).with_suffix(".json")
REPEATS = FITTED.with_name("repeats.json")
AMBIGUOUS = 0.2  # rivals beyond this: 3 % of the right poses the model was fitted to, and all 15 wrong ones
# of floors with equal bays that it would have believed
RIVALS = 2  # features, the last, that speak against a pose
_EDGE = 0.01  # shares are as good as 0 or 1 beyond this
_PULL = 1.0  # of each weight towards zero, in units of a pair


class Rival(NamedTuple):
    """Another pose of the same pair."""

    agreement: Agreement
    score: float  # among the matches
    alone: float  # its probability if there were no other


class Evidence(NamedTuple):
    """What is known about the best of several poses. Swapping the scans leaves it nearly as it is."""

    overlap: float  # share of points with a partner, of the scan where it is smaller
    overlap_large: float  # and of the other one
    informative: float  # smaller share with every direction of normals given the same say
    normals: float  # these and the next as in `Agreement`
    uncrossed: float
    clear: float
    relief: float
    details: float
    tight: float
    conditioning: float  # how firmly the geometry holds the pose, 0 … 1
    inliers: int  # matches that agree with it
    share: float  # of all matches
    rival: float  # what the best other pose has of this one's plausibility, 0 … 1 and beyond
    rival_score: float  # and of its score among the matches
    rival_alone: float  # the largest probability that another pose would have if it were alone
    plausible: float  # the plausibility itself
    finer: (
        float  # misfit of the finest other pose that would be believed alone, over this one's; 1 without any
    )

    @classmethod
    def of(
        cls,
        a: Agreement,
        free: Degeneracy,
        *,
        inliers: int,
        matches: int,
        score: float,
        rivals: Sequence[Rival] = (),
    ) -> Self:
        """From the agreement of a pose, how firmly it is held, its matches, and its rivals."""
        best = plausibility(a)
        others = [r.agreement.misfit for r in rivals if r.alone > 0.5]
        return cls(
            overlap=min(a.overlap_source, a.overlap_target),
            overlap_large=max(a.overlap_source, a.overlap_target),
            informative=min(a.informative_source, a.informative_target),
            normals=a.normals,
            uncrossed=a.uncrossed,
            clear=a.clear,
            relief=a.relief,
            details=a.details,
            tight=a.tight,
            conditioning=free.conditioning,
            inliers=inliers,
            share=inliers / max(1, matches),
            rival=max((plausibility(r.agreement) for r in rivals), default=0.0) / max(best, 1e-12),
            rival_score=max((r.score for r in rivals), default=0.0) / max(score, 1e-9),
            rival_alone=max((r.alone for r in rivals), default=0.0),
            plausible=best,
            finer=_ratio(min(others), a.misfit) if others else 1.0,
        )

    @property
    def alone(self) -> float:
        """The probability of the pose if nothing were known of others that would be believed, too."""
        return float(_fitted(FITTED).probability(self.features()))

    @property
    def ambiguous(self) -> bool:
        """Whether another pose fits nearly as well."""
        return self.rival > AMBIGUOUS

    @property
    def repeats(self) -> bool:
        """Whether another pose would be believed if it were alone: the place is built of equal parts."""
        return self.rival_alone > 0.5

    def features(self) -> NDArray[np.float64]:
        """(F,) numbers in which right and wrong poses are told apart by a plane, nearly."""
        shares = [self.overlap, self.overlap_large, self.informative, self.normals]
        shares += [self.uncrossed, self.clear, self.relief, self.details, self.tight]
        others = (
            math.log10(max(self.conditioning, 1e-4)),
            math.log1p(self.inliers),
            math.log10(max(self.share, 1e-3)),
            min(self.rival, 1.5),
            min(self.rival_score, 1.5),
        )
        return np.array([*map(_log_odds, shares), *others])

    def features_of_repeats(self) -> NDArray[np.float64]:
        """(3,) what tells the right one of several believable poses: what stands in the equal parts, and that
        these are not equal to the millimetre."""
        finer = min(max(self.finer, 0.5), 1.6)  # beyond, it is another kind of surface that overlaps
        return np.log10([max(self.plausible, 1e-6), 1 / min(max(self.rival, 1e-3), 1e3), finer])


@dataclass(frozen=True)
class Calibration:
    """A logistic model over standardised features."""

    mean: NDArray[np.float64]  # (F,)
    scale: NDArray[np.float64]  # (F,)
    weights: NDArray[np.float64]  # (F,)
    bias: float
    poses: int  # it was fitted to

    def probability(self, features: NDArray[np.float64]) -> NDArray[np.float64]:
        """(…, F) → (…)."""
        # Evidence beyond what the model has seen is not believed further than that.
        standard = np.clip((features - self.mean) / self.scale, -4.0, 4.0)
        return np.asarray(1 / (1 + np.exp(-(standard @ self.weights + self.bias))))

    @classmethod
    def fit(
        cls,
        features: NDArray[np.float64],
        right: NDArray[np.bool_],
        *,
        against: int = RIVALS,
        weights: NDArray[np.float64] | None = None,
    ) -> Self:
        """Fit to features (M, F) of poses that are right or not, (M,).

        By `weights` (M,), about 1 each; without them right and wrong poses count the same as a whole.
        More of a feature may only speak for a pose, of the last `against` only against it: what a sample
        shows otherwise is an accident, and would be wrong elsewhere.
        """
        from scipy.optimize import minimize

        mean, scale = features.mean(axis=0), features.std(axis=0) + 1e-9
        standard = np.clip((features - mean) / scale, -4.0, 4.0)
        sign = np.where(right, 1.0, -1.0)
        count = weights
        if count is None:
            count = np.where(right, 0.5 / max(right.mean(), 1e-9), 0.5 / max((~right).mean(), 1e-9))

        def cost(x: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
            margin = sign * (standard @ x[:-1] + x[-1])
            pull = -sign * count / (1 + np.exp(margin))
            gradient = np.append(standard.T @ pull + _PULL * x[:-1], pull.sum())
            return float((count * np.logaddexp(0, -margin)).sum() + _PULL * x[:-1] @ x[:-1] / 2), gradient

        kinds = features.shape[1] - against
        bounds = [(0, None)] * kinds + [(None, 0)] * against + [(None, None)]
        start = np.zeros(features.shape[1] + 1)
        found = minimize(cost, start, jac=True, method="L-BFGS-B", bounds=bounds).x
        return cls(mean, scale, found[:-1], float(found[-1]), len(features))

    def save(self, path: Path = FITTED) -> None:
        """Write it as JSON, whole or not at all."""
        values = {name: np.round(getattr(self, name), 6).tolist() for name in ("mean", "scale", "weights")}
        with atomic_write(path) as temporary:
            temporary.write_text(json.dumps({**values, "bias": self.bias, "poses": self.poses}, indent=1))

    @classmethod
    def load(cls, path: Path = FITTED) -> Self:
        values = json.loads(path.read_text())
        arrays = {name: np.array(values[name]) for name in ("mean", "scale", "weights")}
        return cls(**arrays, bias=values["bias"], poses=values["poses"])


def confidence(evidence: Evidence) -> float:
    """The probability that a pose with this evidence is right, 0 … 1.

    Of two different poses that fit nearly as well, at most one is right: then it is a half at most, however
    much speaks for both. The fit cannot know, as rooms are seldom symmetric; halls and corridors are. But
    where several poses would be believed if each were alone, most of the evidence is worth nothing, and a fit
    to such places says what the rest is worth.
    """
    if evidence.repeats:
        return min(evidence.alone, float(_fitted(REPEATS).probability(evidence.features_of_repeats())))
    return min(evidence.alone, 0.5) if evidence.ambiguous else evidence.alone


@lru_cache(maxsize=2)
def _fitted(path: Path) -> Calibration:
    return Calibration.load(path)


def _ratio(a: float, b: float) -> float:
    """Of two lengths, either of which may be zero or infinite."""
    return min(max(a, 1e-9), 1e9) / min(max(b, 1e-9), 1e9)


def _log_odds(share: float) -> float:
    share = min(max(share, _EDGE), 1 - _EDGE)
    return math.log(share / (1 - share))
