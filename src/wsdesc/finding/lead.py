"""Lead of a pose over the other poses of a search: wrong poses of a scene fit about equally well."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from wsdesc.core.geometry import Floats
from wsdesc.finding.hypotheses import suppress


def leads(log_odds: Floats, similar: NDArray[np.bool_]) -> Floats:
    """Return how far (K,) the log odds drop from each pose to the worse ones: the largest single step.

    Several instances have similar log odds. The step from the worst of them to the best wrong pose is the
    lead of all.

    Args:
        log_odds: (K,) of each pose, regardless of the others.
        similar: (K, K) whether two poses are equal up to the object's symmetries. Such poses do not compete.
    """
    rivals = suppress(log_odds, np.argwhere(np.triu(similar, 1)), len(log_odds))  # best first
    result = np.zeros(len(log_odds))
    for k, value in enumerate(log_odds):
        worse = log_odds[rivals[~similar[k, rivals] & (log_odds[rivals] < value)]]
        if len(worse) == 0:  # without a rival, the worst of the similar poses stands for one
            worse = log_odds.min(keepdims=True)
        result[k] = -np.diff(worse, prepend=value).min()
    return result
