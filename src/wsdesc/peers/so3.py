"""Fourier transforms on the sphere and on rotations, and correlations between them (Cohen et al. 2018).

A function of bandwidth b is sampled at β_j = π(2j + 1)/4b and α_i = γ_i = 2πi/2b, with i, j < 2b. Its
spectrum has the degrees l < L and the orders |m|, |n| ≤ l. Spectra are dense tensors, zero beyond the degree.
Their axes are m = 1 − L … L − 1 and, because the functions are real, n = 0 … L − 1.

    sphere     X^l_m  = Σ_j 2b w_j d^l_m0(β_j) Σ_i x_ji e^(−imα_i)
    rotations  X^l_mn = Σ_j w_j d^l_mn(β_j) Σ_ik x_jik e^(−i(mα_i + nγ_k))
    back       z_jik  = Re Σ_l (2l + 1) Σ_mn d^l_mn(β_j) Z^l_mn e^(i(mα_i + nγ_k))

d^l is Wigner's small matrix. A rotation Q of the function multiplies its spectrum by D^l(Q) from the left.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from wsdesc.core.geometry import Floats


@cache
def _generator(l: int) -> tuple[Floats, NDArray[np.complex128]]:
    """Diagonalise the generator of rotations about y: eigenvalues (2l + 1,) and eigenvectors in columns."""
    m = np.arange(-l, l)
    raising = np.diag(np.sqrt(l * (l + 1) - m * (m + 1)), -1)
    values, vectors = np.linalg.eigh(0.5j * (raising.T - raising))
    return values, vectors


def wigner_d(l: int, beta: Floats) -> Floats:
    """Compute Wigner's small matrices d^l(β) (…, 2l + 1, 2l + 1) of angles β (…)."""
    values, vectors = _generator(l)
    phases = np.exp(-1j * np.asarray(beta)[..., None] * values)
    return np.real((vectors * phases[..., None, :]) @ vectors.conj().T)


def wigner_D(l: int, alpha: Floats, beta: Floats, gamma: Floats) -> NDArray[np.complex128]:
    """Compute D^l_mn = e^(−imα) d^l_mn(β) e^(−inγ), (P, 2l + 1, 2l + 1), of P rotations z(α) y(β) z(γ)."""
    m = np.arange(-l, l + 1)
    left, right = np.exp(-1j * np.outer(alpha, m)), np.exp(-1j * np.outer(gamma, m))
    D: NDArray[np.complex128] = left[:, :, None] * wigner_d(l, beta) * right[:, None, :]
    return D


def betas(b: int) -> Floats:
    """Return the angles β_j (2b,) of the grid."""
    return np.pi * (2 * np.arange(2 * b) + 1) / (4 * b)


def quadrature(b: int) -> Floats:
    """Return the weights w_j (2b,) of the grid's rows; (2b)² Σ w_j = 1."""
    k = 2 * np.arange(b) + 1
    sums = (np.sin(np.outer(2 * np.arange(2 * b) + 1, k) * np.pi / (4 * b)) / k).sum(1)
    weights: Floats = 1 / (8 * b**2) * (2 / b) * np.sin(betas(b)) * sums
    return weights


def _small_table(b: int, degrees: int) -> Floats:
    """Tabulate d^l_mn(β_j) (2b, L, 2L − 1, 2L − 1), zero beyond the degree."""
    table = np.zeros((2 * b, degrees, 2 * degrees - 1, 2 * degrees - 1))
    for l in range(degrees):
        part = slice(degrees - 1 - l, degrees + l)
        table[:, l, part, part] = wigner_d(l, betas(b))
    return table


def _kernel_table(degrees: int, alpha: Floats, beta: Floats, gamma: Floats) -> NDArray[np.complex128]:
    """Tabulate D^l_mn (P, L, 2L − 1, 2L − 1) of P rotations, zero beyond the degree."""
    table = np.zeros((len(alpha), degrees, 2 * degrees - 1, 2 * degrees - 1), np.complex128)
    for l in range(degrees):
        part = slice(degrees - 1 - l, degrees + l)
        table[:, l, part, part] = wigner_D(l, alpha, beta, gamma)
    return table


