"""Eigenvalues of symmetric matrices: against LAPACK, and where eigenvalues are equal or zero."""

import pytest
import torch

from wsdesc.core.eigen import symmetric_eigen


def check(matrices):
    values, vectors = symmetric_eigen(matrices)
    scale = matrices.abs().amax().clamp(min=1e-300)
    expected = torch.linalg.eigvalsh(matrices)
    torch.testing.assert_close(values / scale, expected / scale, atol=1e-13, rtol=0)
    identity = torch.eye(3).to(matrices).expand_as(matrices)
    torch.testing.assert_close(vectors.mT @ vectors, identity, atol=1e-12, rtol=0)
    again = vectors @ torch.diag_embed(values) @ vectors.mT
    torch.testing.assert_close(again / scale, matrices / scale, atol=1e-12, rtol=0)


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e9])
def test_random_covariances(scale):
    points = torch.randn(500, 20, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    flat = points * torch.tensor([1.0, 0.1, 1e-4])
    for cloud in (points, flat):
        check(scale * cloud.mT @ cloud)


def test_equal_and_zero_eigenvalues():
    line = torch.tensor([[1.0, 2.0, 3.0]], dtype=torch.float64)
    check(torch.stack([torch.zeros(3, 3), torch.eye(3), torch.diag(torch.tensor([2.0, 2.0, 1.0]))]).double())
    check((line.mT @ line)[None])


def test_no_matrices():
    values, vectors = symmetric_eigen(torch.empty(0, 3, 3))
    assert values.shape == (0, 3)
    assert vectors.shape == (0, 3, 3)
