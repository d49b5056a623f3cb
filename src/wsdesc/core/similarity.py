"""Similarity transformations: a rotation, a translation and a factor by which lengths grow.

A similarity (4, 4) has the factor times a rotation in its upper left block. Rigid poses are similarities of
factor 1. Functions here treat them exactly as `core.geometry` does.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from wsdesc.core.errors import InputError
from wsdesc.core.geometry import Floats, check_matrices, inverse, is_rigid


def factor_of(T: Floats) -> float:
    """Return the factor of a similarity (4, 4); exactly 1 for a rigid pose."""
    return 1.0 if is_rigid(T) else float(np.cbrt(np.linalg.det(T[:3, :3])))


def split_similarity(T: Floats) -> tuple[Floats, float]:
    """Split a similarity (4, 4) into a rigid pose (4, 4) and the factor that is applied before it."""
    factor = factor_of(T)
    rigid = T.copy()
    rigid[:3, :3] /= factor
    return rigid, factor


def inverse_similarity(T_b_a: Floats) -> Floats:
    """Invert a similarity (4, 4)."""
    rigid, factor = split_similarity(T_b_a)
    T_a_b = inverse(rigid)
    T_a_b[:3] /= factor
    return T_a_b


def scaled_first(T: Floats, factor: float) -> Floats:
    """Return the similarity (4, 4) that multiplies points by a factor, and then applies T (4, 4)."""
    scaled = T.copy()
    scaled[:3, :3] *= factor
    return scaled


def check_similarity(T: ArrayLike, name: str = "the pose") -> Floats:
    """Return a matrix (4, 4) as float64, if it is a similarity transformation.

    Args:
        T: The matrix.
        name: Name in error messages, such as that of an argument.

    Raises:
        InputError: The shape is wrong, a number is not finite, or the matrix is not a similarity.
    """
    T = check_matrices(T, name)
    if is_rigid(T):
        return T
    determinant = np.linalg.det(T[:3, :3])
    if not (0 < determinant < np.inf and is_rigid(split_similarity(T)[0])):
        raise InputError(
            f"{name} must be a rotation, a translation and at most a factor of lengths, with the last row "
            "0 0 0 1"
        )
    return T
