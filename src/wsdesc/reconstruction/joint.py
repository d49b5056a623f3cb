"""Place scans by all their pairs together, and separate parts that fit nearly as well at another position.

Each pair of scans has log odds at the relative pose that a layout gives it: those of the candidate that
agrees with this pose, or of "no candidate is right". A rival layout moves some of the scans by a motion under
which the place repeats, such as a turn of a courtyard or a step from one bay to the next. Only the pairs
between moved and unmoved scans change. So the best rival of a motion is a cheapest cut of a graph whose edges
are the pairs. If the rival is better, it replaces the layout. If it is nearly as good, it is not known which
of the two is right, and the layout is cut there. Scans may also belong anywhere else: then no candidate is
right.

All lengths are in model metres.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
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
from wsdesc.reconstruction.edge_result import MAY_REPEAT
from wsdesc.reconstruction.motions import GroupMotions
from wsdesc.reconstruction.pose_graph import Pair

Scans = NDArray[np.intp]

MIN_ODDS = 6.0  # log odds of a layout against positions elsewhere; a single pair reaches it at 0.9
MIN_MARGIN = 2.5  # log odds of a layout against a rival
_MAX_MOTIONS = 24  # under which the place repeats, those that most candidates propose
_MAX_MOVES = 100  # to better layouts
_AMBIGUOUS = 0.5  # weight of ambiguous candidates: with repetitive structure, wrong ones agree, too
_CERTAIN = 1000.0  # log odds of a pair that is certain

NOT_CONNECTED = "too few candidates agree with the pose of the scans beyond it"
REPEATS = f"{MAY_REPEAT}: the scans beyond the edge fit nearly as well at another position"


class Layout(NamedTuple):
    """Poses of scans, and the groups inside of which they are certain."""

    T: Floats  # (N, 4, 4)
    group: NDArray[np.intp]  # (N,) number of each scan's group
    doubts: dict[Pair, str]  # why the two scans of a registered pair are in different groups


def find_layout(poses: CandidatePoses, radii: Floats, start: Floats, certain: Collection[int] = ()) -> Layout:
    """Find the layout that most candidates agree with, and the groups of scans whose poses are certain.

    Args:
        poses: Candidates of all pairs.
        radii: (N,) root mean square distance of each scan's points from its centre.
        start: (N, 4, 4) poses to start from.
        certain: Pairs whose only candidate is certain.
    """
    T, group = start.copy(), np.arange(len(radii))
    doubts: dict[Pair, str] = {}
    whole = _JointOdds.of(poses, radii, certain)
    for scans in whole.related():
        odds = whole.inside(scans)
        if len(scans) <= MAX_SCANS:
            odds.improve(T)
        left = [odds]
        while left:
            odds = left.pop()
            cut = odds.doubtful_cut(T) if len(odds.scans) > 1 else None
            if cut is None:
                group[odds.scans] = odds.scans[0]
                continue
            across = cut.moved[odds.a] != cut.moved[odds.b]
            ends = np.sort(odds.scans[np.stack([odds.a, odds.b], 1)[across]], axis=1).tolist()
            doubts |= dict.fromkeys(map(tuple, ends), NOT_CONNECTED if cut.motion is None else REPEATS)
            left += [odds.inside(odds.scans[part]) for part in (cut.moved, ~cut.moved)]
    return Layout(T, group, doubts)


class _Rival(NamedTuple):
    """Another layout, in which some scans are moved."""

    moved: Part  # (n,) of the scans of a group
    motion: Floats | None  # (4, 4), in the frame of the layout; None: anywhere else
    margin: float  # log odds of the layout against it


@dataclass(frozen=True, eq=False)
class _JointOdds:
    """Log odds of layouts of n scans by their P pairs with H candidates. Pairs name scans by 0 … n - 1."""

    scans: Scans  # (n,) numbers of these scans among all
    radii: Floats  # (n,)
    a: Scans  # (P,) one scan of each pair
    b: Scans  # (P,) the other scan
    none: Floats  # (P,) log odds if no candidate agrees
    pair: NDArray[np.intp]  # (H,) of each candidate, ascending
    T_a_b: Floats  # (H, 4, 4)
    gain: Floats  # (H,) log odds of each candidate

    @classmethod
    def of(cls, poses: CandidatePoses, radii: Floats, certain: Collection[int]) -> _JointOdds:
        """Take the pairs of all scans."""
        pairs, start, number = np.unique(poses.pair, return_index=True, return_inverse=True)
        gain = np.log1p(poses.weight / CHANCE)
        gain[poses.ambiguous] *= _AMBIGUOUS
        gain[np.isin(poses.pair, list(certain))] = _CERTAIN
        none = np.log(poses.none[pairs])
        scans = np.arange(len(radii))
        return cls(scans, radii, poses.a[start], poses.b[start], none, number, poses.T_a_b, gain)

    def inside(self, scans: Scans) -> _JointOdds:
        """Take the pairs between some of the scans, which are ascending."""
        chosen = np.searchsorted(self.scans, scans)
        index = np.full(len(self.scans), -1)
        index[chosen] = np.arange(len(scans))
        pairs = (index[self.a] >= 0) & (index[self.b] >= 0)
        rows = pairs[self.pair]
        number = np.cumsum(pairs) - 1
        return _JointOdds(
            scans,
            self.radii[chosen],
            index[self.a[pairs]],
            index[self.b[pairs]],
            self.none[pairs],
            number[self.pair[rows]],
            self.T_a_b[rows],
            self.gain[rows],
        )

    def related(self) -> list[Scans]:
        """Return sets of two scans or more with enough candidates between them to be connected."""
        count = len(self.scans)
        largest = np.zeros(len(self.a))
        np.maximum.at(largest, self.pair, self.gain)
        ends, others = np.concatenate([self.a, self.b]), np.concatenate([self.b, self.a])
        values = np.tile(largest - self.none, 2)
        used = np.ones(count, dtype=bool)
        while True:
            both = used[ends] & used[others]
            weak = used & (np.bincount(ends[both], values[both], count) < MIN_ODDS)
            if not weak.any():
                break
            used &= ~weak
        both = used[self.a] & used[self.b]
        graph = coo_array((np.ones(both.sum()), (self.a[both], self.b[both])), shape=(count, count))
        number, label = connected_components(graph, directed=False)
        order = np.argsort(label, kind="stable")
        sets = np.split(order, np.cumsum(np.bincount(label, minlength=number))[:-1])
        return [scans for scans in sets if len(scans) > 1]

    def improve(self, T: Floats) -> None:
        """Move parts of the scans in the layout T (N, 4, 4) of all until no rival is better."""
        for _ in range(_MAX_MOVES):
            best = self._best_rival(T)
            if best is None or best.motion is None or best.margin > -1e-6:
                break
            moved = self.scans[best.moved]
            T[moved] = best.motion @ T[moved]

    def doubtful_cut(self, T: Floats) -> _Rival | None:
        """Find the rival that is most likely, if it is nearly as likely as the layout; None otherwise."""
        elsewhere = self._rival(T[self.scans], None, MIN_ODDS)
        if elsewhere.margin < MIN_ODDS:
            return elsewhere
        best = self._best_rival(T)
        return best if best is not None and best.margin < MIN_MARGIN else None

    def _best_rival(self, T: Floats) -> _Rival | None:
        own = T[self.scans]
        rivals = [self._rival(own, motion, MIN_MARGIN) for motion in self._motions(own)]
        return min(rivals, key=lambda rival: rival.margin, default=None)

    def _motions(self, T: Floats) -> Floats:
        """Return distinct motions (M, 4, 4) of a layout (n, 4, 4) that the candidates propose."""
        G = T[self.a[self.pair]] @ self.T_a_b @ inverse(T[self.b[self.pair]])
        order = np.argsort(-self.gain, kind="stable")
        groups = GroupMotions(T, self.radii).distinct(G[order])
        groups.sort(key=lambda own: -self.gain[order[own]].sum())
        return G[[order[own[0]] for own in groups[:_MAX_MOTIONS]]]

    def _rival(self, T: Floats, motion: Floats | None, limit: float) -> _Rival:
        """Find the part of the scans whose motion loses least; cuts above `limit` may not be found."""
        T_a, T_b = inverse(T[self.a]), T[self.b]
        now = self._pair_odds(T_a @ T_b)
        if motion is None:
            a_moved = b_moved = self.none
        else:
            a_moved = self._pair_odds(T_a @ inverse(motion) @ T_b)
            b_moved = self._pair_odds(T_a @ motion @ T_b)
        rows, columns = np.concatenate([self.a, self.b]), np.concatenate([self.b, self.a])
        values = np.concatenate([now - a_moved, now - b_moved])
        # (n, n) what is lost if the scan of the row is moved, and that of the column is not
        losses = coo_array((values, (rows, columns)), shape=(len(T), len(T))).tocsr()
        part, margin = cheapest_part(losses, limit)
        return _Rival(part, motion, margin)

    def _pair_odds(self, T_a_b: Floats) -> Floats:
        """Return the log odds (P,) of the pairs at relative poses (P, 4, 4)."""
        radius_a, radius_b = self.radii[self.a[self.pair]], self.radii[self.b[self.pair]]
        agrees = displacements(T_a_b[self.pair], self.T_a_b, radius_a, radius_b) <= DRIFT * LOOP_TOLERANCE
        best = np.full(len(self.a), -np.inf)
        np.maximum.at(best, self.pair[agrees], self.gain[agrees])
        return np.where(np.isfinite(best), best, self.none)
