"""Several motions from RANSAC, and when two motions are one."""

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


def motion(turn_degrees: float, shift: float, about: float = 0.0) -> np.ndarray:
    """A turn about an axis along z through (about, 0, 0), then a shift along z."""
    T = np.eye(4)
    T[:3, :3] = Rotation.from_rotvec([0, 0, math.radians(turn_degrees)]).as_matrix()
    centre = np.array([about, 0, 0])
    T[:3, 3] = centre - T[:3, :3] @ centre + [0, 0, shift]
    return T


def two_motions(kept: tuple[int, int], wrong: int = 100) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Matches of two motions, the first ones of the one with more, and wrong ones."""
    g = np.random.default_rng(0)
    truths = [motion(40, 1.0), motion(-100, -1.0)]
    source = g.uniform(0, 3, (sum(kept) + wrong, 3))
    target = g.uniform(0, 3, source.shape)
    ends = np.cumsum((0, *kept))
    for T, start, stop in zip(truths, ends, ends[1:], strict=False):
        target[start:stop] = source[start:stop] @ T[:3, :3].T + T[:3, 3]
    target += g.normal(0, 0.01, target.shape)
    return torch.from_numpy(source), torch.from_numpy(target), [torch.from_numpy(T) for T in truths]


def test_finds_the_motions_by_their_support() -> None:
    source, target, truths = two_motions((80, 50))
    found = ransac_hypotheses(source, target, hypotheses=4)
    for hypothesis, truth in zip(found, truths, strict=False):
        torch.testing.assert_close(hypothesis.T_target_source, truth, rtol=0, atol=0.02)
    scores = [hypothesis.votes for hypothesis in found]
    assert scores == sorted(scores, reverse=True)
    assert len(found) <= 4
    for T, inliers, score in found:
        distance = torch.linalg.vector_norm(source @ T[:3, :3].T + T[:3, 3] - target, dim=1)
        assert torch.equal(inliers, distance <= 0.05)
        assert score == pytest.approx(float((1 - (distance / 0.05) ** 2).clamp(min=0).sum()))


def test_one_is_what_ransac_finds_and_seeds_repeat() -> None:
    source, target, _ = two_motions((80, 50))
    (one,) = ransac_hypotheses(source, target, hypotheses=1, seed=3)
    alone = ransac(source, target, seed=3)
    torch.testing.assert_close(one.T_target_source, alone.T_target_source, rtol=0, atol=0.02)
    first, second = (ransac_hypotheses(source, target, seed=3) for _ in range(2))
    assert all(torch.equal(a.T_target_source, b.T_target_source) for a, b in zip(first, second, strict=True))


def test_works_far_from_the_origin() -> None:
    source, target, truths = two_motions((80, 50))
    near, far = (ransac_hypotheses(source + x, target + x, hypotheses=2) for x in (0, 5e5))
    assert all(torch.equal(a.inliers, b.inliers) for a, b in zip(near, far, strict=True))
    torch.testing.assert_close(far[0].T_target_source[:3, :3], truths[0][:3, :3], rtol=0, atol=0.01)


def test_a_motion_rules_out_those_near_it() -> None:
    points = np.random.default_rng(0).uniform(-1, 1, (3, 50))
    points -= points.mean(axis=1, keepdims=True)
    poses = np.stack([motion(0, 0), motion(9, 0.2), motion(11, 0), motion(0, 0.26), motion(10.5, 0.1)])
    assert distinct(poses, points, points, threshold=0.05).tolist() == [0, 2, 3]
    assert distinct(poses, points, points, threshold=0.05, count=2).tolist() == [0, 2]
    assert distinct(np.empty((0, 4, 4)), points, points, threshold=0.05).tolist() == []


def test_motions_are_compared_where_the_points_are() -> None:
    """A turn of 5° about a far axis is another motion; about an axis through the points it is not."""
    points = np.random.default_rng(0).uniform(-1, 1, (3, 50))
    points[0] += 100
    poses = np.stack([motion(*turn) for turn in ((0, 0), (5, 0, 100), (5, 0))])
    assert distinct(poses, points, points, threshold=0.05).tolist() == [0, 2]


@pytest.mark.parametrize("count", [0, 1, 2, 50])
def test_without_a_motion_there_is_no_hypothesis(count: int) -> None:
    points = torch.ones(count, 3)
    assert ransac_hypotheses(points, points, iterations=100) == []


def test_refuses_bad_input() -> None:
    good = torch.zeros(5, 3)
    with pytest.raises(InputError, match="NaN"):
        ransac_hypotheses(good, torch.full((5, 3), torch.nan))
    for option in ({"threshold": 0.0}, {"hypotheses": 0}, {"iterations": 0}):
        with pytest.raises(InputError, match=next(iter(option))):
            ransac_hypotheses(good, good, **option)
