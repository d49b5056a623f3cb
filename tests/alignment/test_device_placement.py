"""The CUDA backends compute on the device of the scans.

Tensors of the device "meta" have shapes but no values and cannot be mixed with CPU tensors, so that these
tests need no GPU.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from wsdesc.alignment.consensus import cuda
from wsdesc.alignment.information import compute_information
from wsdesc.alignment.refine import refine
from wsdesc.alignment.surface import CudaSurface
from wsdesc.alignment.verify import verify

POSES = np.stack([np.eye(4)] * 4)


@pytest.fixture(autouse=True)
def values(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace values that are copied to the CPU by random numbers, and conditions by True."""
    to_cpu, to_bool, tolist = Tensor.cpu, Tensor.__bool__, Tensor.tolist
    generator = torch.Generator().manual_seed(0)

    def cpu(tensor: Tensor) -> Tensor:
        if not tensor.is_meta:
            return to_cpu(tensor)
        return torch.rand(tensor.shape, generator=generator, dtype=torch.float64).to(tensor.dtype)

    monkeypatch.setattr(Tensor, "cpu", cpu)
    monkeypatch.setattr(Tensor, "__bool__", lambda t: True if t.is_meta else to_bool(t))
    monkeypatch.setattr(Tensor, "tolist", lambda t: tolist(cpu(t)))


def surface(count: int) -> CudaSurface:
    return CudaSurface.of(torch.empty(count, 3, device="meta"))


def empty(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.empty(*shape, device="meta", dtype=dtype)


def test_mixed_devices_raise_an_error() -> None:
    with pytest.raises(RuntimeError, match="device"):
        empty(3) + torch.ones(3)


def test_surfaces_scores_and_poses_stay_on_the_device() -> None:
    source, target = surface(5000), surface(2000)
    assert all(
        getattr(source, name).is_meta
        for name in ("points", "normals", "curvature", "sample", "direction_weights")
    )
    assert len(verify(source, target, POSES, 0.05)) == 4
    assert len(compute_information(source, target, POSES, 0.05)) == 4
    assert len(refine(source, target, POSES, 0.025)) == 4


def test_consensus_stays_on_the_device() -> None:
    p, q, w = empty(700, 3), empty(700, 3), empty(700)
    edge, partners = empty(700, 700, dtype=torch.bool), empty(700, 64, dtype=torch.int64)
    valid = empty(700, 64, dtype=torch.bool)
    assert cuda._cliques(edge, empty(700, 700), partners, valid).shape == (700, 64)
    assert cuda._votes(empty(700, 4, 4), p, q, w, 0.05).is_meta
    for hypothesis in cuda._best_distinct(empty(48, 4, 4), p, q, w, 0.05, 12, None):
        assert hypothesis.T_target_source.device.type == "cpu"
        assert hypothesis.inliers.device.type == "cpu"
