"""Consensus: few inliers, symmetries, reproducibility, and inputs that determine no pose."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy.spatial.transform import Rotation
from torch import Tensor

import poses
from wsdesc.alignment.consensus import consensus
from wsdesc.alignment.consensus.compatibility import MAX_PARTNERS, best_partners, compatibility_bits
from wsdesc.alignment.correspondences import most_weighted
from wsdesc.alignment.hypotheses import Hypothesis
from wsdesc.core.errors import InputError


def random_pose(seed: int, size: float = 3.0) -> Tensor:
    return torch.from_numpy(poses.random_pose(seed, size))


def moved(T: Tensor, points: Tensor) -> Tensor:
    """Transform points (N, 3) or a point (3,)."""
    return points @ T[:3, :3].T + T[:3, 3]


def matches(
    count: int, right: float, seed: int, noise: float = 0.01, size: float = 3.0
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Make matched points of a room, the true pose, and the mask of inliers."""
    g = torch.Generator().manual_seed(seed)
    source, wrong = (size * torch.rand(count, 3, generator=g, dtype=torch.float64) for _ in range(2))
    is_right = torch.randperm(count, generator=g) < round(right * count)
    T = random_pose(seed)
    error = noise * torch.randn(count, 3, generator=g, dtype=torch.float64)
    target = torch.where(is_right[:, None], moved(T, source) + error, moved(T, wrong))
    return source, target, T, is_right


def degrees(A: Tensor, B: Tensor) -> float:
    return float(np.degrees(Rotation.from_matrix((A[:3, :3].T @ B[:3, :3]).numpy()).magnitude()))


def is_near(hypothesis: Hypothesis, T: Tensor, middle: Tensor) -> bool:
    T_found = hypothesis.T_target_source
    return degrees(T_found, T) < 2 and float((moved(T_found, middle) - moved(T, middle)).norm()) < 0.05


def assert_same(proposed: list[Hypothesis], expected: list[Tensor], atol: float = 1e-8) -> None:
    assert len(proposed) == len(expected)
    for hypothesis, T in zip(proposed, expected, strict=True):
        torch.testing.assert_close(hypothesis.T_target_source, T, rtol=0, atol=atol)


@pytest.mark.parametrize("seed", range(8))
def test_two_percent_inliers_suffice(seed: int) -> None:
    source, target, T, right = matches(2000, 0.02, seed)
    best = consensus(source, target)[0]
    assert is_near(best, T, source.mean(0))
    assert best.inliers[right].double().mean() > 0.97
    assert best.T_target_source.dtype == torch.float64
    assert best.votes > 30


def test_one_percent_inliers_suffice() -> None:
    for count, seed in ((1000, 1), (1000, 2), (5000, 3)):
        source, target, T, _ = matches(count, 0.01, seed)
        assert is_near(consensus(source, target)[0], T, source.mean(0))