def near_identity(turns: bool) -> tuple[Floats, Floats, Floats]:
    """Return α, β, γ (P,) of kernel points: three rings around the pole, 8 azimuths each.

    Args:
        turns: Each of them with 8 rotations about itself (P = 192) instead of one (P = 24).
    """
    ring = np.arange(8) * 2 * np.pi / 8
    gammas = ring if turns else np.zeros(1)
    beta, alpha, gamma = (
        a.ravel() for a in np.meshgrid(np.pi / 8 * np.arange(1, 4) / 3, ring, gammas, indexing="ij")
    )
    return alpha, beta, gamma - alpha if turns else gamma


def sphere_spectrum(x: Tensor, table: Tensor) -> Tensor:
    """Transform functions x (B, C, 2b, 2b) on the sphere: spectra (L, B, 2L − 1, C).

    Args:
        x: Rows are β, columns α.
        table: Weighted d^l_m0 (2b, L, 2L − 1) of `_small_table`.
    """
    orders = _orders(table.shape[1], x.device)
    waves = torch.fft.fft(x)[..., orders]  # (B, C, 2b, 2L − 1)
    return torch.einsum("jlm,bcjm->lbmc", table.to(waves.dtype), waves)


def spectrum(x: Tensor, table: Tensor) -> Tensor:
    """Transform functions x (B, C, 2b, 2b, 2b) of rotations, axes β, α, γ: spectra (2L − 1, L, L, B, C).

    Args:
        x: The functions.
        table: Weighted d^l_mn (2L − 1, L, L, 2b), in the order m, n, l, j.

    Returns:
        Axes m, n ≥ 0, l, B, C.
    """
    batch, channels = x.shape[:2]
    M, N, L, J = table.shape
    orders = _orders(L, x.device)
    waves = torch.fft.rfft2(x)[..., orders, :N]  # (B, C, J, M, N)
    columns = torch.view_as_real(waves.permute(3, 4, 2, 0, 1).contiguous())  # (M, N, J, B, C, 2)
    result = torch.bmm(table.view(M * N, L, J), columns.view(M * N, J, -1))
    return torch.view_as_complex(result.view(M, N, L, batch, channels, 2))


