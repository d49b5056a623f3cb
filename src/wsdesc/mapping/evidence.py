"""Evidence of a pose of a scan in a map, and the confidence computed from it.

A map is nearly complete: at the right pose, nearly the whole scan has partners in it, and nothing of the map
is in the scan's free space. At an equal but wrong place, some walls and furniture are missing or displaced by
a few millimetres. `benchmarks/map_fit.py` fitted the confidence.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from wsdesc.alignment.confidence import ConfidenceModel, log_odds
from wsdesc.alignment.evidence import Evidence, share_log_odds
from wsdesc.alignment.patch_gaps import measure_large_gaps
from wsdesc.core.geometry import Floats
from wsdesc.registration.candidate import Candidate

CONFIDENCE_FILE = Path(__file__).with_name("confidence.json")
_LEAST_GAP = 0.5  # standard errors: smaller gaps are equal


class MapEvidence(NamedTuple):
    """Measured figures of one pose of a scan in a map."""

    pair: Evidence  # of the scan and the part of the map around it
    explained: float  # share of the scan with partners in the map; each direction of normals weighs the same
    large_gaps: float | None  # see `measure_large_gaps`; None if too few patches overlap

    @classmethod
    def of(cls, candidate: Candidate) -> MapEvidence:
        """Measure a candidate. Its source is the scan, its target the part of the map around it."""
        refined = candidate.refined
        gaps = measure_large_gaps(*candidate.surfaces, refined.T_target_source)
        return cls(candidate.evidence, refined.score.weighted_overlap_source, gaps)


# Name of each feature, and whether a larger value raises (1) or lowers (−1) the confidence.
FEATURES = {"pair": 1, "explained": 1, "large_gaps": -1, "lead": 1}


def features(candidates: Sequence[MapEvidence]) -> Floats:
    """Return the features (K, F) of all poses of one scan; NaN where a figure is unknown."""
    fits = np.array([own.explained * own.pair.tightness for own in candidates])
    columns = [
        log_odds([own.pair for own in candidates]),
        np.array([share_log_odds(own.explained) for own in candidates]),
        np.array([_log10(own.large_gaps) for own in candidates]),
        np.array([fit - np.delete(fits, k).max(initial=0.0) for k, fit in enumerate(fits)]),
    ]
    return np.stack(columns, axis=1)


def confidences(candidates: Sequence[MapEvidence]) -> Floats:
    """Return the probability (K,) of each pose of one scan; their sum is at most 1."""
    return _shipped().probabilities(features(candidates))


def _log10(gap: float | None) -> float:
    return math.nan if gap is None else math.log10(max(gap, _LEAST_GAP))


@lru_cache(maxsize=1)
def _shipped() -> ConfidenceModel:
    return ConfidenceModel.load(CONFIDENCE_FILE, FEATURES)
