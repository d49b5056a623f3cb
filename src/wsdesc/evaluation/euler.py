"""Errors of many poses in Euler angles and translations, as the experiments on ModelNet40 report them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.spatial.transform import Rotation

from wsdesc.core.errors import InputError
from wsdesc.core.geometry import Floats


class EulerErrors(NamedTuple):
    """Errors over B poses and three components; degrees for rotation, the points' unit for translation."""

    rotation_rmse: float
    rotation_mae: float
    rotation_r2: float  # coefficient of determination, mean over the three angles; NaN where undefined
    translation_rmse: float
    translation_mae: float
    translation_r2: float


def euler_errors(T: Floats, T_true: Floats) -> EulerErrors:
    """Compare poses (B, 4, 4) with the true poses, B ≥ 1.

    Angles belong to rotations about the fixed axes z, y, x. As in the published evaluation they are
    subtracted without wrapping: 179° and −179° differ by 358°. Use the errors only for angles within ±90°.
    """
    T, T_true = np.asarray(T, dtype=np.float64), np.asarray(T_true, dtype=np.float64)
    if T.shape != T_true.shape or T.ndim != 3 or T.shape[1:] != (4, 4) or len(T) == 0:
        raise InputError(f"T and T_true must both be (B, 4, 4), not {T.shape} and {T_true.shape}")
    angles, angles_true = (
        Rotation.from_matrix(poses[:, :3, :3]).as_euler("zyx", degrees=True) for poses in (T, T_true)
    )
    return EulerErrors(*_errors(angles, angles_true), *_errors(T[:, :3, 3], T_true[:, :3, 3]))


def _errors(estimate: Floats, truth: Floats) -> tuple[float, float, float]:
    """Compute RMSE, MAE and R² of (B, 3)."""
    residual = estimate - truth
    variation = np.square(truth - truth.mean(0)).sum(0)  # (3,)
    unexplained = np.square(residual).sum(0)
    # R² is undefined where the true values do not vary, for example for a single pair.
    r2 = float(np.mean(1 - unexplained / variation)) if (variation > 0).all() else float("nan")
    return float(np.sqrt(np.mean(residual**2))), float(np.abs(residual).mean()), r2
