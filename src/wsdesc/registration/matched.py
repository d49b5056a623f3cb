"""Matches of a registered pair, and which of them are inliers."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class MatchedKeypoints(NamedTuple):
    """Matches between the keypoints of two descriptions."""

    pairs: NDArray[np.int64]  # (M, 2) indices of keypoints in source and target
    inlier: NDArray[np.bool_]  # (M,) whether the match is an inlier of the hypothesis that became the pose

    def swapped(self) -> MatchedKeypoints:
        """Return the matches from target to source."""
        return MatchedKeypoints(self.pairs[:, ::-1], self.inlier)
