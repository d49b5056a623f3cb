"""Layers of the network in triton kernels, compared with those of torch."""

from __future__ import annotations

from importlib import import_module

import pytest
import torch

from wsdesc.descriptor.network import DescriptorNetwork

pytestmark = pytest.mark.gpu


def voxel_grids(count: int, side: int = 16) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    values = torch.rand(count, side, side, side, generator=generator)
    return (values * (torch.rand(values.shape, generator=generator) > 0.7)).cuda()


@pytest.mark.parametrize(("dtype", "limit"), [(torch.float16, 6e-3), (torch.bfloat16, 5e-2)])
@pytest.mark.parametrize("layers", ["paper", "compact"])
@torch.inference_mode()
def test_fused_layers_equal_torch(layers: str, dtype: torch.dtype, limit: float) -> None:
    fused = import_module("wsdesc.descriptor.fused_layers")
    torch.manual_seed(0)
    network = DescriptorNetwork(1.0, 32, 16, layers).cuda().eval()
    voxels = voxel_grids(130)
    voxels[0] = 0  # an isolated keypoint
    assert fused.fits(network, 16)
    described = fused.describe(network, voxels, dtype)
    assert described.dtype == torch.float32
    assert float((described - network(voxels)).norm(dim=1).max()) < limit
    assert torch.equal(described, fused.describe(network, voxels, dtype))
    alone = fused.describe(network, voxels[7:50], dtype)  # libraries may add up smaller batches differently
    assert float((described[7:50] - alone).norm(dim=1).max()) < limit / 2
    assert fused.describe(network, voxels[:0], dtype).shape == (0, 32)


@torch.inference_mode()
def test_changed_weights_are_used() -> None:
    fused = import_module("wsdesc.descriptor.fused_layers")
    network, voxels = DescriptorNetwork().cuda().eval(), voxel_grids(3)
    before = fused.describe(network, voxels, torch.float16)
    network.load_state_dict({name: w.flip(0) for name, w in network.state_dict().items()})
    after = fused.describe(network, voxels, torch.float16)
    assert float((before - after).norm(dim=1).min()) > 0.1
    assert float((after - network(voxels)).norm(dim=1).max()) < 6e-3


@pytest.mark.parametrize(("width", "side"), [(0.4, 16), (1.0, 12), (4.0, 16)])
def test_other_networks_are_left_to_torch(width: float, side: int) -> None:
    fused = import_module("wsdesc.descriptor.fused_layers")
    assert not fused.fits(DescriptorNetwork(width, 32, side), side)
