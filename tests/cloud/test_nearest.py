"""Nearest points as a GPU looks for them, on tensors of the CPU; and what is measured with them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy.spatial import cKDTree
from torch import Tensor

from wsdesc.cloud import sampling, units_cuda
from wsdesc.cloud.nearest import nearest, neighbours_of_each, squared_distances
from wsdesc.cloud.neighbours import NeighbourGrid
from wsdesc.cloud.sampling import farthest_points, voxel_downsample
from wsdesc.cloud.units import extent, spacing
from wsdesc.core.errors import InputError
from wsdesc.datasets.synthetic import RoomPair


def test_distances_keep_their_digits() -> None:
    a, b = torch.rand(5, 3) + 1000, torch.rand(7, 3) + 1000
    exact = torch.cdist(a.double(), b.double()).square()
    torch.testing.assert_close(squared_distances(a, b).double(), exact, rtol=1e-5, atol=1e-9)


def test_the_nearest_that_differs() -> None:
    points = torch.randint(0, 5, (300, 3), generator=torch.Generator().manual_seed(0)).float()
    apart = torch.cdist(points, points)
    apart[apart == 0] = torch.inf
    found = nearest(points, points, apart=True)
    torch.testing.assert_close((points - points[found]).norm(dim=1), apart.amin(1))
    assert (points[nearest(points, points)] == points).all()


@pytest.mark.parametrize("count", [1, 5, 20])
def test_all_neighbours_on_a_surface(room: RoomPair, count: int) -> None:
    points = voxel_downsample(torch.as_tensor(room.source).float(), 0.04)
    grid = NeighbourGrid.of(points)
    found = neighbours_of_each(grid, count)
    farthest = (grid.points[found] - grid.points[:, None]).norm(dim=-1).amax(1)
    expected = cKDTree(grid.points.numpy()).query(grid.points.numpy(), count)[0].reshape(len(points), -1)
    assert (np.abs(farthest.numpy() - expected[:, -1]) < 1e-5).mean() > 0.999


@pytest.mark.parametrize("points", [torch.zeros(40, 3), torch.rand(7, 3), torch.rand(33, 3)])
def test_all_neighbours_of_hardly_any_points(points: Tensor) -> None:
    found = neighbours_of_each(NeighbourGrid.of(points), 5)
    assert found.shape == (len(points), 5)
    assert all(len(set(row)) == 5 and max(row) < len(points) for row in found.tolist())


def test_scale_is_measured_as_on_the_cpu(room: RoomPair, read_scan: Callable[[str], Tensor]) -> None:
    scans = [torch.as_tensor(room.source).float(), read_scan("indoor/train/tum_fr1_desk/cloud_bin_0.ply")]
    for points in scans:
        everything = np.arange(len(points))
        some = np.random.default_rng(0).choice(len(points), 2000, replace=False, shuffle=False)
        assert units_cuda.extent(points, everything) == pytest.approx(extent(points.numpy()), rel=1e-9)
        assert units_cuda.spacing(points, some) == pytest.approx(spacing(points.numpy()), rel=1e-9)


def test_one_place_has_no_spacing() -> None:
    with pytest.raises(InputError, match="one and the same"):
        units_cuda.spacing(torch.ones(50, 3), np.arange(50))
    assert units_cuda.extent(torch.ones(50, 3), np.arange(50)) == 0


def test_farthest_points_in_plain_torch() -> None:
    points = torch.rand(500, 3, generator=torch.Generator().manual_seed(0))
    expected = farthest_points(points, 60)
    assert sampling._step_by_step(points, 60, int(expected[0])).tolist() == expected.tolist()
    assert len(set(sampling._step_by_step(torch.zeros(9, 3), 9, 4).tolist())) == 9
