"""Instance normalization on CUDA: the triton kernels against torch in float64."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import instance_norm


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("shape", "dtype", "tolerance"),
    [
        ((3, 16, 5), torch.float32, 1e-4),
        ((64, 32, 16), torch.float32, 5e-3),  # a number at 0 may fall on the other side of ReLU
        ((40, 128, 8), torch.float32, 1e-4),
        ((64, 32, 16), torch.bfloat16, 1e-2),
    ],
)
def test_values_and_gradients_equal_torch(
    shape: tuple[int, int, int], dtype: torch.dtype, tolerance: float
) -> None:
    from wsdesc.descriptor import instance_norm as kernels

    count, channels, side = shape
    generator = torch.Generator("cuda").manual_seed(0)
    x = 1 + 2 * torch.randn(count, channels, side, side, side, device="cuda", generator=generator)
    x = x.to(dtype).to(memory_format=torch.channels_last_3d).requires_grad_()
    y = kernels.instance_norm_relu(x, 1e-5)
    upstream = torch.randn_like(y)
    y.backward(upstream)
    plain = x.detach().double().requires_grad_()
    expected = instance_norm(plain, eps=1e-5).relu()
    expected.backward(upstream.double())
    assert x.grad is not None
    assert plain.grad is not None
    for ours, reference in ((y.detach(), expected.detach()), (x.grad, plain.grad)):
        assert float((ours - reference).norm() / reference.norm()) < tolerance
    in_place = kernels.instance_norm_relu(x.detach().clone(), 1e-5)
    assert torch.equal(in_place, y.detach())
