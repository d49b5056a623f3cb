"""The grid finds the same nearest points as a k-d tree, also in hostile distributions."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial import cKDTree

from wsdesc.alignment.surface import CpuSurface
from wsdesc.alignment.surface.nearest import NearestGrid


def clouds() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    flat = rng.uniform(0, 3, (4000, 3)) * [1, 1, 0.02]
    return {
        "surface": flat,
        "box": rng.uniform(-1, 1, (3000, 3)),
        "two clusters": np.concatenate([rng.normal(0, 0.1, (500, 3)), rng.normal(1000, 0.1, (500, 3))]),
        "far from the origin": flat + 1e6,
        "integers, with duplicates": rng.integers(0, 6, (800, 3)).astype(float),
        "a line": np.outer(np.linspace(0, 5, 400), [1.0, 2.0, 0.5]),
        "five points": rng.uniform(0, 1, (5, 3)),
        "one point": np.ones((1, 3)),
        "equal points": np.ones((30, 3)),
    }


@pytest.mark.parametrize("name", clouds())
@pytest.mark.parametrize("share", [0.1, 0.5, 1.0])
def test_nearest_points_equal_those_of_a_tree(name: str, share: float) -> None:
    points = clouds()[name]
    tree = cKDTree(points)
    spacing = float(np.median(tree.query(points, 2)[0][:, 1])) if len(points) > 1 else 1.0
    grid = NearestGrid.of(points, spacing)
    rng = np.random.default_rng(1)
    around = points[rng.integers(0, len(points), 600)]
    noise = rng.normal(size=around.shape) * grid.size * rng.choice([0.01, 0.5, 3.0], (len(around), 1))
    outside = rng.uniform(-1, 1, (200, 3)) * 20 * grid.size + points.mean(axis=0)
    queries = np.concatenate([around, around + noise, outside, [[1e9, -1e9, 0], [-1e9, 0, 0]]])
    distance, index = grid.query(queries, share * grid.reach)
    expected, expected_index = tree.query(queries, distance_upper_bound=share * grid.reach)
    np.testing.assert_array_equal(distance, expected)
    is_near = np.isfinite(distance)
    assert (index[~is_near] == len(points)).all()
    # Of points at the same distance, any may be returned.
    offsets = queries[is_near] - points[index[is_near]]
    np.testing.assert_allclose(np.linalg.norm(offsets, axis=1), distance[is_near], rtol=1e-12, atol=1e-300)
    if "duplicates" not in name and "equal" not in name:
        assert (index == expected_index).mean() > 0.99


def test_queries_that_are_not_finite_have_no_neighbour() -> None:
    grid = NearestGrid.of(np.random.default_rng(0).uniform(size=(100, 3)), 0.1)
    queries = np.array([[np.nan, 0, 0], [np.inf, 0, 0], [0.5, 0.5, -np.inf]])
    distance, index = grid.query(queries, grid.reach)
    assert np.isinf(distance).all()
    assert (index == 100).all()


def test_distances_beyond_the_grid_are_searched_in_the_tree() -> None:
    surface = CpuSurface.of(np.random.default_rng(0).uniform(size=(500, 3)))
    queries = np.array([[30.0, 0.5, 0.5], [0.5, 0.5, 0.5]])
    distance, index = surface.nearest(queries, 100.0)
    assert np.isfinite(distance).all()
    assert (index < 500).all()