def synthesis(Z: Tensor, table: Tensor) -> Tensor:
    """Transform spectra back: functions (B, C, 2b, 2b, 2b) of rotations, axes β, α, γ.

    Args:
        Z: (2L − 1, L, L, B, C), axes m, n ≥ 0, l.
        table: (2l + 1) d^l_mn (2L − 1, L, 2b, L), in the order m, n, j, l.
    """
    M, N, J, L = table.shape
    columns = torch.view_as_real(Z.contiguous()).view(M * N, L, -1)
    rows = torch.bmm(table.view(M * N, J, L), columns).view(M, N, J, *Z.shape[3:], 2)
    waves = torch.view_as_complex(rows).permute(3, 4, 2, 0, 1)  # (B, C, J, M, N)
    padded = waves.new_zeros(*waves.shape[:3], J, J // 2 + 1)
    padded[..., _orders(L, Z.device), :N] = waves
    result: Tensor = torch.fft.irfft2(padded, s=(J, J), norm="forward")
    return result


def both_sides(X: Tensor) -> Tensor:
    """Complete spectra (M, N, L, B, C) of real functions by the orders n < 0: (M, 2N − 1, L, B, C)."""
    M, N = X.shape[:2]
    m = torch.arange(M, device=X.device) - M // 2
    sign = 1 - 2 * ((m[:, None] - torch.arange(1, N, device=X.device)) % 2)  # (−1)^(m − n)
    negative = (sign[..., None, None, None] * X[:, 1:].flip(0).conj()).flip(1)
    return torch.cat([negative, X], 1)


def _orders(degrees: int, device: torch.device) -> Tensor:
    """Return the indices of the orders 1 − L … L − 1 in a discrete Fourier transform."""
    return torch.arange(1 - degrees, degrees, device=device)


def _analysis_table(b: int, degrees: int) -> Tensor:
    """Tabulate w_j d^l_mn(β_j) for `spectrum`."""
    table = quadrature(b)[:, None, None, None] * _small_table(b, degrees)
    return torch.from_numpy(table[..., degrees - 1 :]).permute(2, 3, 1, 0).float().contiguous()


def _synthesis_table(b: int) -> Tensor:
    """Tabulate (2l + 1) d^l_mn(β_j), l < b, for `synthesis`."""
    table = (2 * np.arange(b) + 1)[:, None, None] * _small_table(b, b)
    return torch.from_numpy(table[..., b - 1 :]).permute(2, 3, 0, 1).float().contiguous()


class SphereCorrelation(nn.Module):
    """Correlate functions on the sphere with learned kernels: functions of rotations.

    Args:
        inputs: Channels of the input.
        outputs: Channels of the output.
        b_in: Bandwidth of the input.
        b_out: Bandwidth of the output.
    """

    analysis: Tensor
    basis: Tensor
    back: Tensor

    def __init__(self, inputs: int, outputs: int, b_in: int, b_out: int) -> None:
        super().__init__()
        table = 2 * b_in * quadrature(b_in)[:, None, None] * _small_table(b_in, b_out)[..., b_out - 1]
        basis = 2 * b_in * _kernel_table(b_out, *near_identity(turns=False))[..., b_out - 1]  # (P, L, M)
        self.register_buffer("analysis", torch.from_numpy(table).float(), persistent=False)
        self.register_buffer(
            "basis", torch.from_numpy(basis[..., b_out - 1 :]).to(torch.complex64), persistent=False
        )
        self.register_buffer("back", _synthesis_table(b_out), persistent=False)
        self.kernel = nn.Parameter(torch.empty(inputs, outputs, len(basis)).uniform_(-1, 1))
        self.bias = nn.Parameter(torch.zeros(outputs))
        self.scale = (len(basis) * inputs * b_out**4 / b_in**2) ** -0.5

    def spectrum(self, x: Tensor) -> Tensor:
        """Correlate x (B, C, 2b, 2b): spectra (2L − 1, L, L, B, C_out)."""
        X = sphere_spectrum(x, self.analysis)  # (L, B, M, C)
        Y = torch.einsum("iop,pln->lion", self.scale * self.kernel.to(self.basis.dtype), self.basis)
        return torch.einsum("lbmi,lion->mnlbo", X, Y)

    def forward(self, x: Tensor) -> Tensor:
        """Correlate x (B, C, 2b_in, 2b_in): (B, C_out, 2b_out, 2b_out, 2b_out)."""
        return synthesis(self.spectrum(x), self.back) + self.bias[:, None, None, None]


class RotationCorrelation(nn.Module):
    """Correlate functions of rotations with learned kernels; arguments as in `SphereCorrelation`."""

    analysis: Tensor
    basis: Tensor
    back: Tensor

    def __init__(self, inputs: int, outputs: int, b_in: int, b_out: int) -> None:
        super().__init__()
        basis = _kernel_table(b_out, *near_identity(turns=True))  # (P, L, K, N)
        self.register_buffer("analysis", _analysis_table(b_in, b_out), persistent=False)
        self.register_buffer(
            "basis", torch.from_numpy(basis[:, :, b_out - 1 :]).to(torch.complex64), persistent=False
        )
        self.register_buffer("back", _synthesis_table(b_out), persistent=False)
        self.kernel = nn.Parameter(torch.empty(inputs, outputs, len(basis)).uniform_(-1, 1))
        self.bias = nn.Parameter(torch.zeros(outputs))
        self.scale = (len(basis) * inputs * b_out**3 / b_in**3) ** -0.5

    def spectrum(self, x: Tensor) -> Tensor:
        """Correlate x (B, C, 2b, 2b, 2b): spectra (2L − 1, L, L, B, C_out)."""
        X = both_sides(spectrum(x, self.analysis))  # (M, 2L − 1, L, B, C)
        M, N, L, batch, channels = X.shape
        Y = torch.einsum("iop,plkn->lniko", self.scale * self.kernel.to(self.basis.dtype), self.basis)
        rows = X.permute(2, 3, 0, 1, 4).reshape(L, batch * M, N * channels)
        Z = torch.bmm(rows, Y.reshape(L, N * channels, -1)).view(L, batch, M, L, -1)
        return Z.permute(2, 3, 0, 1, 4)

    def forward(self, x: Tensor) -> Tensor:
        """Correlate x (B, C, 2b_in, 2b_in, 2b_in): (B, C_out, 2b_out, 2b_out, 2b_out)."""
        return synthesis(self.spectrum(x), self.back) + self.bias[:, None, None, None]
