"""Lead of a pose over the other poses of a search: wrong poses of a scene fit about equally well."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from wsdesc.core.geometry import Floats
from wsdesc.finding.hypotheses import suppress

_MIN_RIVALS = 4  # with fewer, all candidates may be right: instances of a symmetric object


def leads(log_odds: Floats, similar: NDArray[np.bool_]) -> Floats:
    """Return how far (K,) the log odds drop from each pose to the worse ones: the largest single step.

    Several instances have similar log odds. The step from the worst of them to the best wrong pose is the
    lead of all. The lead is NaN if the pose has too few rivals.

    Args:
        log_odds: (K,) of each pose, regardless of the others.
        similar: (K, K) whether two poses are equal up to the object's symmetries. Such poses are no rivals.
    """
    distinct = suppress(log_odds, np.argwhere(np.triu(similar, 1)), len(log_odds))  # best first
    result = np.full(len(log_odds), np.nan)
    for k, value in enumerate(log_odds):
        rivals = log_odds[distinct[~similar[k, distinct]]]
        if len(rivals) >= _MIN_RIVALS:
            worse = rivals[rivals < value]
            result[k] = -np.diff(worse, prepend=value).min(initial=0.0)
    return result
