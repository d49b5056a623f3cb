"""Everything that a GPU computes is made where the clouds are.

There is no GPU where tests run. Tensors of the device "meta" have shapes but no values, and refuse to be
mixed with others, too.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from wsdesc.alignment import consensus_cuda, refine_cuda
from wsdesc.alignment.observability_cuda import informations
from wsdesc.alignment.surface_cuda import DeviceSurface
from wsdesc.alignment.verify_cuda import agreements

POSES = np.stack([np.eye(4)] * 4)


@pytest.fixture(autouse=True)
def values(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is brought to the CPU becomes some numbers; what is asked for is the case."""
    fetch, ask, tolist = Tensor.cpu, Tensor.__bool__, Tensor.tolist
    some = torch.Generator().manual_seed(0)

    def cpu(tensor: Tensor) -> Tensor:
        if not tensor.is_meta:
            return fetch(tensor)
        return torch.rand(tensor.shape, generator=some, dtype=torch.float64).to(tensor.dtype)

    monkeypatch.setattr(Tensor, "cpu", cpu)
    monkeypatch.setattr(Tensor, "__bool__", lambda t: True if t.is_meta else ask(t))
    monkeypatch.setattr(Tensor, "tolist", lambda t: tolist(cpu(t)))


def surface(count: int) -> DeviceSurface:
    return DeviceSurface.of(torch.empty(count, 3, device="meta"))


def empty(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.empty(*shape, device="meta", dtype=dtype)


def test_mixed_devices_are_found() -> None:
    with pytest.raises(RuntimeError, match="device"):
        empty(3) + torch.ones(3)


def test_surfaces_and_poses() -> None:
    source, target = surface(5000), surface(2000)
    assert all(getattr(source, name).is_meta for name in ("points", "normals", "bend", "sample", "rarity"))
    assert len(agreements(source, target, POSES, 0.05)) == 4
    assert len(informations(source, target, POSES, 0.05)) == 4
    assert len(refine_cuda.refine_all(source, target, POSES, resolution=0.025)) == 4


def test_motions_of_matches() -> None:
    p, q, w = empty(700, 3), empty(700, 3), empty(700)
    edge, partners = empty(700, 700, dtype=torch.bool), empty(700, 64, dtype=torch.int64)
    there = empty(700, 64, dtype=torch.bool)
    assert consensus_cuda._cliques(edge, empty(700, 700), partners, there).shape == (700, 64)
    assert consensus_cuda._votes(empty(700, 4, 4), p, q, w, 0.05).is_meta
    for hypothesis in consensus_cuda._best_distinct(empty(48, 4, 4), p, q, w, 0.05, 12):
        assert hypothesis.T_target_source.device.type == "cpu"
        assert hypothesis.inliers.device.type == "cpu"
