"""Fourier transforms on the sphere and on rotations: exactness, and equivariance of the correlations."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.spatial.transform import Rotation
from torch import Tensor

from wsdesc.core.geometry import Floats
from wsdesc.peers import so3
from wsdesc.peers.so3 import RotationCorrelation, SphereCorrelation, spectrum, synthesis

Q = Rotation.random(random_state=1)


def rotated(X: Tensor, Q: Rotation) -> Tensor:
    """Multiply spectra (M, N, L, B, C) by D(Q): the spectra of the rotated functions."""
    angles = (np.array([angle]) for angle in Q.as_euler("ZYZ"))
    D = torch.from_numpy(so3._kernel_table(X.shape[2], *angles)[0]).to(X.dtype)  # (L, M, M)
    return torch.einsum("lkm,mnlbc->knlbc", D, X)


def relative_error(x: Tensor, y: Tensor) -> float:
    return float((x - y).norm() / y.norm())


def band_limited(points: Floats, degrees: int = 10) -> Floats:
    """Evaluate a fixed function of few degrees at points (…, 3) of the unit sphere."""
    rng = np.random.default_rng(0)
    beta, alpha = np.arccos(np.clip(points[..., 2], -1, 1)), np.arctan2(points[..., 1], points[..., 0])
    total = np.zeros(points.shape[:-1])
    for l in range(degrees):
        m = np.arange(-l, l + 1)
        X = (rng.normal(size=2 * l + 1) + 1j * rng.normal(size=2 * l + 1)) / (1 + l) ** 2
        total += np.real((so3.wigner_d(l, beta)[..., l] * np.exp(1j * alpha[..., None] * m) * X).sum(-1))
    return total


def sphere_points(b: int) -> Floats:
    beta, alpha = np.meshgrid(so3.betas(b), np.pi * np.arange(2 * b) / b, indexing="ij")
    return np.stack([np.sin(beta) * np.cos(alpha), np.sin(beta) * np.sin(alpha), np.cos(beta)], -1)


def test_wigner_matrices_are_representations() -> None:
    first, second = Rotation.random(random_state=2), Rotation.random(random_state=3)

    def D(rotation: Rotation, l: int) -> np.ndarray:
        return so3.wigner_D(l, *(np.array([angle]) for angle in rotation.as_euler("ZYZ")))[0]

    for l in (0, 1, 5, 20):
        np.testing.assert_allclose(D(first * second, l), D(first, l) @ D(second, l), atol=1e-10)
    beta = np.linspace(0, np.pi, 7)
    np.testing.assert_allclose(so3.wigner_d(1, beta)[:, 1, 1], np.cos(beta), atol=1e-12)


@pytest.mark.parametrize("b", [1, 4, 24])
def test_quadrature_weights_sum_to_one(b: int) -> None:
    assert (2 * b) ** 2 * so3.quadrature(b).sum() == pytest.approx(1)


def test_a_constant_has_degree_zero_only() -> None:
    X = spectrum(torch.ones(1, 1, 16, 16, 16), so3._analysis_table(8, 8))
    assert X[7, 0, 0].item() == pytest.approx(1, abs=1e-5)
    X[7, 0, 0] = 0
    assert X.abs().max() < 1e-5


def test_transforms_of_band_limited_functions_are_inverse() -> None:
    analysis, back = so3._analysis_table(8, 8), so3._synthesis_table(8)
    noise = torch.randn(2, 3, 16, 16, 16, generator=torch.Generator().manual_seed(0))
    limited = synthesis(spectrum(noise, analysis), back)
    torch.testing.assert_close(synthesis(spectrum(limited, analysis), back), limited, atol=1e-5, rtol=0)


@torch.no_grad()
def test_correlations_are_equivariant() -> None:
    torch.manual_seed(0)
    sphere, rotation = SphereCorrelation(1, 6, 24, 16), RotationCorrelation(6, 5, 16, 8)
    grid = sphere_points(24)
    x, x_rotated = (
        torch.from_numpy(band_limited(points)).float()[None, None]
        for points in (grid, grid @ Q.as_matrix())  # f(Q⁻¹ x)
    )
    X = sphere.spectrum(x)
    assert relative_error(sphere.spectrum(x_rotated), rotated(X, Q)) < 1e-3
    z, z_rotated = synthesis(X, sphere.back), synthesis(rotated(X, Q), sphere.back)
    assert relative_error(rotation.spectrum(z_rotated), rotated(rotation.spectrum(z), Q)) < 1e-3
    after, expected = rotation.spectrum(z_rotated.relu()), rotated(rotation.spectrum(z.relu()), Q)
    assert relative_error(after, expected) < 0.05
    assert relative_error(after, rotation.spectrum(z.relu())) > 0.2  # the rotation matters


def test_fast_correlation_equals_the_definition() -> None:
    """Z^l_mk = Σ X^l_mn conj(Y^l_kn) over inputs and all n, from full spectra."""
    torch.manual_seed(1)
    layer = RotationCorrelation(2, 3, 4, 3)
    x = torch.randn(2, 2, 8, 8, 8)
    waves = torch.fft.fft2(x.double())
    orders = torch.arange(-2, 3)
    table = torch.from_numpy(so3.quadrature(4)[:, None, None, None] * so3._small_table(4, 3))
    X = torch.einsum("jlmn,bcjmn->bclmn", table.to(waves.dtype), waves[..., orders, :][..., orders])
    D = torch.from_numpy(so3._kernel_table(3, *so3.near_identity(turns=True)))
    conj_Y = layer.scale * torch.einsum("iop,plkn->iolkn", layer.kernel.to(D.dtype), D)
    Z = torch.einsum("bilmn,iolkn->mklbo", X, conj_Y)[:, 2:]
    torch.testing.assert_close(layer.spectrum(x), Z.to(torch.complex64), atol=1e-5, rtol=1e-4)
