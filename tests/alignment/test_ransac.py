"""RANSAC: outliers, reproducibility, and inputs that determine no pose."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy.spatial.transform import Rotation
from torch import Tensor

from wsdesc.alignment import fit_rigid, ransac
from wsdesc.alignment.ransac import _try_samples
from wsdesc.core.errors import InputError
from wsdesc.core.geometry import make_pose


def matches(
    count: int, outliers: float, seed: int, noise: float = 0.01, size: float = 3.0
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Make matched points of a room, the true pose, and the mask of inliers."""
    g = np.random.default_rng(seed)
    T = make_pose(Rotation.random(random_state=seed).as_matrix(), g.uniform(-size, size, 3))
    source = g.uniform(0, size, (count, 3))
    wrong = g.permutation(count) < round(outliers * count)
    true = source @ T[:3, :3].T + T[:3, 3] + g.normal(0, noise, (count, 3))
    false = g.uniform(0, size, (count, 3)) @ T[:3, :3].T + T[:3, 3]
    target = np.where(wrong[:, None], false, true)
    return *(torch.from_numpy(x) for x in (source, target, T)), torch.from_numpy(~wrong)


def angle(A: Tensor, B: Tensor) -> float:
    return float(np.degrees(Rotation.from_matrix((A[:3, :3].T @ B[:3, :3]).numpy()).magnitude()))


@pytest.mark.parametrize("seed", range(12))
def test_pose_is_found_among_ninety_percent_outliers(seed: int) -> None:
    source, target, T, right = matches(1000, 0.9, seed)
    result = ransac(source, target, seed=seed)
    assert result.success
    assert angle(result.T_target_source, T) < 0.3
    assert torch.linalg.vector_norm((result.T_target_source - T)[:3, 3]) < 0.02
    assert result.inliers[right].double().mean() > 0.97
    assert result.score == pytest.approx(result.inliers.double().mean().item())
    assert result.T_target_source.dtype == torch.float64


def test_inliers_are_those_of_the_pose() -> None:
    source, target, _, _ = matches(500, 0.8, 3)
    T, inliers, *_ = ransac(source, target)
    distance = torch.linalg.vector_norm(source @ T[:3, :3].T + T[:3, 3] - target, dim=1)
    assert torch.equal(inliers, distance <= 0.05)
    # The last refit did not change them.
    torch.testing.assert_close(T, fit_rigid(source[inliers], target[inliers]), rtol=0, atol=1e-9)


@pytest.mark.parametrize(("count", "outliers"), [(1000, 0.95), (1000, 1.0), (20_000, 0.5)])
def test_same_bits_on_any_number_of_threads(
    count: int, outliers: float, set_threads: Callable[[int], None]
) -> None:
    source, target, _, _ = matches(count, outliers, 5)
    results = []
    for number in (1, 2, 3):
        set_threads(number)
        results.append(ransac(source, target, iterations=10_000, seed=7))
    for other in results[1:]:
        assert torch.equal(other.T_target_source, results[0].T_target_source)
        assert torch.equal(other.inliers, results[0].inliers)
        assert other[2:] == results[0][2:]


def test_seeds_give_different_poses() -> None:
    source, target, _, _ = matches(1000, 1.0, 5)
    first, second = (ransac(source, target, seed=s).T_target_source for s in (1, 2))
    assert not torch.equal(first, second)
    ransac(source, target, iterations=10, seed=-1)
    ransac(source, target, iterations=10, seed=2**70)


def test_fit_of_three_points_equals_kabsch() -> None:
    for seed in range(30):
        g = np.random.default_rng(seed)
        p, q = g.normal(size=(2, 3, 3))
        counts, poses = np.zeros(1, np.int64), np.empty((1, 3, 4))
        _try_samples(0, 1, seed, np.uint64(0), p, q, 1e6, 0.0, counts, poses)
        expected = fit_rigid(torch.from_numpy(p.T), torch.from_numpy(q.T))[:3]
        assert counts[0] == 3
        np.testing.assert_allclose(poses[0], expected, atol=1e-10)


