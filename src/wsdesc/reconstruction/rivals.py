"""Rival layouts: what do the pairs of a group lose if some of its scans are moved by a motion of the place?

Free space compares a layout with its rivals. A pose at which visible points violate nothing is better than
one at which they do, and the more points are visible, the better.

All lengths are in model metres.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array

from wsdesc.core.geometry import Floats, inverse
from wsdesc.reconstruction.cuts import Part, cheapest_part
from wsdesc.reconstruction.layout import Checker, Visibility, near_pairs
from wsdesc.reconstruction.pose_graph import Pair
from wsdesc.reconstruction.usual_violation import MIN_VIEW, log_likelihood, usual_share

MIN_MARGIN = 3.0  # log odds of a layout against a rival
# Points that are visible, and do not violate free space, for log odds of 1: at least so many, and where equal
# parts hardly differ, more. Poses at wrong bays of synthetic floors that violate nothing: 15 % with 1 000 to
# 2 000 visible points, 2 % with 4 000 to 8 000. But a registration chooses the best of many bays.
_MIN_POINTS, _MAX_POINTS = 3000.0, 1e6
_EXPECTED, _EXPECTED_POSES = 7000.0, 3  # points of poses that violate free space, before any is measured
_MIN_OVERLAP = 0.15  # of the scan where it is smaller, of poses that show how much equal parts differ
# Poses, and their overlap, from which the share of those that fit is measured.
_MIN_VIEWS, _MUCH_OVERLAP = 10, 0.4
_OVERLAP = 10.0  # log odds that a loss of all overlap costs
KEPT_OVERLAP = 0.7  # share of the overlap of a single scan at which another position fits as well
EQUAL_FIT, _MIN_FIT = 0.8, 0.05  # the same without free space, and the least overlap that is evidence
_MAX_LOSS = 6.0  # log odds of one pair

Scans = NDArray[np.intp]  # (n,) numbers of scans


def find_rivals(
    motions: Sequence[Floats], scans: Sequence[int], T: Floats, radii: Floats, check: Checker
) -> list[Rival]:
    """Check all pairs of a group of scans, without and with each motion (4, 4), in either direction."""
    moves = np.stack([np.eye(4), *(M for motion in motions for M in (inverse(motion), motion))])
    pairs = near_pairs(scans, scans, T, radii) if motions else []
    visibilities = check({(i, j): inverse(T[i]) @ moves @ T[j] for i, j in pairs})
    now = [checked[0] for checked in visibilities.values() if checked[0].visible >= MIN_VIEW]
    usual = usual_share([v.violating / v.visible for v in now])
    return [
        Rival.of({pair: (v[0], v[2 * k + 1], v[2 * k + 2]) for pair, v in visibilities.items()}, usual)
        for k in range(len(motions))
    ]


class Rival(NamedTuple):
    """All pairs of a group, and what they lose if one of their scans is moved by a motion."""

    pairs: list[_MovedPair]  # both directions of each pair
    equal: float  # share of the poses with much overlap after the motion that fit free space as usual

    @classmethod
    def of(cls, checked: Mapping[Pair, tuple[Visibility, Visibility, Visibility]], usual: float) -> Rival:
        """Compare each pair (i, j) now with the poses at which i is moved, and at which j is moved."""
        seen = [v for _, *after in checked.values() for v in after]
        seen = [v for v in seen if v.visible >= MIN_VIEW and v.overlap >= _MIN_OVERLAP]
        visible = np.array([v.visible for v in seen])
        fits = np.exp(log_likelihood(np.array([v.violating for v in seen]), visible, usual))
        points = points_per_log_odds(visible, float(fits.sum()))
        fits = fits[[v.overlap >= _MUCH_OVERLAP for v in seen]]
        pairs = []
        for (i, j), (now, first, second) in checked.items():
            pairs.append(_MovedPair.of(i, j, now, first, usual, points))
            pairs.append(_MovedPair.of(j, i, now, second, usual, points))
        return cls(pairs, float(fits.mean()) if len(fits) >= _MIN_VIEWS else 0.0)

    def cheapest_part(self, scans: Scans) -> tuple[Part, float]:
        """Find the part (n,) of scans whose motion loses least, and what it loses."""
        index = {scan: k for k, scan in enumerate(scans.tolist())}
        own = [pair for pair in self.pairs if pair.moved in index and pair.other in index]
        ends = np.array([(index[pair.moved], index[pair.other]) for pair in own], np.intp).reshape(-1, 2)
        values = np.array([pair.loss for pair in own])
        size = (len(scans), len(scans))
        part, loss = cheapest_part(coo_array((values, ends.T), shape=size).tocsr(), MIN_MARGIN)
        # To move all others is to move a scan by the inverse.
        single, least = min(
            (_loosest_scan(own, moved, len(scans)) for moved in ends.T), key=lambda cut: cut[1]
        )
        return (part, loss) if loss < MIN_MARGIN or least >= MIN_MARGIN else (single, least)


class _MovedPair(NamedTuple):
    """Two scans of which one is moved."""

    moved: int
    other: int
    loss: float  # log odds of the pose against the pose after the motion
    violation: float  # log odds of these by violated free space alone
    overlap: float  # of the scan where it is smaller
    overlap_after: float  # the motion

    @classmethod
    def of(
        cls, moved: int, other: int, now: Visibility, after: Visibility, usual: float, points: float
    ) -> _MovedPair:
        """Compare free space and overlap of a pair before and after a motion."""
        if max(now.visible, after.visible) < MIN_VIEW:
            equal = now.overlap < _MIN_FIT or after.overlap >= EQUAL_FIT * now.overlap
            loss = violation = 0.0 if equal else MIN_MARGIN
        else:
            odds = [log_likelihood(v.violating, v.visible, usual) for v in (now, after)]
            violation = float(np.clip(odds[0] - odds[1], -_MAX_LOSS, _MAX_LOSS))
            lost = (now.visible - after.visible) / points + _OVERLAP * max(0.0, now.overlap - after.overlap)
            loss = float(np.clip(odds[0] - odds[1] + lost, -_MAX_LOSS, _MAX_LOSS))
        return cls(moved, other, loss, violation, now.overlap, after.overlap)


def _loosest_scan(pairs: Sequence[_MovedPair], scans: Scans, count: int) -> tuple[Part, float]:
    """Find the scan that fits best after a motion, if it overlaps one of the others nearly as well as before.

    Many scans of a corridor see the same door of a room: together they are no more evidence than one of them.

    Args:
        pairs: P pairs before and after the motion.
        scans: (P,) the scan of each pair that is tested.
        count: Number of scans.

    Returns:
        The scan (n,), and the log odds of its pose by violated free space.
    """
    violation = np.bincount(scans, [pair.violation for pair in pairs], count)
    before, after = np.zeros(count), np.zeros(count)
    np.maximum.at(before, scans, [pair.overlap for pair in pairs])
    np.maximum.at(after, scans, [pair.overlap_after for pair in pairs])
    violation[(after < KEPT_OVERLAP * before) | (after == 0)] = np.inf
    loosest = int(violation.argmin())
    return np.arange(count) == loosest, float(violation[loosest])


def points_per_log_odds(visible: Floats, fits: float) -> float:
    """Return how many points that are visible, and do not violate free space, are evidence for a pose.

    The more points are visible, the less probably a wrong pose violates nothing: equal parts of a place
    differ somewhere. How much they differ is measured at poses that were moved from one part to another.

    Args:
        visible: (N,) visible points of such poses.
        fits: Number of these poses that do not violate free space.
    """
    visible = np.append(visible, [_EXPECTED] * _EXPECTED_POSES)
    scales = np.geomspace(_MIN_POINTS, _MAX_POINTS, 100)
    expected = np.exp(-visible / scales[:, None]).sum(axis=1)
    return float(scales[min(int(np.searchsorted(expected, fits)), len(scales) - 1)])
