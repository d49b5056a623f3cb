"""Soft matches: the value of the nearest neighbour, the gradient of the softmax."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from wsdesc.matching import descriptor_distances, nearest, soft_nearest


def example(k: int = 7, l: int = 9, c: int = 5) -> tuple[Tensor, Tensor, Tensor]:
    g = torch.Generator().manual_seed(1)
    features = [torch.randn(n, c, generator=g, dtype=torch.float64).requires_grad_() for n in (k, l)]
    return *features, torch.randn(l, 3, generator=g, dtype=torch.float64)


@pytest.mark.parametrize("temperature", [0.1, 1.0, 10.0])
def test_the_value_is_the_nearest_neighbour(temperature: float) -> None:
    f, h, points = example()
    matches = soft_nearest(f, h, points, temperature)
    index, _ = nearest(f, h)
    assert torch.equal(matches.nearest, index)
    assert torch.equal(matches.points, points[index])
    share = torch.softmax(-torch.cdist(f, h) / temperature, 1)
    torch.testing.assert_close(matches.w_f, share.amax(1))


@pytest.mark.parametrize("temperature", [0.3, 1.0])
def test_gradient_is_that_of_the_softmax(temperature: float) -> None:
    f, h, points = example()
    points.requires_grad_()
    upstream = torch.randn(7, 3, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    inputs = (f, h, points)
    through = torch.autograd.grad((soft_nearest(f, h, points, temperature).points * upstream).sum(), inputs)
    distances = (f[:, None] - h[None]).square().sum(-1).sqrt()
    mean = torch.softmax(-distances / temperature, 1) @ points
    pure = torch.autograd.grad((mean * upstream).sum(), inputs)
    for a, b in zip(through, pure, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-14)
        assert a.abs().max() > 1e-3


def test_softmax_part_against_finite_differences() -> None:
    f, h, points = example(4, 5, 3)

    def soft(f: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        share = torch.softmax(-descriptor_distances(f, h), 1)
        return share @ points, soft_nearest(f, h, points).w_f

    assert torch.autograd.gradcheck(soft, (f, h))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equal_descriptors_have_finite_gradients(dtype: torch.dtype) -> None:
    f = torch.ones(6, 4, dtype=dtype, requires_grad=True)
    points = torch.arange(18, dtype=dtype).reshape(6, 3)
    matches = soft_nearest(f, f, points)
    assert matches.nearest.tolist() == [0] * 6
    torch.testing.assert_close(matches.w_f, torch.full((6,), 1 / 6, dtype=dtype))
    (gradient,) = torch.autograd.grad(matches.points.sum() + matches.w_f.sum(), f)
    assert gradient.isfinite().all()


def test_half_precision_descriptors() -> None:
    f, h, points = (x.detach() for x in example())
    matches = soft_nearest(f.bfloat16(), h.bfloat16(), points.float())
    assert matches.w_f.dtype == matches.points.dtype == torch.float32
