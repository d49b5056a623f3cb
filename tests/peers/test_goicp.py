"""Go-ICP: bounds, global optimality against brute force, trimming and the time limit."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest
import torch
from scipy.spatial.transform import Rotation

from wsdesc import peers
from wsdesc.core.geometry import make_pose
from wsdesc.evaluation import rotation_error_deg
from wsdesc.peers.goicp import GoIcp, _pose, _RotationSearch
from wsdesc.peers.goicp.field import DistanceField
from wsdesc.peers.goicp.icp import TrimmedIcp


def body(count: int, seed: int = 0) -> np.ndarray:
    """Points on three rods of different lengths, centred, within [−0.8, 0.8]³."""
    rng = np.random.default_rng(seed)
    axis = rng.choice(3, count, p=[0.5, 0.3, 0.2])
    points = rng.normal(0, 0.03, (count, 3))
    points[np.arange(count), axis] += rng.uniform(0, 1, count) * np.array([1.2, 0.8, 0.5])[axis]
    return points - points.mean(0)


def test_distances_are_those_of_the_nearest_point() -> None:
    points = body(200)
    field = DistanceField.of(points, 100)
    queries = np.random.default_rng(1).uniform(-2.5, 2.5, (500, 3))  # some outside of the grid
    exact = np.linalg.norm(queries[:, None] - points[None], axis=2).min(1)
    # Outside, the distance to the grid plus the value at its border is at least the distance.
    inside = np.abs(queries).max(1) < 2
    assert np.abs(field.at(queries) - exact)[inside].max() < math.sqrt(3) * field.step
    assert (field.at(queries) > exact - math.sqrt(3) * field.step).all()


@pytest.mark.parametrize("half", [math.pi / 4, math.pi / 8])
@pytest.mark.parametrize("trim", [0.0, 0.3])
def test_no_pose_of_a_cube_is_below_its_bound(half: float, trim: float) -> None:
    rng = np.random.default_rng(0)
    search = _RotationSearch(GoIcp(trim=trim), body(40, 1), body(300))
    for _ in range(5):
        centre = rng.uniform(-1.5, 1.5, 3)
        bound = search._translations(tuple(centre), half)[2]
        for _ in range(20):
            T = _pose(tuple(centre + rng.uniform(-half, half, 3)), rng.uniform(-0.5, 0.5, 3))
            # The distance field is rounded to its nodes.
            distances = search.field.at(search.source @ T[:3, :3].T + T[:3, 3]) + 2 * search.field.step
            assert bound <= np.sort(distances**2)[: search.kept].sum()


def test_the_result_is_as_good_as_the_best_of_a_grid_of_poses() -> None:
    source, target = body(30, 2), body(400)
    R = Rotation.random(random_state=5).as_matrix()
    solver = GoIcp(points=30, time_limit=60)
    search = _RotationSearch(solver, source @ R.T, target)
    solution = search.run()
    assert solution.optimal
    assert solution.lower_bound <= solution.error
    best = np.inf
    for rotation in Rotation.random(300, random_state=0).as_matrix():
        T = np.eye(4)
        T[:3, :3] = rotation
        best = min(best, search.error(search.icp(search.source, T)))
    assert solution.error <= best + search.gap


@pytest.mark.parametrize("seed", range(3))
def test_any_rotation_of_a_whole_shape_is_found(seed: int) -> None:
    target = torch.from_numpy(body(400))
    T = make_pose(Rotation.random(random_state=seed).as_matrix(), [3.0, -2.0, 1.0])
    moved = (target - torch.from_numpy(T[:3, 3])) @ torch.from_numpy(T[:3, :3])
    estimate = GoIcp(time_limit=300)(moved, target)
    assert estimate is not None
    assert float(rotation_error_deg(estimate.numpy(), T)) < 1


def test_the_error_is_not_above_that_of_icp() -> None:
    source, target = body(60, 3), body(300)
    search = _RotationSearch(GoIcp(points=60, time_limit=1), source, target)
    icp = TrimmedIcp(target, search.kept, 1e-7)
    assert search.run().error <= search.error(icp(source, np.eye(4))) + 1e-9


def test_the_time_limit_returns_the_best_pose_so_far() -> None:
    rng = np.random.default_rng(0)
    noise = rng.uniform(-0.8, 0.8, (300, 3))  # nothing fits: the search cannot end
    solver = GoIcp(threshold=1e-7, time_limit=0.5)
    start = time.monotonic()
    solution = solver.solve(noise[:100], rng.uniform(-0.8, 0.8, (300, 3)))
    assert time.monotonic() - start < 30
    assert not solution.optimal
    assert np.isfinite(solution.error)


def test_too_few_points() -> None:
    few = torch.rand(5, 3)
    assert peers.pose("go-icp")(few, few) is None
    assert peers.pose("go-icp")(torch.zeros(50, 3), torch.zeros(50, 3)) is None
