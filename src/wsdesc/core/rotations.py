"""Rotation matrices and rotation vectors, with NumPy: importing scipy takes a third of a second."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from wsdesc.core.geometry import Floats


def rotation_matrix(vectors: ArrayLike) -> Floats:
    """Convert rotation vectors (…, 3), axis times angle in radians, to matrices (…, 3, 3)."""
    vectors = np.asarray(vectors, dtype=np.float64)
    angle = np.sqrt(np.square(vectors).sum(-1))[..., None, None]
    cross = np.zeros((*vectors.shape, 3))
    x, y, z = vectors[..., 0], vectors[..., 1], vectors[..., 2]
    cross[..., 0, 1], cross[..., 0, 2], cross[..., 1, 2] = -z, y, -x
    cross[..., 1, 0], cross[..., 2, 0], cross[..., 2, 1] = z, -y, x
    # np.sinc(x) = sin(πx) / (πx), and (1 − cos a) / a² = sinc²(a / 2) / 2: both are exact near 0.
    half = np.sinc(angle / (2 * math.pi))
    return np.asarray(np.eye(3) + np.sinc(angle / math.pi) * cross + half * half / 2 * (cross @ cross))


def rotation_angle(R: Floats) -> float:
    """Return the angle of a rotation matrix (3, 3), 0 … π."""
    x, y, z = R[2, 1] - R[1, 2], R[0, 2] - R[2, 0], R[1, 0] - R[0, 1]
    return math.atan2(math.sqrt(x * x + y * y + z * z), R[0, 0] + R[1, 1] + R[2, 2] - 1)


def nearest_rotation(M: Floats) -> Floats:
    """Return the rotation matrix (3, 3) that is nearest to a matrix (3, 3)."""
    u, _, vt = np.linalg.svd(M)
    if np.linalg.det(u) * np.linalg.det(vt) < 0:
        u[:, 2] = -u[:, 2]
    return np.asarray(u @ vt)
