"""Rotations agree with those of scipy."""

import subprocess
import sys

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from wsdesc.core.rotations import nearest_rotation, rotation_angle, rotation_matrix

VECTORS = np.concatenate(
    [np.random.default_rng(0).normal(size=(50, 3)), np.zeros((1, 3)), [[1e-9, 0, 0]], [[0, np.pi, 0]]]
)


def test_vectors_to_matrices_and_angles() -> None:
    matrices = rotation_matrix(VECTORS)
    np.testing.assert_allclose(matrices, Rotation.from_rotvec(VECTORS).as_matrix(), atol=1e-14)
    np.testing.assert_allclose(rotation_matrix(VECTORS[3]), matrices[3], atol=1e-15)
    angles = [rotation_angle(R) for R in matrices]
    np.testing.assert_allclose(angles, Rotation.from_rotvec(VECTORS).magnitude(), atol=1e-14)


@pytest.mark.parametrize("error", [0.0, 1e-12, 1e-3])
def test_nearest_rotation(error: float) -> None:
    noise = np.random.default_rng(1).normal(size=(3, 3))
    for R in rotation_matrix(VECTORS):
        nearest = nearest_rotation(R + error * noise)
        np.testing.assert_allclose(nearest @ nearest.T, np.eye(3), atol=1e-14)
        assert np.linalg.det(nearest) > 0
        assert np.abs(nearest - R).max() <= 3 * error + 1e-14
    assert np.linalg.det(nearest_rotation(np.diag([1.0, 1.0, -1.0]))) > 0


@pytest.mark.slow
def test_a_registration_does_not_import_scipy_spatial() -> None:
    code = "import wsdesc.registration.pipeline, sys; print('scipy.spatial' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"
