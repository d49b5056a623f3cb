"""Similarity transformations: a rotation, a translation and a factor of lengths."""

from __future__ import annotations

import numpy as np
import pytest

from poses import random_pose
from wsdesc.core.errors import InputError
from wsdesc.core.geometry import inverse
from wsdesc.core.similarity import (
    check_similarity,
    factor_of,
    inverse_similarity,
    scaled_first,
    split_similarity,
)


@pytest.mark.parametrize("factor", [1e-6, 0.3048, 2.5, 1000.0])
def test_parts_and_inverse(factor):
    T = random_pose(0, 10.0)
    S = check_similarity(scaled_first(T, factor))
    rigid, actual_factor = split_similarity(S)
    assert actual_factor == pytest.approx(factor, rel=1e-12)
    np.testing.assert_allclose(rigid, T, atol=1e-12)
    np.testing.assert_allclose(inverse_similarity(S) @ S, np.eye(4), atol=1e-9)
    assert factor_of(inverse_similarity(S)) == pytest.approx(1 / factor, rel=1e-12)


def test_rigid_poses_keep_their_bits():
    T = random_pose(1, 10.0)
    assert factor_of(T) == 1
    np.testing.assert_array_equal(split_similarity(T)[0], T)
    np.testing.assert_array_equal(inverse_similarity(T), inverse(T))


def test_matrices_with_few_digits_are_rigid():
    assert factor_of(np.round(random_pose(2, 10.0), 4)) == 1


@pytest.mark.parametrize(
    "matrix",
    [
        np.diag([1.0, 1.0, 2.0, 1.0]),  # stretched along one axis
        np.diag([-2.0, 2.0, 2.0, 1.0]),  # mirrored
        np.diag([0.0, 0.0, 0.0, 1.0]),
        np.diag([2.0, 2.0, 2.0, 2.0]),
        np.diag([2.0, 2.0, np.nan, 1.0]),
        np.eye(3),
        "text",
    ],
)
def test_other_matrices_are_refused(matrix):
    with pytest.raises(InputError, match="the pose"):
        check_similarity(matrix)
