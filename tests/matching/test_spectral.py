"""Spectral weights and the product of weights."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from seeded import rotation
from wsdesc.matching import (
    SoftMatches,
    compatibility,
    correspondence_weights,
    principal_eigenvector,
    spectral_weights,
)


def cloud(n: int, seed: int = 0) -> Tensor:
    return torch.rand(n, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_compatibility_by_hand() -> None:
    source = torch.tensor([[0.0, 0, 0], [1, 0, 0], [0, 2, 0]])
    target = torch.tensor([[0.0, 0, 0], [1.05, 0, 0], [0, 3, 0]])
    expected = torch.zeros(3, 3)
    expected[0, 1] = expected[1, 0] = 0.75  # 1 − (0.05/0.1)²; all others are stretched by more than 0.1
    torch.testing.assert_close(compatibility(source, target, 0.1), expected, rtol=1e-5, atol=1e-6)


def test_rigid_correspondences_are_compatible() -> None:
    source = cloud(20)
    target = source @ rotation(1).T + 5.0
    expected = torch.ones(20, 20, dtype=torch.float64) - torch.eye(20, dtype=torch.float64)
    torch.testing.assert_close(compatibility(source, target), expected)
    torch.testing.assert_close(
        spectral_weights(source, target), torch.full((20,), 20**-0.5, dtype=torch.float64)
    )


def test_power_iteration_equals_the_eigenvector() -> None:
    source = cloud(40)
    target = source + 0.05 * cloud(40, 1)
    target[30:] = 3 * cloud(10, 2)
    matrix = compatibility(source, target)
    values, vectors = np.linalg.eigh(matrix.numpy())
    assert values[-1] > 2 * abs(values[:-1]).max()
    leading = vectors[:, -1] * np.sign(vectors[:, -1].sum())
    weights = spectral_weights(source, target)
    np.testing.assert_allclose(weights.numpy(), leading, atol=1e-3)
    assert weights[:30].min() > 5 * weights[30:].max()  # outliers have small weights
    assert torch.linalg.vector_norm(weights).item() == pytest.approx(1)


def test_lengths_scale_with_sigma() -> None:
    source, target = cloud(15), cloud(15) + 0.1 * cloud(15, 3)
    torch.testing.assert_close(
        spectral_weights(source, target, sigma_d=0.1),
        spectral_weights(1000 * source, 1000 * target, sigma_d=100.0),
    )


def test_invariant_to_rigid_transformations_and_order() -> None:
    source = cloud(25)
    target = source + 0.1 * cloud(25, 4)
    weights = spectral_weights(source, target)
    torch.testing.assert_close(spectral_weights(source @ rotation(2).T - 3, target @ rotation(3).T), weights)
    order = torch.randperm(25, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(spectral_weights(source[order], target[order]), weights[order])


def test_gradient_against_finite_differences() -> None:
    source, target = cloud(6).requires_grad_(), cloud(6, 1).requires_grad_()
    assert torch.autograd.gradcheck(
        lambda s, t: spectral_weights(s, t, sigma_d=2.0, iterations=4), (source, target)
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("case", ["incompatible", "one", "coincident"])
def test_degenerate_sets_stay_finite(dtype: torch.dtype, case: str) -> None:
    source = {"incompatible": cloud(8), "one": cloud(1), "coincident": torch.ones(8, 3)}[case].to(dtype)
    target = (source * 50).requires_grad_() if case == "incompatible" else source.clone().requires_grad_()
    weights = spectral_weights(source, target)
    (gradient,) = torch.autograd.grad(weights.sum(), target)
    assert weights.isfinite().all()
    assert gradient.isfinite().all()
    if case != "coincident":
        assert (weights == 0).all()
        assert (gradient == 0).all()


def test_zero_matrix() -> None:
    matrix = torch.zeros(5, 5, requires_grad=True)
    vector = principal_eigenvector(matrix)
    assert (vector == 0).all()
    assert torch.autograd.grad(vector.sum(), matrix)[0].isfinite().all()


def test_weights_without_one_factor() -> None:
    source = cloud(12)
    matches = SoftMatches(source + 0.1 * cloud(12, 1), torch.rand(12, dtype=torch.float64), torch.arange(12))
    w_sm = spectral_weights(source, matches.points, sigma_d=0.2)

    def weights(f: bool, sm: bool) -> Tensor:
        return correspondence_weights(source, matches, use_w_f=f, use_w_sm=sm, sigma_d=0.2)

    torch.testing.assert_close(weights(True, True), matches.w_f * w_sm)
    torch.testing.assert_close(weights(True, False), matches.w_f)
    torch.testing.assert_close(weights(False, True), w_sm)
    assert torch.equal(weights(False, False), torch.ones(12, dtype=torch.float64))
