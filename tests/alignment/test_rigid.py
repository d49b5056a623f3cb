"""The weighted rigid fit."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation
from torch import Tensor

import poses
from seeded import random
from wsdesc.alignment import fit_rigid
from wsdesc.core.errors import InputError


def random_pose(seed: int) -> Tensor:
    return torch.from_numpy(poses.random_pose(seed))


def moved(T: Tensor, points: Tensor) -> Tensor:
    return points @ T[:3, :3].T + T[:3, 3]


def assert_proper(T: Tensor) -> None:
    R = T[..., :3, :3]
    identity = torch.eye(3, dtype=torch.float64).expand_as(R)
    torch.testing.assert_close(R.mT @ R, identity, rtol=0, atol=1e-12)
    torch.testing.assert_close(torch.linalg.det(R), torch.ones_like(R[..., 0, 0]))
    assert (T[..., 3, :] == torch.tensor([0.0, 0, 0, 1], dtype=torch.float64)).all()


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10_000), st.integers(3, 12), st.sampled_from([0.0, 1e6]))
def test_fit_recovers_a_pose(seed: int, count: int, offset: float) -> None:
    source = random(count, 3, seed=seed) + offset
    T = random_pose(seed)
    fit = fit_rigid(source, moved(T, source))
    assert_proper(fit)
    torch.testing.assert_close(moved(fit, source), moved(T, source), rtol=1e-12, atol=1e-7)


def test_moving_the_points_moves_the_pose() -> None:
    source, target, weights = random(20, 3), random(20, 3, seed=1), random(20, seed=2)
    T_target_source = fit_rigid(source, target, weights)
    G, H = random_pose(1), random_pose(2)
    expected = H @ T_target_source @ torch.linalg.inv(G)
    torch.testing.assert_close(
        fit_rigid(moved(G, source), moved(H, target), weights), expected, rtol=0, atol=1e-10
    )
    back = fit_rigid(target, source, weights)
    torch.testing.assert_close(back[:3, :3], T_target_source[:3, :3].T, rtol=0, atol=1e-10)


def test_fit_is_the_weighted_optimum() -> None:
    source, target, weights = random(20, 3), random(20, 3, seed=1), random(20, seed=2)

    def cost(T: Tensor) -> float:
        return float((weights[:, None] * (moved(T, source) - target)).square().sum())

    best = fit_rigid(source, target, weights)
    for seed in range(50):
        nudge = torch.eye(4, dtype=torch.float64)
        small = Rotation.from_rotvec(1e-3 * np.random.default_rng(seed).normal(size=3))
        nudge[:3, :3] = torch.from_numpy(small.as_matrix())
        nudge[:3, 3] = 1e-3 * random(3, seed=seed)
        assert cost(nudge @ best) > cost(best)


def test_weights_multiply_residuals() -> None:
    source, target = random(8, 3), random(8, 3, seed=1)
    weights = torch.ones(8, dtype=torch.float64)
    weights[0] = 2
    copies = torch.tensor([0, 0, 0, *range(8)])
    torch.testing.assert_close(
        fit_rigid(source, target, 1e-200 * weights), fit_rigid(source[copies], target[copies])
    )


@pytest.mark.parametrize("thickness", [1.0, 1e-6, 0.0])
def test_a_mirror_image_gives_a_proper_rotation(thickness: float) -> None:
    source = random(30, 3) * torch.tensor([1.0, 1.0, thickness], dtype=torch.float64)
    mirrored = source * torch.tensor([-1.0, 1.0, 1.0], dtype=torch.float64)
    fit = fit_rigid(source, mirrored)
    assert_proper(fit)
    if thickness < 1:  # a flat sheet can be rotated onto its mirror image
        assert (moved(fit, source) - mirrored).abs().max() < 1e-5


def test_batches() -> None:
    source, target, weights = random(2, 4, 9, 3), random(2, 4, 9, 3, seed=1), random(2, 4, 9, seed=2)
    whole = fit_rigid(source, target, weights)
    assert whole.shape == (2, 4, 4, 4)
    assert_proper(whole)
    torch.testing.assert_close(whole[1, 3], fit_rigid(source[1, 3], target[1, 3], weights[1, 3]))


@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_degenerate_points(offset: float) -> None:
    T = random_pose(4)
    one = random(1, 3) + offset
    fit = fit_rigid(one.repeat(5, 1), moved(T, one).repeat(5, 1))
    identity = torch.eye(3, dtype=torch.float64)
    torch.testing.assert_close(fit[:3, :3], identity, rtol=0, atol=1e-6)  # what is open stays as it is
    torch.testing.assert_close(moved(fit, one), moved(T, one))

    line = torch.linspace(-1, 1, 7, dtype=torch.float64)[:, None] * random(1, 3, seed=2) + offset
    fit = fit_rigid(line, moved(T, line))
    assert_proper(fit)
    torch.testing.assert_close(moved(fit, line), moved(T, line), rtol=1e-12, atol=1e-7)

    for source, weights in ((random(6, 3), torch.zeros(6)), (random(0, 3), torch.zeros(0))):
        assert torch.equal(fit_rigid(source, source + 1, weights), torch.eye(4, dtype=torch.float64))


def test_a_line_gets_the_smallest_rotation() -> None:
    line = torch.linspace(-1, 1, 7, dtype=torch.float64)[:, None] * torch.tensor(
        [1.0, 0, 0], dtype=torch.float64
    )
    turn = torch.from_numpy(Rotation.from_rotvec([0, 0, 0.3]).as_matrix())
    torch.testing.assert_close(fit_rigid(line, line @ turn.T)[:3, :3], turn, rtol=0, atol=1e-3)


def test_single_precision_input_is_computed_in_double() -> None:
    source = random(10, 3).float()
    assert fit_rigid(source, source).dtype == torch.float64


def test_invalid_input_is_rejected() -> None:
    with pytest.raises(InputError, match=r"\(4, 3\) and \(5, 3\)"):
        fit_rigid(torch.zeros(4, 3), torch.zeros(5, 3))
    with pytest.raises(InputError, match="NaN"):
        fit_rigid(torch.full((4, 3), torch.nan), torch.zeros(4, 3))
