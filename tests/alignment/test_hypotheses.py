"""Hypotheses of repeated RANSAC, and distinct poses."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.spatial.transform import Rotation
from torch import Tensor

from wsdesc.alignment import ransac
from wsdesc.alignment.hypotheses import distinct, ransac_hypotheses
from wsdesc.core.errors import InputError


def pose(degrees: float, shift: float, about: float = 0.0) -> np.ndarray:
    """Rotate about an axis along z through (about, 0, 0), then shift along z."""
    T = np.eye(4)
    T[:3, :3] = Rotation.from_rotvec([0, 0, math.radians(degrees)]).as_matrix()
    centre = np.array([about, 0, 0])
    T[:3, 3] = centre - T[:3, :3] @ centre + [0, 0, shift]
    return T


def matches_of_two_poses(kept: tuple[int, int], outliers: int = 100) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Make inliers of two poses, those of the first pose first, and outliers."""
    g = np.random.default_rng(0)
    truths = [pose(40, 1.0), pose(-100, -1.0)]
    source = g.uniform(0, 3, (sum(kept) + outliers, 3))
    target = g.uniform(0, 3, source.shape)
    ends = np.cumsum((0, *kept))
    for T, start, stop in zip(truths, ends, ends[1:], strict=False):
        target[start:stop] = source[start:stop] @ T[:3, :3].T + T[:3, 3]
    target += g.normal(0, 0.01, target.shape)
    return torch.from_numpy(source), torch.from_numpy(target), [torch.from_numpy(T) for T in truths]


def test_poses_are_sorted_by_their_votes() -> None:
    source, target, truths = matches_of_two_poses((80, 50))
    proposed = ransac_hypotheses(source, target, hypotheses=4)
    for hypothesis, truth in zip(proposed, truths, strict=False):
        torch.testing.assert_close(hypothesis.T_target_source, truth, rtol=0, atol=0.02)
    votes = [hypothesis.votes for hypothesis in proposed]
    assert votes == sorted(votes, reverse=True)
    assert len(proposed) <= 4
    for T, inliers, votes in proposed:
        distance = torch.linalg.vector_norm(source @ T[:3, :3].T + T[:3, 3] - target, dim=1)
        assert torch.equal(inliers, distance <= 0.05)
        assert votes == pytest.approx(float((1 - (distance / 0.05) ** 2).clamp(min=0).sum()))


def test_one_hypothesis_equals_ransac_and_seeds_repeat() -> None:
    source, target, _ = matches_of_two_poses((80, 50))
    (one,) = ransac_hypotheses(source, target, hypotheses=1, seed=3)
    alone = ransac(source, target, seed=3)
    torch.testing.assert_close(one.T_target_source, alone.T_target_source, rtol=0, atol=0.02)
    first, second = (ransac_hypotheses(source, target, seed=3) for _ in range(2))
    assert all(torch.equal(a.T_target_source, b.T_target_source) for a, b in zip(first, second, strict=True))


def test_large_coordinates_do_not_change_the_inliers() -> None:
    source, target, truths = matches_of_two_poses((80, 50))
    near, far = (ransac_hypotheses(source + x, target + x, hypotheses=2) for x in (0, 5e5))
    assert all(torch.equal(a.inliers, b.inliers) for a, b in zip(near, far, strict=True))
    torch.testing.assert_close(far[0].T_target_source[:3, :3], truths[0][:3, :3], rtol=0, atol=0.01)


def test_poses_near_a_better_one_are_dropped() -> None:
    points = np.random.default_rng(0).uniform(-1, 1, (3, 50))
    points -= points.mean(axis=1, keepdims=True)
    poses = np.stack([pose(0, 0), pose(9, 0.2), pose(11, 0), pose(0, 0.26), pose(10.5, 0.1)])
    assert distinct(poses, points, points, threshold=0.05).tolist() == [0, 2, 3]
    assert distinct(poses, points, points, threshold=0.05, count=2).tolist() == [0, 2]
    assert distinct(np.empty((0, 4, 4)), points, points, threshold=0.05).tolist() == []


def test_poses_are_compared_at_the_points() -> None:
    """A rotation by 5° about a far axis gives another pose; about an axis through the points it does not."""
    points = np.random.default_rng(0).uniform(-1, 1, (3, 50))
    points[0] += 100
    poses = np.stack([pose(*rotation) for rotation in ((0, 0), (5, 0, 100), (5, 0))])
    assert distinct(poses, points, points, threshold=0.05).tolist() == [0, 2]


@pytest.mark.parametrize("count", [0, 1, 2, 50])
def test_coincident_points_give_no_hypothesis(count: int) -> None:
    points = torch.ones(count, 3)
    assert ransac_hypotheses(points, points, iterations=100) == []


def test_invalid_input_is_rejected() -> None:
    good = torch.zeros(5, 3)
    with pytest.raises(InputError, match="NaN"):
        ransac_hypotheses(good, torch.full((5, 3), torch.nan))
    for option in ({"threshold": 0.0}, {"hypotheses": 0}, {"iterations": 0}):
        with pytest.raises(InputError, match=next(iter(option))):
            ransac_hypotheses(good, good, **option)
