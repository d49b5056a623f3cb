"""Result and constants of refinement that both backends share."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.spatial.transform import Rotation

from wsdesc.alignment.information.matrix import Information
from wsdesc.alignment.verify.score import PoseScore
from wsdesc.core.geometry import Floats

# Distances in resolutions.
STAGE_DISTANCES = (8.0, 3.0)  # within which each stage of generalised ICP searches partners
OVERLAP_DISTANCE = 2.0  # of the last steps and of the score of a pose
MAX_STEPS = 12  # of the last stage
CONVERGED = 3e-4  # a step that moves the overlap by less is the last
SCORE_TOLERANCE = 0.01  # relative difference of scores that may come from the choice of the sample
WEAK = 1e-3  # eigenvalues below this share of the largest leave their motion as it is


class RefinedPose(NamedTuple):
    """A refined pose with its score and information."""

    T_target_source: Floats  # (4, 4)
    converged: bool  # the steps converged, and the given pose did not score better
    rmse: float  # point to plane, of the overlapping points, in their unit; infinite without any
    information: Information  # at this pose
    score: PoseScore  # at this pose, within OVERLAP_DISTANCE resolutions


def step_of(
    values: Floats, vectors: Floats, slope: Floats, centre: Floats, extent: float, weak: float = WEAK
) -> tuple[Floats, float]:
    """Solve a quadratic problem of twists: the step (4, 4) about `centre`, and how far it moves the overlap.

    Args:
        values, vectors: (6,) ascending and (6, 6), eigenvalues and eigenvectors of the problem's matrix.
        slope: (6,) right-hand side in the basis of the eigenvectors.
        centre: (3,) of the overlap.
        extent: radius that scales rotations.
        weak: share of the largest eigenvalue below which a motion is undetermined.
    """
    # Undetermined motions stay as they are; noise would move them.
    twist = vectors @ np.where(values > weak * values[-1], slope / np.maximum(values, 1e-300), 0.0)
    T = np.eye(4)
    T[:3, :3] = Rotation.from_rotvec(twist[3:] / extent).as_matrix()
    T[:3, 3] = centre + twist[:3] - T[:3, :3] @ centre
    return T, float(np.linalg.norm(twist))


def orthonormalise(T: Floats) -> Floats:
    """Make the rotation of a pose (4, 4) exact; products of many poses lose it."""
    T = T.copy()
    T[:3, :3] = Rotation.from_matrix(T[:3, :3]).as_matrix()
    return T
