"""Result and constants of refinement."""

from __future__ import annotations

from typing import NamedTuple

from scipy.spatial.transform import Rotation

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
    """Make the rotation of a pose (4, 4) exact; products of many poses lose it."""
    T = T.copy()
    T[:3, :3] = Rotation.from_matrix(T[:3, :3]).as_matrix()
    return T
