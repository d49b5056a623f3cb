"""Errors over many poses as the experiments on ModelNet40 report them: Euler angles and translations."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation

from wsdesc.core.errors import InputError


class EulerErrors(NamedTuple):
    """Over B poses, all components together; degrees for rotation, the points' unit for translation."""

    rotation_rmse: float
    rotation_mae: float
    rotation_r2: float  # coefficient of determination, the mean of the three angles'; NaN if it has none
    translation_rmse: float
    translation_mae: float
    translation_r2: float


def euler_errors(T: NDArray[np.float64], T_true: NDArray[np.float64]) -> EulerErrors:
    """Compare poses (B, 4, 4) with the truth, B ≥ 1.

    Angles are those of rotations about fixed axes z, y, x, in degrees. They are subtracted as they are, 179°
    and −179° differ by 358°, as published: these figures make sense for angles well within ±90° alone.
    """
    T, T_true = np.asarray(T, dtype=np.float64), np.asarray(T_true, dtype=np.float64)
    if T.shape != T_true.shape or T.ndim != 3 or T.shape[1:] != (4, 4) or len(T) == 0:
        raise InputError(f"poses must be two of (B, 4, 4), not {T.shape} and {T_true.shape}")
    angles, angles_true = (
        Rotation.from_matrix(poses[:, :3, :3]).as_euler("zyx", degrees=True) for poses in (T, T_true)
    )
    return EulerErrors(*_errors(angles, angles_true), *_errors(T[:, :3, 3], T_true[:, :3, 3]))


def _errors(
    estimate: NDArray[np.float64], truth: NDArray[np.float64]
) -> tuple[float, float, float]:  # of (B, 3)
    residual = estimate - truth
    spread = np.square(truth - truth.mean(0)).sum(0)  # (3,)
    unexplained = np.square(residual).sum(0)
    # Truths that do not vary, those of a single pair, leave nothing to explain.
    r2 = float(np.mean(1 - unexplained / spread)) if (spread > 0).all() else float("nan")
    return float(np.sqrt(np.mean(residual**2))), float(np.abs(residual).mean()), r2
