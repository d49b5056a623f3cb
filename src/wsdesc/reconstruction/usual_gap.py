"""Compare the patch gaps of candidates with what is usual for their scans.

Probable poses of other pairs show how tightly a scan fits. A candidate with much larger gaps lies on a part
of the place that is only similar. No viewpoint is needed for this comparison.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from wsdesc.cloud.units import INDOOR_RESOLUTION
from wsdesc.core.geometry import Floats
from wsdesc.reconstruction.pair_selection import RegisteredPair

_PROBABLE = 0.5  # confidence of candidates that show what is usual
SMALLEST_GAP = 0.02 * INDOOR_RESOLUTION  # metres: smaller gaps are equal
# Fused scans are bent: gaps of right poses are up to 2.5 times the tightest ones (indoor training scans).
_LOOSE = 2.5
_SLOPE = 4.0  # log odds that a candidate loses when its gap grows by a factor of e
_MAX_LOSS = 3.0  # log odds


def tightest_gaps(pairs: Iterable[RegisteredPair]) -> dict[int, float]:
    """Return the smallest patch gap of each scan at a probable pose; scans without one are left out."""
    tightest: dict[int, float] = {}
    for pair in pairs:
        for candidate in pair.candidates:
            if candidate.patch_gap is not None and candidate.confidence >= _PROBABLE:
                for scan in (pair.source, pair.target):
                    gap = max(candidate.patch_gap, SMALLEST_GAP)
                    tightest[scan] = min(tightest.get(scan, gap), gap)
    return tightest


def gap_log_likelihood(pair: RegisteredPair, tightest: Mapping[int, float]) -> Floats:
    """Return the log likelihood (K,), at most 0, of the patch gaps of all candidates of a pair."""
    usual = max(tightest.get(scan, np.inf) for scan in (pair.source, pair.target))
    gaps = np.array([0.0 if c.patch_gap is None else c.patch_gap for c in pair.candidates])
    ratios = np.maximum(gaps / (_LOOSE * usual), 1.0)
    return np.asarray(np.maximum(-_SLOPE * np.log(ratios), -_MAX_LOSS))
