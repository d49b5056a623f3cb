"""Values that are remembered per tensor on a GPU."""

from __future__ import annotations

import gc

import pytest
import torch

from wsdesc.cloud.neighbours import NeighbourGrid
from wsdesc.core.errors import InputError
from wsdesc.core.tensor_memo import TensorMemo


def test_tensors_of_the_cpu_are_not_remembered() -> None:
    memo: TensorMemo[int] = TensorMemo()
    tensor = torch.zeros(3)
    memo.set(tensor, 1)
    assert memo.get(tensor) is None


@pytest.mark.gpu
def test_changed_and_deleted_tensors_are_forgotten() -> None:
    memo: TensorMemo[int] = TensorMemo()
    tensor, equal = torch.zeros(3, device="cuda"), torch.zeros(3, device="cuda")
    memo.set(tensor, 1)
    assert memo.get(tensor) == 1
    assert memo.get(equal) is None
    tensor += 1
    assert memo.get(tensor) is None
    memo.set(tensor, 2)
    del tensor
    gc.collect()
    assert len(memo._values) == 0
    with torch.inference_mode():
        tensor = torch.zeros(3, device="cuda")
    memo.set(tensor, 3)
    assert memo.get(tensor) is None


@pytest.mark.gpu
def test_grids_are_those_of_changed_points() -> None:
    points = torch.rand(500, 3, device="cuda")
    grid = NeighbourGrid.of(points)
    assert NeighbourGrid.of(points) is grid
    points[7] += 1
    assert torch.equal(NeighbourGrid.of(points).points, NeighbourGrid.of(points.clone()).points)
    points[3] = torch.nan
    with pytest.raises(InputError, match="finite"):
        NeighbourGrid.of(points)