def test_inliers_and_votes_are_those_of_the_pose() -> None:
    source, target, _, _ = matches(500, 0.2, 3)
    weights = torch.rand(500, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for T, inliers, votes in consensus(source, target, weights=weights):
        distance = torch.linalg.vector_norm(moved(T, source) - target, dim=1)
        assert torch.equal(inliers, distance <= 0.05)
        assert votes == pytest.approx(float((weights * (1 - (distance / 0.05) ** 2).clamp(min=0)).sum()))


def test_poses_are_distinct_and_sorted() -> None:
    source, target, _, _ = matches(600, 0.1, 0)
    proposed = consensus(source, target)
    assert len(proposed) == 8
    votes = [hypothesis.votes for hypothesis in proposed]
    assert votes == sorted(votes, reverse=True)
    middle = source.mean(0)
    for a, first in enumerate(proposed):
        for second in proposed[:a]:
            A, B = first.T_target_source, second.T_target_source
            back = torch.linalg.inv(A), torch.linalg.inv(B)
            apart = (moved(A, middle) - moved(B, middle)).norm()
            apart_back = (moved(back[0], target.mean(0)) - moved(back[1], target.mean(0))).norm()
            assert degrees(A, B) > 9.99 or max(apart, apart_back) > 0.2499
    assert len(consensus(source, target, hypotheses=3)) == 3


def test_several_poses_are_sorted_by_their_inliers() -> None:
    parts = [matches(100, 1.0, seed) for seed in (1, 2, 3)]
    kept = (100, 60, 30)
    source = torch.cat([part[0][:n] for part, n in zip(parts, kept, strict=True)])
    target = torch.cat([part[1][:n] for part, n in zip(parts, kept, strict=True)])
    proposed = consensus(source, target)
    for hypothesis, (_, _, T, _) in zip(proposed, parts, strict=False):
        assert is_near(hypothesis, T, source.mean(0))


def test_a_flat_patch_of_outliers_does_not_hide_the_pose() -> None:
    """200 matches on a small square support a wrong pose, 30 inliers the right one."""
    source, target, T, right = matches(1000, 0.03, 4)
    g = torch.Generator().manual_seed(9)
    patch = torch.zeros(200, 3, dtype=torch.float64)
    patch[:, :2] = 0.1 * torch.rand(200, 2, generator=g, dtype=torch.float64)
    source = torch.cat([source, patch + 1])
    target = torch.cat([target, moved(random_pose(77), patch)])
    proposed = consensus(source, target)
    assert any(is_near(hypothesis, T, source[:1000].mean(0)) for hypothesis in proposed[:2])
    assert right.sum() == 30


def test_repetitive_structure_does_not_hide_the_pose() -> None:
    """Some matches lead to copies along a row; each copy supports a wrong pose equally."""
    source, target, T, right = matches(1200, 0.03, 6)
    g = torch.Generator().manual_seed(1)
    wrong = torch.nonzero(~right).squeeze(1)[:300]
    steps = torch.randint(1, 10, (300, 1), generator=g)
    target[wrong] = moved(T, source[wrong] + steps * torch.tensor([[0.3, 0.0, 0.0]]))
    proposed = consensus(source, target, hypotheses=12)
    for step in range(10):
        along = torch.eye(4, dtype=torch.float64)
        along[0, 3] = 0.3 * step
        assert any(is_near(hypothesis, T @ along, source.mean(0)) for hypothesis in proposed[:10])


def test_matches_on_two_planes_determine_the_pose() -> None:
    source, target, T, _ = matches(1500, 0.04, 2)
    flat = source.clone()
    flat[::2, 2] = 0
    flat[1::2, 0] = 0
    offset = target - moved(T, source)
    assert is_near(consensus(flat, moved(T, flat) + offset)[0], T, flat.mean(0))


def test_moving_the_points_moves_the_poses() -> None:
    source, target, _, _ = matches(800, 0.05, 5)
    plain = consensus(source, target)
    A, B = random_pose(11, size=20.0), random_pose(12, size=20.0)
    expected = [B @ h.T_target_source @ torch.linalg.inv(A) for h in plain]
    assert_same(consensus(moved(A, source), moved(B, target)), expected)
    scaled = consensus(1024 * source, 1024 * target, threshold=1024 * 0.05)
    assert all(torch.equal(a.inliers, b.inliers) for a, b in zip(plain, scaled, strict=True))
    far = consensus(source + 5e5, target + 5e5)
    assert all(torch.equal(a.inliers, b.inliers) for a, b in zip(plain, far, strict=True))


def test_swapping_the_sides_inverts_the_poses() -> None:
    source, target, _, _ = matches(800, 0.05, 6)
    expected = [torch.linalg.inv(h.T_target_source) for h in consensus(source, target)]
    assert_same(consensus(target, source), expected)


def test_the_order_of_the_matches_does_not_matter() -> None:
    source, target, _, _ = matches(800, 0.05, 7)
    weights = torch.rand(800, generator=torch.Generator().manual_seed(0))
    order = torch.randperm(800, generator=torch.Generator().manual_seed(1))
    plain = consensus(source, target, weights=weights)
    mixed = consensus(source[order], target[order], weights=weights[order])
    assert_same(mixed, [h.T_target_source for h in plain])
    assert all(torch.equal(a.inliers[order], b.inliers) for a, b in zip(plain, mixed, strict=True))


@pytest.mark.parametrize(("count", "right"), [(700, 0.0), (1500, 0.05), (2500, 0.6)])
def test_same_bits_on_any_number_of_threads(
    count: int, right: float, set_threads: Callable[[int], None]
) -> None:
    source, target, _, _ = matches(count, right, 5)
    results = []
    for number in (1, 2, 3):
        set_threads(number)
        results.append(consensus(source, target))
    for other in results[1:]:
        assert len(other) == len(results[0]) > 0
        for a, b in zip(results[0], other, strict=True):
            assert torch.equal(a.T_target_source, b.T_target_source)
            assert torch.equal(a.inliers, b.inliers)
            assert a.votes == b.votes


@pytest.mark.parametrize("count", [5, 64, 65, 300])
def test_common_partners_equal_brute_force(count: int) -> None:
    source, target, _, _ = matches(count, 0.3, count)
    tolerance, min_length = 0.1, 0.2
    p, q = (np.ascontiguousarray(x.numpy().T) for x in (source, target))
    bits = compatibility_bits(p, q, tolerance, min_length)
    a, b = (torch.cdist(x, x, compute_mode="donot_use_mm_for_euclid_dist").numpy() for x in (source, target))
    graph = (abs(a - b) <= tolerance) & (np.minimum(a, b) >= min_length)
    unpacked = np.unpackbits(bits.view(np.uint8), axis=1, bitorder="little")[:, :count]
    assert np.array_equal(unpacked.astype(bool), graph)

    common = graph.astype(int) @ graph.astype(int)
    partners, shared = best_partners(p, q, tolerance, bits)
    for i in range(count):
        compatible = np.flatnonzero(graph[i])
        kept = partners[i][partners[i] >= 0]
        assert len(kept) == len(set(kept)) == min(len(compatible), MAX_PARTNERS)
        assert graph[i][kept].all()
        assert np.array_equal(shared[i, : len(kept)], common[i, kept])
        assert np.array_equal(shared[i, : len(kept)], np.sort(common[i, compatible])[::-1][:MAX_PARTNERS])


def test_weights_decide_between_equal_poses() -> None:
    (s1, t1, T1, _), (s2, t2, T2, _) = matches(50, 1.0, 1), matches(50, 1.0, 2)
    source, target = torch.cat([s1, s2]), torch.cat([t1, t2])
    for heavy, T in ((slice(0, 50), T1), (slice(50, 100), T2)):
        weights = torch.ones(100)
        weights[heavy] = 2
        assert is_near(consensus(source, target, weights=weights)[0], T, source.mean(0))
    weights = torch.cat([torch.ones(50), torch.zeros(50)])
    assert not any(is_near(h, T2, source.mean(0)) for h in consensus(source, target, weights=weights))
    assert consensus(source, target, weights=torch.zeros(100)) == []


def test_matches_of_largest_weight_are_used() -> None:
    source, target, T, right = matches(2000, 0.05, 3)
    proposed = consensus(source, target, weights=1 + right.double(), limit=200)
    assert is_near(proposed[0], T, source.mean(0))
    assert proposed[0].inliers.shape == (2000,)
    assert is_near(consensus(source, target, limit=600)[0], T, source.mean(0))
    assert np.array_equal(most_weighted(np.ones(6), 3), [0, 2, 4])
    assert np.array_equal(most_weighted(np.array([0.0, 1, 3, 0, 2]), 2), [2, 4])


@pytest.mark.parametrize("count", [0, 1, 2])
def test_fewer_than_three_matches_give_no_pose(count: int) -> None:
    assert consensus(torch.rand(count, 3), torch.rand(count, 3)) == []


@pytest.mark.parametrize("case", ["coincident", "collinear", "collinear in one scan", "tiny"])
def test_degenerate_matches_give_no_pose(case: str) -> None:
    source = torch.rand(50, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    target = source.clone()
    if case == "coincident":
        source, target = source[:1].repeat(50, 1), target[:1].repeat(50, 1)
    elif case == "tiny":
        source, target = 0.05 * source, 0.05 * target
    else:
        target[:, 1:] = 0
        source = target if case == "collinear" else source
    assert consensus(source, target) == []


def test_three_exact_matches_are_enough() -> None:
    source, target, T, _ = matches(3, 1.0, 1, noise=0.0)
    (only,) = consensus(source, target)
    assert only.inliers.all()
    torch.testing.assert_close(only.T_target_source, T, rtol=0, atol=1e-9)
    assert only.votes == pytest.approx(3)


def test_single_precision_and_views_are_accepted() -> None:
    source, target, T, _ = matches(200, 0.5, 1)
    wide = torch.zeros(200, 6)
    wide[:, ::2] = source.float()
    assert is_near(consensus(wide[:, ::2], target.float())[0], T, source.mean(0))


def test_invalid_input_is_rejected() -> None:
    good = torch.zeros(5, 3)
    with pytest.raises(InputError, match="NaN"):
        consensus(good, torch.full((5, 3), torch.nan))
    with pytest.raises(InputError, match=r"\(5, 3\) and \(4, 3\)"):
        consensus(good, good[:4])
    for weights in (torch.ones(4), -torch.ones(5), torch.full((5,), torch.nan)):
        with pytest.raises(InputError, match="weights"):
            consensus(good, good, weights=weights)
    for option in ({"threshold": 0.0}, {"hypotheses": 0}, {"limit": 2}):
        with pytest.raises(InputError, match=next(iter(option))):
            consensus(good, good, **option)
