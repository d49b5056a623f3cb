"""Place scans by all their pairs together, and separate parts that fit nearly as well at another position.

Each pair of scans has log odds at the relative pose that a layout gives it: those of the candidate that
agrees with this pose, or of "no candidate is right". A rival layout moves some of the scans by a motion under
which the place repeats, such as a turn of a courtyard or a step from one bay to the next. Only the pairs
between moved and unmoved scans change. So the best rival of a motion is a cheapest cut of a graph whose edges
are the pairs. If the rival is better, it replaces the layout. If it is nearly as good, nothing tells which
of the two is right, and the layout is cut there. Scans may also belong anywhere else: then no candidate is
right.

All lengths are in model metres.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from wsdesc.core.geometry import Floats, inverse
from wsdesc.reconstruction.cuts import MAX_SCANS, Part, cheapest_part
from wsdesc.reconstruction.disambiguation import (
    CHANCE,
    DRIFT,
    LOOP_TOLERANCE,
    CandidatePoses,
    displacements,
)
from wsdesc.reconstruction.motions import GroupMotions

Pair = tuple[int, int]  # indices of two scans, ascending
Scans = NDArray[np.intp]

MIN_ODDS = 6.0  # log odds of a layout against positions elsewhere; a single pair reaches it at 0.9
MIN_MARGIN = 2.5  # log odds of a layout against a rival
_MOTIONS = 24  # under which the place repeats, those that most candidates propose
_MOVES = 100  # to better layouts, at most
_AMBIGUOUS = 0.5  # weight of ambiguous candidates: with repetitive structure, wrong ones agree, too
_CERTAIN = 1000.0  # log odds of a pair that is certain

NOT_CONNECTED = "too few candidates agree with the pose of the scans beyond it"
REPEATS = "the scans beyond it fit nearly as well at another position: the place may repeat"


class Layout(NamedTuple):
    """Poses of scans, and the groups inside of which they are certain."""

    T: Floats  # (N, 4, 4)
    group: NDArray[np.intp]  # (N,) number of each scan's group
    doubts: dict[Pair, str]  # why two scans are in different groups, where the pairs of their group tell


def find_layout(poses: CandidatePoses, radii: Floats, start: Floats, certain: Collection[int] = ()) -> Layout:
    """Find the layout that most candidates agree with, and the groups of scans whose poses are certain.

    Args:
        poses: Candidates of all pairs.
        radii: (N,) root mean square distance of each scan's points from its centre.
        start: (N, 4, 4) poses to start from.
        certain: Pairs whose only candidate is certain.
    """
    odds, T = _JointOdds(poses, radii, certain), start.copy()
    group = np.arange(len(radii))
    doubts: dict[Pair, str] = {}
    for scans in odds.related():
        if 1 < len(scans) <= MAX_SCANS:
            odds.improve(T, scans)
        left = [scans]
        while left:
            scans = left.pop()
            cut = odds.doubtful_cut(T, scans) if len(scans) > 1 else None
            if cut is None:
                group[scans] = scans[0]
                continue
            parts = [scans[cut.moved], scans[~cut.moved]]
            reason = NOT_CONNECTED if cut.motion is None else REPEATS
            doubts |= {(min(i, j), max(i, j)): reason for i in parts[0].tolist() for j in parts[1].tolist()}
            left += parts
    return Layout(T, group, doubts)


class _Rival(NamedTuple):
    """Another layout, in which some scans are moved."""

    moved: Part  # (n,) of the scans of a group
    motion: Floats | None  # (4, 4), in the frame of the layout; None: anywhere else
    margin: float  # log odds of the layout against it


class _JointOdds:
    """Log odds of layouts of scans."""

    def __init__(self, poses: CandidatePoses, radii: Floats, certain: Collection[int]) -> None:
        self.poses, self.radii = poses, radii
        pairs, self.start = np.unique(poses.pair, return_index=True)
        self.number = np.searchsorted(pairs, poses.pair)  # (H,) of the pair of each candidate
        self.a, self.b = poses.a[self.start], poses.b[self.start]  # (P,) scans of each pair
        self.none = np.log(poses.none[pairs])  # (P,) log odds if no candidate agrees
        self.gain = np.log1p(poses.weight / CHANCE)  # (H,) log odds of each candidate
        self.gain[poses.ambiguous] *= _AMBIGUOUS
        self.gain[np.isin(poses.pair, list(certain))] = _CERTAIN

    def related(self) -> list[Scans]:
        """Return sets of scans with enough candidates between them to be connected."""
        largest = np.maximum.reduceat(self.gain, self.start) if len(self.start) else np.zeros(0)
        count = len(self.radii)
        ends, values = np.concatenate([self.a, self.b]), np.tile(largest - self.none, 2)
        others = np.concatenate([self.b, self.a])
        used = np.ones(count, dtype=bool)
        while True:
            both = used[ends] & used[others]
            degree = np.bincount(ends[both], values[both], count)
            weak = used & (degree < MIN_ODDS)
            if not weak.any():
                break
            used &= ~weak
        both = used[self.a] & used[self.b]
        graph = coo_array((np.ones(both.sum()), (self.a[both], self.b[both])), shape=(count, count))
        number, label = connected_components(graph, directed=False)
        order = np.argsort(label, kind="stable")
        return np.split(order, np.cumsum(np.bincount(label, minlength=number))[:-1])

    def of_pairs(self, T_a_b: Floats, own: NDArray[np.intp]) -> Floats:
        """Return the log odds of pairs `own` at relative poses (n, 4, 4)."""
        p = self.poses
        local = np.full(len(self.a), -1)
        local[own] = np.arange(len(own))
        rows = np.flatnonzero(local[self.number] >= 0)
        number = local[self.number[rows]]
        error = displacements(T_a_b[number], p.T_a_b[rows], self.radii[p.a[rows]], self.radii[p.b[rows]])
        best = np.full(len(own), -np.inf)
        np.maximum.at(best, number, np.where(error <= DRIFT * LOOP_TOLERANCE, self.gain[rows], -np.inf))
        return np.where(np.isfinite(best), best, self.none[own])

    def improve(self, T: Floats, scans: Scans) -> None:
        """Move parts of connected scans in T (N, 4, 4) until no rival is better."""
        for _ in range(_MOVES):
            rivals = [self._rival(T, scans, motion, MIN_MARGIN) for motion in self._motions(T, scans)]
            best = min(rivals, key=lambda rival: rival.margin, default=None)
            if best is None or best.motion is None or best.margin > -1e-6:
                break
            T[scans[best.moved]] = best.motion @ T[scans[best.moved]]

    def doubtful_cut(self, T: Floats, scans: Scans) -> _Rival | None:
        """Find the rival that is most likely, if it is nearly as likely as the layout; None otherwise."""
        elsewhere = self._rival(T, scans, None, MIN_ODDS)
        if elsewhere.margin < MIN_ODDS:
            return elsewhere
        rivals = [self._rival(T, scans, motion, MIN_MARGIN) for motion in self._motions(T, scans)]
        best = min(rivals, key=lambda rival: rival.margin, default=None)
        return best if best is not None and best.margin < MIN_MARGIN else None

    def _motions(self, T: Floats, scans: Scans) -> Floats:
        """Return distinct motions (M, 4, 4) of a layout that candidates between its scans propose."""
        p = self.poses
        inside = np.isin(p.a, scans) & np.isin(p.b, scans)
        G = T[p.a[inside]] @ p.T_a_b[inside] @ inverse(T[p.b[inside]])
        gain = self.gain[inside]
        order = np.argsort(-gain, kind="stable")
        groups = GroupMotions(T[scans], self.radii[scans]).distinct(G[order])
        groups.sort(key=lambda own: -gain[order[own]].sum())
        return G[[order[own[0]] for own in groups[:_MOTIONS]]]

    def _rival(self, T: Floats, scans: Scans, motion: Floats | None, limit: float) -> _Rival:
        """Find the part of connected scans whose motion loses least; cuts above `limit` may not be found."""
        index = np.full(len(self.radii), -1)
        index[scans] = np.arange(len(scans))
        own = np.flatnonzero((index[self.a] >= 0) & (index[self.b] >= 0))
        inverse_a, T_b = inverse(T[self.a[own]]), T[self.b[own]]
        now = self.of_pairs(inverse_a @ T_b, own)
        if motion is None:
            first = second = self.none[own]
        else:
            first = self.of_pairs(inverse_a @ inverse(motion) @ T_b, own)
            second = self.of_pairs(inverse_a @ motion @ T_b, own)
        a, b = index[self.a[own]], index[self.b[own]]
        rows, columns = np.concatenate([a, b]), np.concatenate([b, a])
        values = np.concatenate([now - first, now - second])
        # (n, n) what is lost if the scan of the row is moved, and that of the column is not
        losses = coo_array((values, (rows, columns)), shape=(len(scans), len(scans))).tocsr()
        part, margin = cheapest_part(losses, limit)
        return _Rival(part, motion, margin)
