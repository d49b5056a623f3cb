"""Random and perturbed poses for tests."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.spatial.transform import Rotation

from wsdesc.core.geometry import make_pose, motion_about, transform


def random_pose(seed: int | np.random.Generator, size: float = 3.0) -> np.ndarray:
    """Draw a pose (4, 4) with any rotation and a translation in ±size."""
    R = Rotation.random(random_state=seed).as_matrix()
    return make_pose(R, np.random.default_rng(seed).uniform(-size, size, 3))


def random_motion(rng: np.random.Generator, angle: float, shift: float) -> np.ndarray:
    """Draw a motion (4, 4) with standard deviations per axis: of the rotation vector, and of the shift."""
    return make_pose(Rotation.from_rotvec(rng.normal(0, angle, 3)).as_matrix(), rng.normal(0, shift, 3))


def pose_of(rotation_vector: ArrayLike, translation: ArrayLike) -> np.ndarray:
    """Return the pose (4, 4) of a rotation vector in radians and a translation."""
    return make_pose(Rotation.from_rotvec(np.asarray(rotation_vector, float)).as_matrix(), translation)


def perturbed(T: np.ndarray, points: np.ndarray, degrees: float, distance: float, seed: int) -> np.ndarray:
    """Rotate a pose about the mean of the source's points and shift it, in random directions."""
    axis, shift = (v / np.linalg.norm(v) for v in np.random.default_rng(seed).normal(size=(2, 3)))
    centre = np.asarray(points, dtype=float).mean(0)
    D = motion_about(centre, Rotation.from_rotvec(np.radians(degrees) * axis).as_matrix(), distance * shift)
    return T @ D


def largest_difference(points: np.ndarray, T_a: np.ndarray, T_b: np.ndarray) -> float:
    """Return the largest distance between the same point under two poses."""
    points = np.asarray(points, dtype=float)
    return float(np.linalg.norm(transform(points, T_a) - transform(points, T_b), axis=1).max())
