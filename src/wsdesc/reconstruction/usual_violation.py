"""Update the confidences of candidates by what is usual at the place: things move, and equal parts differ.

A registration compares few poses of two scans. It does not know how many points violate free space at right
poses of this place: none in an empty building, one of a hundred in a court with visitors. So the usual share
is measured on all pairs. A candidate that violates more than that is less probable, and so are poses at which
equal parts of the place lie on top of each other: small objects that differ violate free space there.

A candidate whose patch gaps are larger than is usual for its scans is less probable, too; see `usual_gap`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from wsdesc.core.geometry import Floats
from wsdesc.reconstruction.pair_selection import RegisteredPair
from wsdesc.reconstruction.pose_graph import Pair
from wsdesc.reconstruction.usual_gap import gap_log_likelihood, tightest_gaps
from wsdesc.registration.candidate import AMBIGUOUS

_MIN_USUAL, _MAX_USUAL = 0.0003, 0.02  # limits of the usual share
_UNKNOWN_USUAL = 0.002  # without any plausible candidate in view
_PLAUSIBLE = 0.05  # confidence of candidates from which the usual share is measured
MIN_VIEW = 1000  # visible points of these
_PRIOR = 500  # points with the usual share that are added, so that few points are no evidence
# Fitted to courtyards 71 and 72: 8 for pairs alone, less because errors of many pairs have common causes.
_SLOPE = 4.0  # log odds that a candidate loses when its violations grow by a factor of e
_MIN_NONE = 0.02  # probability that no candidate is right


def update_confidences(registered: Mapping[Pair, RegisteredPair]) -> dict[Pair, RegisteredPair]:
    """Update the confidences of all edges by free space and patch gaps; return the pairs in order."""
    least = []  # share of each pair: that of its plausible candidate with the fewest violations
    for pair in registered.values():
        plausible = [c for c in pair.candidates if c.confidence >= _PLAUSIBLE and c.visible >= MIN_VIEW]
        if plausible:
            least.append(min(c.violating / c.visible for c in plausible))
    usual, tightest = usual_share(least), tightest_gaps(registered.values())
    return {ends: _updated(pair, usual, tightest) for ends, pair in sorted(registered.items())}


def usual_share(shares: Sequence[float]) -> float:
    """Return the usual share of visible points that violate free space, given the shares of many pairs."""
    return float(np.clip(np.median(shares), _MIN_USUAL, _MAX_USUAL)) if shares else _UNKNOWN_USUAL


def log_likelihood(violating: Floats | int, visible: Floats | int, usual: float) -> Floats:
    """Return the log likelihood (…), at most 0, of violations, given their usual share at right poses."""
    share = (np.asarray(violating) + _PRIOR * usual) / (np.asarray(visible) + _PRIOR)
    return np.asarray(-_SLOPE * np.log(np.maximum(share / usual, 1.0)))


def _updated(pair: RegisteredPair, usual: float, tightest: Mapping[int, float]) -> RegisteredPair:
    """Return a pair whose edges have updated confidences."""
    if not pair.candidates:
        return pair
    violating, visible = np.array([(c.violating, c.visible) for c in pair.candidates], dtype=float).T
    prior = np.array([candidate.confidence for candidate in pair.candidates])
    prior /= max(prior.sum(), 1.0)  # at most one candidate is right
    likelihood = log_likelihood(violating, visible, usual) + gap_log_likelihood(pair, tightest)
    weight = prior * np.exp(likelihood)
    # Where candidates lose their weight, it is not certain that any of them is right.
    none = max(1 - prior.sum(), _MIN_NONE * (1 - weight.sum() / max(prior.sum(), 1e-12)))
    posterior = weight / max(none + weight.sum(), 1e-12)
    rival = [np.delete(posterior, k).max(initial=0.0) for k in range(len(posterior))]
    edges = [
        edge._replace(confidence=float(posterior[k]), ambiguous=bool(rival[k] > AMBIGUOUS))
        for k, edge in enumerate(pair.edges)
    ]
    return replace(pair, edges=edges)
