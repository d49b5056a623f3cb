"""The weighted affine fit: exactness, gradients, and points that determine no map."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation
from torch import Tensor

from seeded import random
from wsdesc.alignment import fit_affine
from wsdesc.core.errors import InputError


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10_000), st.sampled_from([0.0, 10.0, 5e6]), st.sampled_from([1e-3, 1.0, 1e3]))
def test_fit_recovers_an_affine_map(seed: int, offset: float, size: float) -> None:
    """Large offsets and other units do not matter."""
    source = size * random(12, 3, seed=seed) + offset
    A, t = random(3, 3, seed=seed + 1), random(3, seed=seed + 2)
    fit = fit_affine(source, source @ A.T + t, random(12, seed=seed + 3))
    lost = 1e-9 * (1 + offset / size)  # what float64 coordinates that large leave of the shape
    assert fit.well_posed
    torch.testing.assert_close(fit.A_target_source, A, rtol=0, atol=lost)
    torch.testing.assert_close(
        source @ fit.A_target_source.T + fit.t_target_source, source @ A.T + t, rtol=1e-9, atol=1e-9
    )


def test_equals_weighted_least_squares() -> None:
    source, target, weights = random(30, 3), random(30, 3, seed=1), random(30, seed=2).abs()
    fit = fit_affine(source, target, weights)
    homogeneous = np.hstack([source.numpy(), np.ones((30, 1))]) * weights.numpy()[:, None]
    expected = np.linalg.lstsq(homogeneous, (target * weights[:, None]).numpy(), rcond=None)[0].T
    np.testing.assert_allclose(fit.A_target_source, expected[:, :3], atol=1e-10)
    np.testing.assert_allclose(fit.t_target_source, expected[:, 3], atol=1e-10)


def test_weights_multiply_residuals() -> None:
    """A weight of 2 equals four copies; a common factor has no effect."""
    source, target = random(8, 3), random(8, 3, seed=1)
    weights = torch.ones(8, dtype=torch.float64)
    weights[0] = 2
    copies = torch.tensor([0, 0, 0, *range(8)])
    a, b = fit_affine(source, target, 1e-200 * weights), fit_affine(source[copies], target[copies])
    torch.testing.assert_close(a.A_target_source, b.A_target_source)
    torch.testing.assert_close(a.t_target_source, b.t_target_source)


def test_batches() -> None:
    source, target, weights = random(2, 4, 9, 3), random(2, 4, 9, 3, seed=1), random(2, 4, 9, seed=2)
    whole = fit_affine(source, target, weights)
    assert whole.well_posed.shape == (2, 4)
    part = fit_affine(source[1, 2], target[1, 2], weights[1, 2])
    torch.testing.assert_close(whole.A_target_source[1, 2], part.A_target_source)
    torch.testing.assert_close(whole.t_target_source[1, 2], part.t_target_source)


def test_gradient_against_finite_differences() -> None:
    inputs = (random(7, 3), random(7, 3, seed=1), random(7, seed=2).abs() + 0.2)
    for x in inputs:
        x.requires_grad_()
    assert torch.autograd.gradcheck(lambda *x: fit_affine(*x)[:2], inputs)


def flat(case: str, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Source points, and weights, that do not determine an affine map."""
    turn = torch.from_numpy(Rotation.random(random_state=3).as_matrix())
    source, weights = random(20, 3), torch.ones(20, dtype=torch.float64)
    if case == "coplanar":
        source[:, 2] = 0
    elif case == "collinear":
        source[:, 1:] = 0
    elif case == "coincident":
        source[:] = source[:1]
    elif case == "three":
        source, weights = source[:3], weights[:3]
    elif case == "none":
        source, weights = source[:0], weights[:0]
    elif case == "three weights":
        weights[3:] = 0
    elif case == "no weight":
        weights[:] = 0
    return (source @ turn.T + 2).to(dtype), weights.to(dtype)


CASES = ["coplanar", "collinear", "coincident", "three", "none", "three weights", "no weight"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("case", CASES)
def test_ill_posed_is_flagged_and_finite(case: str, dtype: torch.dtype) -> None:
    source, weights = flat(case, dtype)
    inputs = [x.clone().requires_grad_() for x in (source, 2 * source + 1, weights)]
    fit = fit_affine(*inputs)
    assert not fit.well_posed
    assert fit.A_target_source.isfinite().all()
    assert fit.t_target_source.isfinite().all()
    loss = fit.A_target_source.square().sum() + fit.t_target_source.square().sum()
    for gradient in torch.autograd.grad(loss, inputs, allow_unused=True):
        assert gradient is None or gradient.isfinite().all()


def test_flat_points_give_the_smallest_map() -> None:
    """The map is exact within the plane and zero across it, as that of the pseudo-inverse."""
    source, _ = flat("coplanar", torch.float64)
    A = random(3, 3, seed=5)
    fit = fit_affine(source, source @ A.T)
    centred = source - source.mean(0)
    smallest = A @ torch.linalg.pinv(centred, rtol=1e-10) @ centred
    torch.testing.assert_close(fit.A_target_source, smallest, rtol=1e-4, atol=1e-4)


def test_a_thin_slab_is_still_determined() -> None:
    source = random(50, 3)
    source[:, 2] *= 1e-3
    A = random(3, 3, seed=6)
    fit = fit_affine(source, source @ A.T)
    assert fit.well_posed
    torch.testing.assert_close(fit.A_target_source, A, rtol=0, atol=1e-8)


def test_nan_raises_no_error() -> None:
    """A training step with NaN is skipped later, by its loss."""
    source = random(9, 3)
    source[0, 0] = torch.nan
    fit = fit_affine(source, random(9, 3, seed=1))
    assert not fit.well_posed
    assert fit.A_target_source.isnan().any()


def test_unmatched_points_are_rejected() -> None:
    with pytest.raises(InputError, match=r"\(4, 3\) and \(5, 3\)"):
        fit_affine(torch.zeros(4, 3), torch.zeros(5, 3))
