"""Nearest points: each backend against the definition."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.spatial import cKDTree
from torch import Tensor

from wsdesc.cloud.nearest import k_nearest, nearest, reference, squared_distances
from wsdesc.cloud.neighbours import NeighbourGrid
from wsdesc.cloud.sampling import voxel_downsample
from wsdesc.datasets.synthetic import RoomPair


def integer_points(count: int, seed: int = 0) -> Tensor:
    """Points on a small grid of integers: many equal ones, and exact distances."""
    return torch.randint(0, 5, (count, 3), generator=torch.Generator().manual_seed(seed)).float()


def test_squared_distances_keep_their_digits() -> None:
    a, b = torch.rand(5, 3) + 1000, torch.rand(7, 3) + 1000
    exact = torch.cdist(a.double(), b.double()).square()
    torch.testing.assert_close(squared_distances(a, b).double(), exact, rtol=1e-5, atol=1e-9)


def test_nearest_on_cpu_and_in_plain_torch() -> None:
    points, queries = torch.rand(400, 3), torch.rand(150, 3)
    expected = torch.cdist(queries, points).argmin(1)
    assert torch.equal(nearest(points, queries), expected)
    assert torch.equal(reference.nearest(points, queries), expected)


def test_nearest_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    points, queries = torch.rand(400, 3), torch.rand(150, 3)
    monkeypatch.setattr(reference, "_PAIRS_PER_CHUNK", 1000)
    assert torch.equal(reference.nearest(points, queries), nearest(points, queries))


def test_nearest_of_no_query() -> None:
    assert nearest(torch.rand(4, 3), torch.empty(0, 3)).shape == (0,)
    assert reference.nearest(torch.rand(4, 3), torch.empty(0, 3)).shape == (0,)


def test_nearest_distinct_point() -> None:
    points = integer_points(300)
    distance = torch.cdist(points, points)
    distance[distance == 0] = torch.inf
    index = nearest(points, points, distinct=True)
    torch.testing.assert_close((points - points[index]).norm(dim=1), distance.amin(1))
    assert (points[nearest(points, points)] == points).all()


@pytest.mark.parametrize("k", [1, 5, 20])
def test_k_nearest_on_a_surface(room: RoomPair, k: int) -> None:
    points = voxel_downsample(torch.as_tensor(room.source).float(), 0.04)
    grid = NeighbourGrid.of(points)
    index = k_nearest(grid, k)
    farthest = (grid.points[index] - grid.points[:, None]).norm(dim=-1).amax(1)
    expected = cKDTree(grid.points.numpy()).query(grid.points.numpy(), k)[0].reshape(len(points), -1)
    assert (np.abs(farthest.numpy() - expected[:, -1]) < 1e-5).mean() > 0.999


@pytest.mark.parametrize("points", [torch.zeros(40, 3), torch.rand(7, 3), torch.rand(33, 3)])
def test_k_nearest_of_few_points(points: Tensor) -> None:
    index = k_nearest(NeighbourGrid.of(points), 5)
    assert index.shape == (len(points), 5)
    assert all(len(set(row)) == 5 and max(row) < len(points) for row in index.tolist())


@pytest.mark.gpu
@pytest.mark.parametrize("count", [1, 127, 128, 5000])
@pytest.mark.parametrize("distinct", [False, True])
def test_nearest_on_gpu_equals_cpu(count: int, distinct: bool) -> None:
    g = torch.Generator().manual_seed(count)
    points, queries = torch.rand(count, 3, generator=g), torch.rand(333, 3, generator=g)
    queries[: min(count, 50)] = points[:50]
    expected = nearest(points, queries, distinct)
    result = nearest(points.cuda(), queries.cuda(), distinct)
    assert result.is_cuda
    distance = [(queries - points[index.cpu()]).norm(dim=1) for index in (result, expected)]
    torch.testing.assert_close(*distance, rtol=1e-6, atol=0)


@pytest.mark.gpu
def test_nearest_on_gpu_with_ties() -> None:
    points, queries = integer_points(2000), integer_points(500, seed=1)
    for distinct in (False, True):
        expected = reference.nearest(points, queries, distinct)
        result = nearest(points.cuda(), queries.cuda(), distinct).cpu()
        distance = [(queries - points[index]).norm(dim=1) for index in (result, expected)]
        assert torch.equal(*distance)
    assert nearest(points.cuda(), queries[:0].cuda()).shape == (0,)


@pytest.mark.gpu
def test_k_nearest_on_gpu_equals_cpu(room: RoomPair) -> None:
    points = voxel_downsample(torch.as_tensor(room.source).float(), 0.04)
    grid, grid_gpu = NeighbourGrid.of(points), NeighbourGrid.of(points.cuda())
    distances = [
        (g.points[k_nearest(g, 20)] - g.points[:, None]).norm(dim=-1).sort(1).values.cpu()
        for g in (grid, grid_gpu)
    ]
    torch.testing.assert_close(*distances, rtol=1e-5, atol=1e-6)
