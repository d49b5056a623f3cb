"""Motions of a group of scans that other candidates of its pairs propose, such as from one bay to the next.

All lengths are in model metres.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from wsdesc.core.geometry import Floats, inverse
from wsdesc.reconstruction.disambiguation import DRIFT, LOOP_TOLERANCE

_SIMILAR = 2 * LOOP_TOLERANCE  # metres by which motions that several pairs propose differ
_LEAST = 3 * DRIFT * LOOP_TOLERANCE  # metres by which two motions differ at the scans
_POWERS = 8  # of a motion
_ROWS = 256  # motions that are compared with all others at once


class GroupMotions:
    """Compares motions of a group of scans.

    Args:
        T: (n, 4, 4) poses of the scans.
        radii: (n,) of the scans.
    """

    def __init__(self, T: Floats, radii: Floats) -> None:
        self.centre = np.eye(4)
        self.centre[:3, 3] = T[:, :3, 3].mean(axis=0)
        distance = np.linalg.norm(T[:, :3, 3] - self.centre[:3, 3], axis=1)
        self.reach = float(distance.max() + radii.mean())

    def same(self, motions: Floats, other: Floats) -> NDArray[np.bool_]:
        """Return which of the motions (M, 4, 4) move the group as another one (4, 4) does, or its inverse."""
        return np.asarray(self._distances(motions, other[None])[:, 0] <= _LEAST)

    def _distances(self, motions: Floats, others: Floats) -> Floats:
        """Return how far motions (M, 4, 4) are from others (K, 4, 4), or from their inverses: (M, K).

        This is `displacements` with the reach of the group, for all pairs at once.
        """
        first = inverse(self.centre) @ motions @ self.centre
        second = inverse(self.centre) @ others @ self.centre
        distances = [
            np.maximum(_gaps(first, other), _gaps(inverse(first), inverse(other)))
            + self.reach * _chords(first, other)
            for other in (second, inverse(second))
        ]
        return np.asarray(np.minimum(*distances))

    def distinct(self, motions: Floats) -> list[NDArray[np.intp]]:
        """Group motions (M, 4, 4) that are the same, without those that hardly move the scans.

        A motion and its inverse are the same. The first motion of each group represents it.
        """
        left = ~self.same(motions, np.eye(4))
        groups = []
        while left.any():
            first = int(left.argmax())
            equal = left & self.same(motions, motions[first])
            equal[first] = True
            groups.append(np.flatnonzero(equal))
            left &= ~equal
        return groups

    def common(self, motions: Floats, owner: NDArray[np.intp], least: float) -> list[Floats]:
        """Return motions (4, 4) that several owners have in common, those of most owners first.

        Args:
            motions: (M, 4, 4), which come from different owners.
            owner: (M,) number of each one's owner, ascending.
            least: Sum of votes of the owners; an owner with an equal motion votes 1, with a similar one less.
        """
        votes = np.zeros(len(motions))
        starts = np.flatnonzero(np.diff(owner, prepend=-1))
        for first in range(0, len(motions), _ROWS):
            rows = slice(first, first + _ROWS)
            similar = np.exp(-np.square(self._distances(motions[rows], motions) / _SIMILAR))
            votes[rows] = np.maximum.reduceat(similar, starts, axis=1).sum(axis=1)
        votes[self.same(motions, np.eye(4))] = 0.0
        found: list[Floats] = []
        while votes.max(initial=0.0) >= least:
            found.append(motions[int(votes.argmax())])
            votes[self._distances(motions, found[-1][None])[:, 0] < 2 * _SIMILAR] = 0.0
        return found

    def with_powers(self, motions: Sequence[Floats]) -> list[Floats]:
        """Add the powers of each motion that are other motions, until they leave the group."""
        all_motions = [np.eye(4), *motions]
        for motion in motions:
            power = motion
            for _ in range(_POWERS):
                power = motion @ power
                if not self._near(power):
                    break
                if not self.same(np.stack(all_motions), power).any():
                    all_motions.append(power)
        return all_motions[1:]

    def _near(self, motion: Floats) -> bool:
        """Return whether a motion moves the centre of the group by less than twice its reach."""
        moved = motion[:3, :3] @ self.centre[:3, 3] + motion[:3, 3]
        return bool(np.linalg.norm(moved - self.centre[:3, 3]) < 2 * self.reach)


def _gaps(first: Floats, second: Floats) -> Floats:
    """Return the distances between the shifts of motions (M, 4, 4) and (K, 4, 4): (M, K)."""
    return np.asarray(cdist(first[:, :3, 3], second[:, :3, 3]))


def _chords(first: Floats, second: Floats) -> Floats:
    """Return the chords 2 sin(angle / 2) between the rotations of motions (M, 4, 4) and (K, 4, 4): (M, K)."""
    traces = first[:, :3, :3].reshape(-1, 9) @ second[:, :3, :3].reshape(-1, 9).T
    return np.asarray(np.sqrt(np.maximum(3 - traces, 0)))
