"""The CUDA backends in plain torch, on CPU tensors: they give the results of the CPU backends.

Tests with the mark `gpu` repeat the comparison on a CUDA device, in test_gpu.py.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy.spatial.transform import Rotation
from torch import Tensor

import poses
from poses import largest_difference
from wsdesc.alignment.consensus import consensus, cuda
from wsdesc.alignment.information import compute_information, find_degeneracy
from wsdesc.alignment.refine import evaluate, refine
from wsdesc.alignment.surface import CpuSurface, CudaSurface
from wsdesc.alignment.verify import verify
from wsdesc.cloud.sampling import voxel_downsample
from wsdesc.core.geometry import inverse, make_pose
from wsdesc.datasets.synthetic import RoomPair

RESOLUTION = 0.025
DISTANCE = 2 * RESOLUTION

Pair = tuple[Tensor, Tensor, np.ndarray]  # source (N, 3), target (M, 3), T_target_source


@pytest.fixture(scope="module")
def pair(room: RoomPair) -> Pair:
    """Two downsampled scans of a synthetic room."""
    clouds = [voxel_downsample(torch.as_tensor(x).float(), RESOLUTION) for x in (room.source, room.target)]
    return clouds[0], clouds[1], np.asarray(room.T_target_source)


@pytest.fixture(scope="module")
def surfaces(pair: Pair) -> tuple[CpuSurface, CpuSurface]:
    return CpuSurface.of(pair[0].numpy()), CpuSurface.of(pair[1].numpy())


@pytest.fixture(scope="module")
def cuda_surfaces(pair: Pair) -> tuple[CudaSurface, CudaSurface]:
    return CudaSurface.of(pair[0]), CudaSurface.of(pair[1])


def perturbed(pair: Pair, degrees: float, steps: float, seed: int) -> np.ndarray:
    """Perturb the true pose by an angle and a distance in resolutions."""
    return poses.perturbed(pair[2], pair[0].numpy(), degrees, steps * RESOLUTION, seed)


def difference(points: Tensor, T_a: np.ndarray, T_b: np.ndarray) -> float:
    """Return the largest distance between two poses in resolutions."""
    return largest_difference(points.numpy(), T_a, T_b) / RESOLUTION


def test_surfaces_are_equal(surfaces: tuple, cuda_surfaces: tuple) -> None:
    for expected, surface in zip(surfaces, cuda_surfaces, strict=True):
        np.testing.assert_array_equal(surface.sample, expected.sample)
        cosine = np.abs((surface.normals.numpy() * expected.normals).sum(1))
        assert (cosine > 0.999).mean() > 0.995  # among equally distant neighbours the choice may differ
        assert np.quantile(np.abs(surface.curvature.numpy() - expected.curvature), 0.99) < 1e-6
        np.testing.assert_allclose(
            surface.direction_weights, expected.direction_weights, rtol=0.02, atol=1e-6
        )


def test_scores_and_information_are_equal(pair: Pair, surfaces: tuple, cuda_surfaces: tuple) -> None:
    given = np.stack([pair[2], *(perturbed(pair, 4 * k, 3 * k, k) for k in range(1, 6)), np.eye(4)])
    for distance in (DISTANCE, 2 * DISTANCE):
        scores = [verify(*both, given, distance) for both in (cuda_surfaces, surfaces)]
        np.testing.assert_allclose(*scores, atol=2e-3)
    results = (compute_information(*both, given, DISTANCE) for both in (cuda_surfaces, surfaces))
    for known, expected in zip(*results, strict=True):
        np.testing.assert_allclose(known.matrix, expected.matrix, atol=2e-3)
        np.testing.assert_allclose(known.centre, expected.centre, atol=2e-3)
        assert known.extent == pytest.approx(expected.extent, rel=2e-3)
        assert known.height == pytest.approx(expected.height, rel=5e-3)
        assert known.pairs == pytest.approx(expected.pairs, rel=2e-3)


def test_refined_poses_are_equal(pair: Pair, surfaces: tuple, cuda_surfaces: tuple) -> None:
    starts = np.stack([perturbed(pair, *off, seed) for seed, off in enumerate([(0, 0), (3, 4), (6, 4)])])
    results = (refine(*both, starts, RESOLUTION) for both in (cuda_surfaces, surfaces))
    for refined, expected in zip(*results, strict=True):
        assert difference(pair[0], refined.T_target_source, expected.T_target_source) < 0.1
        np.testing.assert_allclose(refined.score, expected.score, atol=0.01)
        np.testing.assert_allclose(refined.information.matrix, expected.information.matrix, atol=0.01)
        assert refined.rmse == pytest.approx(expected.rmse, rel=0.02)
        R = refined.T_target_source[:3, :3]
        np.testing.assert_allclose(R @ R.T, np.eye(3), atol=1e-12)


def test_a_batch_equals_single_poses(pair: Pair, cuda_surfaces: tuple) -> None:
    starts = np.stack([perturbed(pair, 5, 3, seed) for seed in range(3)])
    together = refine(*cuda_surfaces, starts, RESOLUTION)
    for start, refined in zip(starts, together, strict=True):
        (alone,) = refine(*cuda_surfaces, start[None], RESOLUTION)
        assert difference(pair[0], alone.T_target_source, refined.T_target_source) < 1e-6


def test_swapping_the_scans_inverts_the_pose(pair: Pair, cuda_surfaces: tuple) -> None:
    start = perturbed(pair, 5, 3, 1)
    (forward,) = refine(*cuda_surfaces, start[None], RESOLUTION)
    (backward,) = refine(*cuda_surfaces[::-1], inverse(start)[None], RESOLUTION)
    assert difference(pair[0], forward.T_target_source, inverse(backward.T_target_source)) < 0.05


def test_evaluated_poses_are_equal(pair: Pair, surfaces: tuple, cuda_surfaces: tuple) -> None:
    start = perturbed(pair, 2, 2, 1)
    (refined,) = evaluate(*cuda_surfaces, start[None], RESOLUTION)
    (expected,) = evaluate(*surfaces, start[None], RESOLUTION)
    np.testing.assert_array_equal(refined.T_target_source, expected.T_target_source)
    np.testing.assert_allclose(refined.score, expected.score, atol=2e-3)
    assert not refined.converged


def test_refined_poses_of_real_scans_are_equal(read_scan: Callable[[str], Tensor]) -> None:
    names = [f"indoor/train/tum_fr1_xyz/cloud_bin_{k}.ply" for k in (1, 3)]
    p, q = map(read_scan, names)
    on_cpu, on_cuda = [CpuSurface.of(x.numpy()) for x in (p, q)], [CudaSurface.of(x) for x in (p, q)]
    (rough,) = refine(*on_cuda, np.eye(4)[None], RESOLUTION)  # the camera hardly moved
    starts = np.stack([perturbed((p, q, rough.T_target_source), 3, 4, seed) for seed in range(2)])
    results = (refine(*both, starts, RESOLUTION) for both in (on_cuda, on_cpu))
    for refined, expected in zip(*results, strict=True):
        assert expected.score.overlap_source > 0.4
        assert difference(p, refined.T_target_source, expected.T_target_source) < 0.1
        np.testing.assert_allclose(refined.score, expected.score, atol=0.02)
        np.testing.assert_allclose(refined.information.matrix, expected.information.matrix, atol=0.02)


def flat(seed: int) -> Tensor:
    g = torch.Generator().manual_seed(seed)
    points = torch.rand(6000, 3, generator=g) * torch.tensor([2.0, 2.0, 0.0])
    return voxel_downsample(points + 0.003 * torch.randn(6000, 3, generator=g), RESOLUTION)


def test_a_plane_is_degenerate_on_both() -> None:
    clouds = flat(0), flat(1)
    T = np.eye(4)
    T[:3, 3] = 0.1, 0.05, 0.02
    (refined,) = refine(*map(CudaSurface.of, clouds), T[None], RESOLUTION)
    assert find_degeneracy(refined.information, DISTANCE).kind == "plane"
    (expected,) = refine(*(CpuSurface.of(x.numpy()) for x in clouds), T[None], RESOLUTION)
    assert abs(refined.T_target_source[2, 3] - expected.T_target_source[2, 3]) < 0.1 * RESOLUTION


def test_scans_apart_keep_the_given_pose(cuda_surfaces: tuple) -> None:
    T = np.eye(4)
    T[0, 3] = 50
    (refined,) = refine(*cuda_surfaces, T[None], RESOLUTION)
    assert not refined.converged
    np.testing.assert_array_equal(refined.T_target_source, T)
    assert refined.rmse == np.inf
    assert refined.information.pairs == 0
    assert find_degeneracy(refined.information, DISTANCE).kind == "empty"


@pytest.mark.parametrize("points", [torch.eye(3)[:1], torch.eye(3)[:2], torch.eye(3), torch.ones(50, 3)])
def test_scans_of_few_points(points: Tensor, pair: Pair, cuda_surfaces: tuple) -> None:
    few, many = CudaSurface.of(points), cuda_surfaces[0]
    assert few.direction_weights.sum() == pytest.approx(1)
    for both in ((few, few), (few, many), (many, few)):
        (refined,) = refine(*both, np.eye(4)[None], RESOLUTION)
        assert np.isfinite(refined.T_target_source).all()
        assert not refined.converged
        on_cpu = [CpuSurface.of(x.points.numpy()) for x in both]
        (expected,) = verify(*on_cpu, refined.T_target_source[None], DISTANCE)
        np.testing.assert_allclose(refined.score, expected, atol=2e-3)


def matches(right: int, wrong: int, seed: int) -> tuple[Tensor, Tensor, Tensor, np.ndarray]:
    """Make matched points, some of them inliers of a pose, their weights, and the pose."""
    g = np.random.default_rng(seed)
    T = make_pose(Rotation.random(random_state=seed).as_matrix(), g.uniform(-2, 2, 3))
    p = g.uniform(-2, 2, (right + wrong, 3))
    q = p @ T[:3, :3].T + T[:3, 3] + g.normal(0, 0.01, p.shape)
    q[right:] = g.uniform(-3, 3, (wrong, 3))
    weights = np.where(g.random(len(p)) < 0.5, 1.0, 0.5)
    return *(torch.from_numpy(x).float() for x in (p, q, weights)), T


@pytest.mark.parametrize(
    ("right", "wrong", "limit"), [(30, 400, 5000), (12, 150, 5000), (60, 300, 200), (80, 0, 5000)]
)
def test_consensus_proposes_the_same_poses(right: int, wrong: int, limit: int) -> None:
    p, q, w, T = matches(right, wrong, right)
    expected = consensus(p, q, weights=w, threshold=0.05, hypotheses=6, limit=limit)
    proposed = cuda.consensus(p, q, w, 0.05, 6, limit)
    assert difference(p, proposed[0].T_target_source.numpy(), T) < 1
    assert len(proposed) == len(expected)
    for a, b in zip(proposed[:3], expected[:3], strict=True):
        assert difference(p, a.T_target_source.numpy(), b.T_target_source.numpy()) < 1e-3
        assert a.votes == pytest.approx(b.votes, rel=1e-4)
        assert (a.inliers != b.inliers).sum() <= 1


@pytest.mark.parametrize(
    "points",
    [torch.rand(2, 3), torch.zeros(30, 3), torch.rand(30, 1).expand(30, 3) * 5],
    ids=["two", "one point", "line"],
)
def test_degenerate_matches_propose_nothing(points: Tensor) -> None:
    assert cuda.consensus(points, points, torch.ones(len(points)), 0.05, 6, 5000) == []
