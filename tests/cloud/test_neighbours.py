"""The neighbour grid against brute force, on evenly and unevenly distributed points."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from wsdesc.cloud.neighbours import LEAF, NeighbourGrid, reference
from wsdesc.core.errors import InputError

FLOATS = [torch.float32, torch.float64]


def uniform(n: int, seed: int = 0) -> Tensor:
    return torch.rand(n, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def two_clusters() -> Tensor:
    return torch.cat([uniform(700) * 0.1, uniform(500, 1) * 0.1 + 5000])


def line() -> Tensor:
    return uniform(900)[:, :1] * torch.tensor([[1.0, 2.0, -0.5]], dtype=torch.float64) + 3


def outlier() -> Tensor:
    return torch.cat([uniform(800), torch.full((1, 3), 1e5, dtype=torch.float64)])


CLOUDS: dict[str, Callable[[], Tensor]] = {
    "uniform": lambda: uniform(1500),
    "millions": lambda: (uniform(1500) - 0.5) * 2e6,
    "two clusters": two_clusters,
    "line": line,
    "outlier": outlier,
    **{f"{n} points": lambda n=n: uniform(n, n) for n in (1, 2, 3, 4, 5, 31, 32, 33, 1023, 1024, 1025)},
}


def distances(points: Tensor, queries: Tensor) -> Tensor:
    """Return (M, N) in float64, from differences."""
    exact = "donot_use_mm_for_euclid_dist"
    return torch.cdist(queries.double(), points.double(), compute_mode=exact)


def unambiguous_radius(distance: Tensor, share: float, rounding: float) -> float:
    """Return a radius that contains about this share of all pairs and differs from every distance."""
    ordered = distance.flatten().sort().values
    middle, window = int(share * (len(ordered) - 1)), 50
    while window < 2 * len(ordered):
        part = ordered[max(0, middle - window) : middle + window]
        gap = int(part.diff().argmax()) if len(part) > 1 else 0
        if len(part) > 1 and part[gap + 1] - part[gap] > 2 * rounding:
            return float(part[gap] + part[gap + 1]) / 2
        window *= 2
    return float(ordered[-1]) * 1.5 + 0.1


def assert_equals_brute_force(points: Tensor, queries: Tensor, radius: float) -> None:
    grid = NeighbourGrid.of(points)
    near = distances(points, queries) <= radius
    indices = near.nonzero()[:, 1]  # ascending within each query
    result = grid.within(queries, radius)
    assert torch.equal(grid.count(queries, radius), near.sum(1))
    assert torch.equal(result.indices, indices)
    assert torch.equal(result.starts.diff(), near.sum(1))
    # The GPU's code on the CPU.
    queries = queries.to(points.dtype)
    assert torch.equal(reference.count(grid, queries, radius), near.sum(1))
    assert torch.equal(reference.indices_within(grid, queries, radius), indices)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("share", [0.01, 0.3, 0.9])
@pytest.mark.parametrize("name", CLOUDS)
def test_search_equals_brute_force(name: str, share: float, dtype: torch.dtype) -> None:
    points = CLOUDS[name]().to(dtype)
    queries = torch.cat([points[:: max(1, len(points) // 15)], points.mean(0, keepdim=True)])
    rounding = 16 * torch.finfo(dtype).eps * float(points.abs().max())
    radius = unambiguous_radius(distances(points, queries), share, rounding)
    assert_equals_brute_force(points, queries, radius)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("radius", [0.0, 1.0, 3.0, 5.0, 13.0, 1e4])
def test_integers_with_ties_and_duplicates(radius: float, dtype: torch.dtype) -> None:
    g = torch.Generator().manual_seed(2)
    points = torch.randint(-6, 7, (1500, 3), generator=g).to(dtype)
    queries = torch.randint(-9, 10, (60, 3), generator=g).to(dtype)
    assert_equals_brute_force(points, queries, radius)  # a distance equal to the radius is within


@pytest.mark.parametrize("count", [1, 32, 33, 3000])
def test_all_points_equal(count: int) -> None:
    points = torch.tensor([[3.25, -1.0, 7.5]]).repeat(count, 1)
    grid = NeighbourGrid.of(points)
    queries = points[:1] + torch.tensor([[0.0, 0, 0], [0, 2, 0], [0, 2.5, 0]])
    assert grid.count(queries, 2.0).tolist() == [count, count, 0]
    assert grid.within(queries, 2.0).indices.tolist() == [*range(count), *range(count)]


@pytest.mark.parametrize("dtype", FLOATS)
def test_queries_far_outside(dtype: torch.dtype) -> None:
    points = uniform(1000).to(dtype)
    far = torch.tensor([[1e6, 0, 0], [-1e6, 1e6, 1e6], [0.5, 0.5, 1e6]], dtype=dtype)
    grid = NeighbourGrid.of(points)
    assert grid.count(far, 10.0).tolist() == [0, 0, 0]
    assert len(grid.within(far, 10.0).indices) == 0
    assert grid.count(far, 1e7).tolist() == [1000] * 3
    assert grid.count(far, torch.inf).tolist() == [1000] * 3


integers = st.integers(-20, 20)
clouds = st.lists(st.tuples(integers, integers, integers), min_size=1, max_size=120)


@settings(max_examples=60, deadline=None)
@given(clouds, clouds, st.integers(0, 40), st.sampled_from([1.0, 0.125, 4096.0]), st.sampled_from(FLOATS))
def test_any_cloud_of_integers(points, queries, radius, scale, dtype) -> None:  # type: ignore[no-untyped-def]
    assert_equals_brute_force(
        torch.tensor(points, dtype=dtype) * scale, torch.tensor(queries, dtype=dtype) * scale, radius * scale
    )


def test_no_query() -> None:
    result = NeighbourGrid.of(uniform(40)).within(torch.empty(0, 3), 1.0)
    assert result.indices.shape == (0,)
    assert result.starts.tolist() == [0]


def test_the_order_of_points_does_not_matter() -> None:
    points = uniform(500)
    permutation = torch.randperm(500, generator=torch.Generator().manual_seed(1))
    near = NeighbourGrid.of(points).within(points[:20], 0.2)
    other = NeighbourGrid.of(points[permutation]).within(points[:20], 0.2)
    assert torch.equal(near.starts, other.starts)
    for m in range(20):
        part = slice(int(near.starts[m]), int(near.starts[m + 1]))
        assert torch.equal(near.indices[part], permutation[other.indices[part]].sort().values)


def test_the_number_of_threads_does_not_matter(set_threads: Callable[[int], None]) -> None:
    grid, queries = NeighbourGrid.of(uniform(3000)), uniform(500, 1)
    results = []
    for threads in (1, 2, 3):
        set_threads(threads)
        results.append(grid.within(queries, 0.1))
    for other in results[1:]:
        assert torch.equal(results[0].indices, other.indices)
        assert torch.equal(results[0].starts, other.starts)


@pytest.mark.parametrize("name", ["uniform", "millions", "two clusters", "line", "33 points"])
def test_leaves_near_misses_no_leaf_with_a_point(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference, "_PAIRS_PER_CHUNK", 300)  # several chunks
    points = CLOUDS[name]().float()
    grid = NeighbourGrid.of(points)
    queries = points[:: max(1, len(points) // 25)]
    distance = distances(grid.points, queries)
    radii = torch.linspace(0.01, 1, len(queries)).float() * float(distance.max()) / 2
    leaves, starts = grid.leaves_near(queries, radii)
    assert leaves.dtype == torch.int32
    assert starts.shape == (len(queries) + 1,)
    visited = 0
    for m, (radius, row) in enumerate(zip(radii, distance, strict=True)):
        listed = leaves[starts[m] : starts[m + 1]].tolist()
        needed = {int(p) // LEAF for p in (row <= radius).nonzero()}
        assert needed <= set(listed)
        assert len(listed) == len(set(listed))
        visited += len(listed)
    if len(points) > 500:
        assert visited < 0.9 * len(queries) * len(grid.radii)  # it excludes leaves


@pytest.mark.parametrize(
    ("points", "message"),
    [
        (torch.empty(0, 3), "empty"),
        (torch.zeros(4), r"\(4,\)"),
        (torch.zeros(4, 2), r"\(4, 2\)"),
        (torch.zeros(2, 4, 3), r"\(2, 4, 3\)"),
        (torch.tensor([[0.0, torch.nan, 0]]), "finite"),
        (torch.tensor([[0.0, torch.inf, 0], [0, -torch.inf, 0]]), "finite"),
        (torch.zeros(4, 3, dtype=torch.int64), "int64"),
        (torch.zeros(4, 3, dtype=torch.bfloat16), "bfloat16"),
        ([[0.0, 0.0, 0.0]], "list"),
    ],
)
def test_invalid_points_are_rejected(points: Tensor, message: str) -> None:
    with pytest.raises(InputError, match=message):
        NeighbourGrid.of(points)


@pytest.mark.parametrize("queries", [torch.zeros(5), torch.zeros(5, 2), torch.zeros(5, 3, 1)])
def test_queries_of_another_shape_are_rejected(queries: Tensor) -> None:
    grid = NeighbourGrid.of(uniform(10))
    for search in (grid.count, grid.within):
        with pytest.raises(InputError, match="queries"):
            search(queries, 1.0)


@pytest.mark.parametrize("radius", [-0.5, float("nan")])
def test_negative_or_nan_radius_is_rejected(radius: float) -> None:
    with pytest.raises(InputError, match="radius"):
        NeighbourGrid.of(uniform(10)).count(uniform(2), radius)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", CLOUDS)
def test_search_on_gpu_equals_cpu(name: str, dtype: torch.dtype) -> None:
    points = CLOUDS[name]().to(dtype)
    queries = torch.cat([points[:: max(1, len(points) // 15)], points.mean(0, keepdim=True)])
    rounding = 16 * torch.finfo(dtype).eps * float(points.abs().max())
    radius = unambiguous_radius(distances(points, queries), 0.1, rounding)
    grid, grid_gpu = NeighbourGrid.of(points), NeighbourGrid.of(points.cuda())
    assert torch.equal(grid_gpu.order.cpu(), grid.order)
    for field in dataclasses.fields(grid):
        a, b = (getattr(x, field.name).cpu() for x in (grid_gpu, grid))
        torch.testing.assert_close(a, b, rtol=8 * torch.finfo(dtype).eps, atol=rounding)
    expected, result = grid.within(queries, radius), grid_gpu.within(queries.cuda(), radius)
    assert torch.equal(result.starts.cpu(), expected.starts)
    assert torch.equal(result.indices.cpu(), expected.indices)
    assert torch.equal(grid_gpu.count(queries.cuda(), radius).cpu(), grid.count(queries, radius))
    assert torch.equal(reference.count(grid_gpu, queries.cuda(), radius).cpu(), grid.count(queries, radius))


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["uniform", "two clusters", "line", "33 points"])
def test_leaves_near_on_gpu_contain_those_of_the_cpu(name: str) -> None:
    points = CLOUDS[name]().float()
    grid, grid_gpu = NeighbourGrid.of(points), NeighbourGrid.of(points.cuda())
    queries = points[:: max(1, len(points) // 25)]
    radii = torch.linspace(0.01, 1, len(queries))
    expected, result = grid.leaves_near(queries, radii), grid_gpu.leaves_near(queries.cuda(), radii.cuda())
    assert result[0].dtype == torch.int32
    counts = [starts.diff().float() for starts in (result[1].cpu(), expected[1])]
    torch.testing.assert_close(*counts, rtol=0, atol=1)  # rounding may add or remove a leaf that only touches
    assert (result[1].cpu() - expected[1]).abs().max() <= 1 + len(queries) // 10


@pytest.mark.gpu
def test_no_query_on_gpu() -> None:
    result = NeighbourGrid.of(uniform(40).cuda()).within(torch.empty(0, 3).cuda(), 1.0)
    assert result.indices.shape == (0,)
    assert result.starts.tolist() == [0]
