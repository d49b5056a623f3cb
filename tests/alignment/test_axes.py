"""Axes of a built place."""

from __future__ import annotations

import numpy as np
from scipy.spatial.transform import Rotation

from wsdesc.alignment.axes import find_axes


def _along_axes(rng: np.random.Generator, R: np.ndarray, count: int, noise: float = 0.05) -> np.ndarray:
    normals = R[rng.choice(3, count, p=[0.2, 0.3, 0.5])] * rng.choice([-1, 1], (count, 1))
    normals = normals + noise * rng.normal(size=(count, 3))
    return normals / np.linalg.norm(normals, axis=1, keepdims=True)


def test_axes_are_those_of_the_walls_in_any_pose():
    rng = np.random.default_rng(0)
    for seed in range(5):
        R = Rotation.random(random_state=seed).as_matrix()
        axes = find_axes(_along_axes(rng, R, 800))
        assert axes is not None
        assert np.allclose(axes @ axes.T, np.eye(3), atol=1e-9)
        assert np.linalg.det(axes) > 0
        assert np.allclose(np.abs(axes @ R.T).max(axis=1), 1, atol=1e-4)  # the same directions in any order


def test_clutter_does_not_move_the_axes():
    rng = np.random.default_rng(1)
    clutter = rng.normal(size=(300, 3))
    clutter /= np.linalg.norm(clutter, axis=1, keepdims=True)
    axes = find_axes(np.concatenate([clutter, _along_axes(rng, np.eye(3), 700)]))
    assert axes is not None
    assert (np.abs(axes).max(axis=1) > np.cos(np.radians(1.5))).all()


def test_no_axes_without_three_perpendicular_directions():
    rng = np.random.default_rng(2)
    ball = rng.normal(size=(1000, 3))
    assert find_axes(ball / np.linalg.norm(ball, axis=1, keepdims=True)) is None
    assert find_axes(np.tile([0.0, 0.0, 1.0], (500, 1))) is None  # one plane
    assert find_axes(np.zeros((50, 3))) is None
    assert find_axes(np.zeros((0, 3))) is None