def test_every_triple_is_drawn_equally_often() -> None:
    g = np.random.default_rng(0)
    p, q = g.normal(size=(2, 3, 5))
    draws = 6000
    counts, poses = np.zeros(draws, np.int64), np.empty((draws, 3, 4))
    _try_samples(0, draws, 0, np.uint64(3), p, q, 1e6, 0.0, counts, poses)
    _, frequency = np.unique(poses.reshape(draws, 12).round(6), axis=0, return_counts=True)
    assert len(frequency) == 10
    assert abs(frequency - draws / 10).max() < 5 * (draws / 10) ** 0.5


def test_search_stops_at_the_requested_confidence() -> None:
    source, target, _, _ = matches(300, 0.3, 0)
    assert ransac(source, target).iterations < 5_000
    assert ransac(source, target, confidence=1.0, iterations=5_001).iterations == 5_001
    source, target, _, _ = matches(1000, 0.9, 0)
    # One sample in a thousand consists of inliers: 99.9 % confidence needs about 6 900.
    assert 6_900 <= ransac(source, target).iterations < 12_000
    assert ransac(source, target, confidence=0.5).iterations < 6_900


def test_units_and_offsets_do_not_change_the_inliers() -> None:
    source, target, T, _ = matches(400, 0.7, 2)
    plain = ransac(source, target, seed=1)
    scaled = ransac(1024 * source, 1024 * target, threshold=1024 * 0.05, seed=1)
    assert torch.equal(plain.inliers, scaled.inliers)
    shifted = ransac(source + 5e5, target + 5e5, seed=1)
    assert angle(shifted.T_target_source, T) < 0.3
    assert torch.equal(plain.inliers, shifted.inliers)


def test_samples_with_stretched_edges_are_skipped() -> None:
    source, _, _, _ = matches(100, 0.0, 0)
    stretched = 1.2 * source
    rejected = ransac(source, stretched, threshold=1.0, iterations=2_000)
    assert not rejected.success
    assert rejected.iterations == 2_000
    assert ransac(source, stretched, threshold=1.0, iterations=2_000, edge_ratio=0.8).success


@pytest.mark.parametrize("count", [0, 1, 2])
def test_fewer_than_three_matches_give_no_success(count: int) -> None:
    result = ransac(torch.zeros(count, 3), torch.zeros(count, 3))
    assert not result.success
    assert torch.equal(result.T_target_source, torch.eye(4, dtype=torch.float64))
    assert result.inliers.shape == (count,)
    assert not result.inliers.any()
    assert (result.score, result.iterations) == (0.0, 0)


@pytest.mark.parametrize("case", ["coincident", "collinear", "collinear in one scan"])
def test_degenerate_matches_give_no_pose(case: str) -> None:
    source = torch.rand(50, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    target = source.clone()
    if case == "coincident":
        source, target = source[:1].repeat(50, 1), target[:1].repeat(50, 1)
    else:
        target[:, 1:] = 0
        source = target if case == "collinear" else source
    result = ransac(source, target, iterations=3_000)
    assert not result.success
    assert torch.equal(result.T_target_source, torch.eye(4, dtype=torch.float64))


def test_three_exact_matches_are_enough() -> None:
    source, target, T, _ = matches(3, 0.0, 1, noise=0.0)
    result = ransac(source, target)
    assert result.inliers.all()
    torch.testing.assert_close(result.T_target_source, T, rtol=0, atol=1e-9)


def test_single_precision_and_views_are_accepted() -> None:
    source, target, T, _ = matches(200, 0.5, 1)
    wide = torch.zeros(200, 6)
    wide[:, ::2] = source.float()
    assert angle(ransac(wide[:, ::2], target.float()).T_target_source, T) < 0.3


def test_invalid_input_is_rejected() -> None:
    good = torch.zeros(5, 3)
    with pytest.raises(InputError, match="NaN"):
        ransac(good, torch.full((5, 3), torch.nan))
    with pytest.raises(InputError, match=r"\(5, 3\) and \(4, 3\)"):
        ransac(good, good[:4])
    for option in ({"threshold": 0.0}, {"edge_ratio": 1.5}, {"iterations": 0}, {"confidence": 0.0}):
        with pytest.raises(InputError, match=next(iter(option))):
            ransac(good, good, **option)
