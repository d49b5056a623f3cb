"""Batches of shape pairs: the same rules as single pairs."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from wsdesc.core.errors import InputError
from wsdesc.datasets.shape_pairs import PairBatch, independent_pairs, partial_pairs, random_poses


def shapes(count: int = 4, points: int = 200) -> Tensor:
    points_ = torch.randn(count, points, 3, generator=torch.Generator().manual_seed(1))
    return 0.9 * points_ / points_.norm(dim=-1).amax(1)[:, None, None]


def moved(batch: PairBatch) -> Tensor:
    T = batch.T_target_source
    return batch.source @ T[:, :3, :3].mT + T[:, None, :3, 3]


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_partial_pairs_hold_the_same_samples() -> None:
    batch = partial_pairs(shapes(), generator(), keep=150)
    assert batch.source.shape == batch.target.shape == (4, 150, 3)
    distance = torch.cdist(moved(batch), batch.target).amin(2)
    shared = (distance < 1e-5).float().mean(1)
    assert (shared > 0.6).all()
    assert (shared < 1).any()  # the crops differ


def test_the_crop_keeps_the_points_nearest_to_one_far_point() -> None:
    whole = shapes()
    batch = partial_pairs(whole, generator(), keep=150, max_angle=0, max_shift=0)
    torch.testing.assert_close(moved(batch).mean(1), batch.target.mean(1), atol=1e-5, rtol=0)
    for original, kept in zip(whole.numpy(), batch.source.numpy(), strict=True):
        heights = original.sum(1)  # along the direction of the far point, of either sign
        ends = np.sort(heights)[:150].sum(), np.sort(heights)[50:].sum()
        assert np.abs(np.array(ends) - kept.sum()).min() < 0.5


def test_noise_differs_between_pairs_and_is_clipped() -> None:
    noise = torch.tensor([0.0, 0.0, 0.01, 0.01])
    batch = partial_pairs(shapes(), generator(), keep=200, noise=noise)
    distance = torch.cdist(moved(batch), batch.target).amin(2)
    assert (distance[:2] < 1e-3).all()
    assert (distance[2:].median(1).values > 3e-3).all()
    assert distance.max() < 2 * 0.05 * 3**0.5


def test_independent_pairs_share_no_sample() -> None:
    batch = independent_pairs(shapes(), generator(), noise=0.0)
    assert batch.source.shape == batch.target.shape == (4, 70, 3)
    assert torch.cdist(moved(batch), batch.target).min() > 1e-4


def test_poses_are_rotations_about_the_axes_within_the_limits() -> None:
    T = random_poses(500, generator(), 45.0, 0.5)
    R = T[:, :3, :3]
    torch.testing.assert_close(R @ R.mT, torch.eye(3).expand_as(R), atol=1e-5, rtol=0)
    assert (torch.det(R) > 0).all()
    # Rx Ry Rz: the entry (0, 2) is the sine of the angle about y
    angle = torch.rad2deg(torch.asin(R[:, 0, 2]))
    assert angle.min() >= -1e-3
    assert angle.max() <= 45.001
    assert T[:, :3, 3].abs().max() <= 0.5


def test_the_same_seed_gives_the_same_pairs() -> None:
    for maker in (partial_pairs, independent_pairs):
        arguments = {"keep": 100} if maker is partial_pairs else {}
        first, second = (maker(shapes(), generator(3), **arguments) for _ in range(2))
        assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_impossible_sizes_are_refused() -> None:
    with pytest.raises(InputError, match="keep must be between 1 and"):
        partial_pairs(shapes(), generator(), keep=201)
    with pytest.raises(InputError, match="keep must be above 0"):
        independent_pairs(shapes(), generator(), keep=0)
