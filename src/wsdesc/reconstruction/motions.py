"""Motions of a group of scans that other candidates of its pairs propose, such as from one bay to the next.

All lengths are in model metres.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from wsdesc.core.geometry import Floats, inverse
from wsdesc.reconstruction.disambiguation import DRIFT, LOOP_TOLERANCE, displacements

_LEAST = 3 * DRIFT * LOOP_TOLERANCE  # metres by which two motions differ at the scans


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
        first = inverse(self.centre) @ motions @ self.centre
        distance = [
            displacements(first, inverse(self.centre) @ second @ self.centre, self.reach, self.reach)
            for second in (other, inverse(other))
        ]
        return np.asarray(np.minimum(*distance) <= _LEAST)

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

    def with_doubles(self, motions: Sequence[Floats]) -> list[Floats]:
        """Add twice each motion, where that is another one."""
        all_motions = [np.eye(4), *motions]
        for motion in motions:
            if not self.same(np.stack(all_motions), motion @ motion).any():
                all_motions.append(motion @ motion)
        return all_motions[1:]
