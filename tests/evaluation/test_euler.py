"""Euler errors agree with closed forms."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from wsdesc.core.errors import InputError
from wsdesc.evaluation.euler import euler_errors


def pose(angles: tuple[float, float, float], shift: tuple[float, float, float]) -> np.ndarray:
    """Build Rx Ry Rz from angles given as z, y, x."""
    T = np.eye(4)
    z, y, x = (Rotation.from_euler(axis, a, degrees=True) for axis, a in zip("zyx", angles, strict=True))
    T[:3, :3] = (x * y * z).as_matrix()
    T[:3, 3] = shift
    return T


def test_closed_form() -> None:
    truth = np.stack([pose((10, 20, 30), (0, 0, 0)), pose((20, 40, 40), (1, 1, 1))])
    guess = np.stack([pose((13, 20, 30), (0, 0, 0)), pose((20, 40, 40), (1, 1, 1.6))])
    errors = euler_errors(guess, truth)
    assert errors.rotation_rmse == pytest.approx(np.sqrt(9 / 6))
    assert errors.rotation_mae == pytest.approx(0.5)
    # 9 of 50 remain for z; y and x are exact.
    assert errors.rotation_r2 == pytest.approx(1 - 9 / 50 / 3)
    assert errors.translation_rmse == pytest.approx(np.sqrt(0.36 / 6))
    assert errors.translation_mae == pytest.approx(0.1)
    assert errors.translation_r2 == pytest.approx(1 - 0.36 / 0.5 / 3)


def test_single_pair_has_no_r2() -> None:
    T = np.eye(4)[None]
    errors = euler_errors(T, T)
    assert errors.rotation_rmse == 0
    assert np.isnan(errors.rotation_r2)


def test_other_shapes_are_refused() -> None:
    with pytest.raises(InputError, match=r"\(B, 4, 4\)"):
        euler_errors(np.eye(4), np.eye(4))
