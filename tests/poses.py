"""Random and perturbed poses for tests."""

from __future__ import annotations

import numpy as np
from scipy.spatial.transform import Rotation

from wsdesc.core.geometry import transform


def random_pose(seed: int, size: float = 3.0) -> np.ndarray:
    """Draw a pose (4, 4) with a translation in ±size."""
    T = np.eye(4)
    T[:3, :3] = Rotation.random(random_state=seed).as_matrix()
    T[:3, 3] = np.random.default_rng(seed).uniform(-size, size, 3)
    return T


def perturbed(T: np.ndarray, points: np.ndarray, degrees: float, distance: float, seed: int) -> np.ndarray:
    """Rotate a pose about the mean of the source's points and shift it, in random directions."""
    axis, shift = (v / np.linalg.norm(v) for v in np.random.default_rng(seed).normal(size=(2, 3)))
    centre = np.asarray(points, dtype=float).mean(0)
    D = np.eye(4)
    D[:3, :3] = Rotation.from_rotvec(np.radians(degrees) * axis).as_matrix()
    D[:3, 3] = centre - D[:3, :3] @ centre + distance * shift
    return T @ D


def largest_difference(points: np.ndarray, T_a: np.ndarray, T_b: np.ndarray) -> float:
    """Return the largest distance between the same point under two poses."""
    points = np.asarray(points, dtype=float)
    return float(np.linalg.norm(transform(points, T_a) - transform(points, T_b), axis=1).max())
