"""Result and constants of refinement."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from wsdesc.alignment.information.matrix import Information
from wsdesc.alignment.verify.score import PoseScore
from wsdesc.core.geometry import Floats

OVERLAP_DISTANCE = 2.0  # of the last steps and of the score of a pose, in resolutions
WEAK = 1e-3  # eigenvalues below this share of the largest leave their motion as it is


class RefinedPose(NamedTuple):
    """A refined pose with its score and information."""

    T_target_source: Floats  # (4, 4)
    converged: bool  # the steps converged, and the given pose did not score better
    rmse: float  # point to plane, of the overlapping points, in their unit; infinite without any
    information: Information  # at this pose
    score: PoseScore  # at this pose, within OVERLAP_DISTANCE resolutions


def orthonormalise(T: Floats) -> Floats:
    """Make the rotations of poses (…, 4, 4) exact; products of many poses lose it.

    Newton's iteration for the nearest rotation: each step squares the error, and poses are within 1e-3.
    """
    T = T.copy()
    R = T[..., :3, :3]
    for _ in range(3):
        R = 1.5 * R - 0.5 * R @ (np.swapaxes(R, -1, -2) @ R)
    T[..., :3, :3] = R
    return T
