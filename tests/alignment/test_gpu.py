"""Alignment on a CUDA device: compared with the CPU, with single poses, and with a second run."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

import numpy as np
import pytest
import torch

from poses import largest_difference, perturbed, random_pose
from wsdesc.alignment.consensus import consensus
from wsdesc.alignment.covariance import estimate_covariance
from wsdesc.alignment.free_space import DENSE_LIMITS, measure_free_space
from wsdesc.alignment.free_space import cuda as free_space_cuda
from wsdesc.alignment.information import compute_information
from wsdesc.alignment.information import cuda as information_cuda
from wsdesc.alignment.patch_gaps import measure_patch_gap
from wsdesc.alignment.refine import cuda, gauss_newton, refine
from wsdesc.alignment.scale import cuda as scale_cuda
from wsdesc.alignment.scale import fit_similarity
from wsdesc.alignment.surface import CpuSurface, CudaSurface, make_surface, make_surfaces
from wsdesc.alignment.surface import cuda as surface_cuda
from wsdesc.alignment.verify import cuda as verify_cuda
from wsdesc.alignment.verify import verify
from wsdesc.cloud.neighbours import NeighbourGrid
from wsdesc.cloud.range_image import RangeImage
from wsdesc.cloud.sampling import voxel_downsample
from wsdesc.core.errors import InputError
from wsdesc.datasets.synthetic import RoomPair

pytestmark = pytest.mark.gpu

RESOLUTION = 0.025
DISTANCE = 2 * RESOLUTION

Points = tuple[torch.Tensor, torch.Tensor]  # source (N, 3), target (M, 3), on the CPU


@pytest.fixture(scope="module")
def points(room: RoomPair) -> Points:
    p, q = (voxel_downsample(torch.as_tensor(x).float(), RESOLUTION) for x in (room.source, room.target))
    return p, q


@pytest.fixture(scope="module")
def on_cpu(points: Points) -> tuple:
    return make_surfaces(*points)


@pytest.fixture(scope="module")
def on_cuda(points: Points) -> tuple:
    return make_surfaces(*(x.cuda() for x in points))


@pytest.fixture(scope="module")
def starts(room: RoomPair, points: Points) -> np.ndarray:
    """The true pose and perturbed ones, (4, 4, 4)."""
    T, source = np.asarray(room.T_target_source), points[0].numpy()
    return np.stack([T, *(perturbed(T, source, 4, 3 * RESOLUTION, seed) for seed in range(3))])


@pytest.mark.parametrize("generalised", [True, False])
def test_fused_equations_equal_plain_torch(on_cuda: tuple, starts: np.ndarray, generalised: bool) -> None:
    expected = cuda.sum_plainly(*on_cuda, starts, 3 * RESOLUTION, generalised)
    sums = cuda.sum_equations(*on_cuda, starts, 3 * RESOLUTION, generalised)
    np.testing.assert_array_equal(sums[:, -1], expected[:, -1])
    # Triton receives the distance in float32.
    np.testing.assert_allclose(sums, expected, rtol=0, atol=1e-6 * np.abs(expected).max())
    np.testing.assert_array_equal(sums, cuda.sum_equations(*on_cuda, starts, 3 * RESOLUTION, generalised))


@pytest.mark.parametrize("stage", [*gauss_newton.COARSE_STAGES, gauss_newton.LAST_STAGE])
def test_whole_stages_equal_single_steps(
    on_cuda: tuple, starts: np.ndarray, stage: gauss_newton.Stage
) -> None:
    far = starts[0].copy()
    far[:3, 3] += 1000.0  # without any contact pair
    starts = np.concatenate([starts, far[None]])
    expected, converged = cuda.run_steps(*on_cuda, starts, stage, RESOLUTION)
    results = [cuda.run_stage(*on_cuda, starts, stage, RESOLUTION) for _ in range(2)]
    np.testing.assert_allclose(results[0][0], expected, atol=1e-7)
    np.testing.assert_array_equal(results[0][1], converged)
    np.testing.assert_array_equal(results[0][0], results[1][0])
    np.testing.assert_array_equal(results[0][0][-1], far)


def test_whole_fit_of_the_scale_equals_single_steps(
    on_cuda: tuple, starts: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    fits = [fit_similarity(*on_cuda, starts[1], RESOLUTION) for _ in range(2)]
    far = starts[0].copy()
    far[:3, 3] += 1000.0
    assert fit_similarity(*on_cuda, far, RESOLUTION) is None
    monkeypatch.setattr(scale_cuda, "run_steps", lambda *arguments: None)
    expected = fit_similarity(*on_cuda, starts[1], RESOLUTION)
    assert expected is not None
    assert fits[0] is not None
    assert fits[1] is not None
    np.testing.assert_array_equal(fits[0].S_target_source, fits[1].S_target_source)
    np.testing.assert_allclose(fits[0].S_target_source, expected.S_target_source, atol=1e-7)
    np.testing.assert_allclose(fits[0][1:], expected[1:], rtol=1e-5, atol=1e-9)


def test_fused_verification_equals_plain_torch(on_cuda: tuple, starts: np.ndarray) -> None:
    for coarse in (True, False):
        expected = verify_cuda.sum_sides_plainly(*on_cuda, starts, DISTANCE, coarse)
        sums = verify_cuda.sum_sides(*on_cuda, starts, DISTANCE, coarse)
        torch.testing.assert_close(sums, expected, rtol=1e-6, atol=1e-6)
        assert torch.equal(sums, verify_cuda.sum_sides(*on_cuda, starts, DISTANCE, coarse))


def test_fused_information_equals_plain_torch(on_cuda: tuple, starts: np.ndarray) -> None:
    expected = information_cuda.sum_plainly(*on_cuda, starts, DISTANCE)
    sums = information_cuda.sum_products(*on_cuda, starts, DISTANCE)
    torch.testing.assert_close(sums, expected, rtol=0, atol=1e-6 * float(expected.abs().max()))
    assert torch.equal(sums, information_cuda.sum_products(*on_cuda, starts, DISTANCE))


@pytest.mark.parametrize("coarse", [True, False])
def test_fused_scale_equals_plain_torch(on_cuda: tuple, starts: np.ndarray, coarse: bool) -> None:
    S = starts[0].copy()
    S[:3, :3] *= 1.03
    forth, back = torch.from_numpy(np.stack([S, np.linalg.inv(S)])[:, None]).cuda()
    expected = scale_cuda.sum_plainly(*on_cuda, (forth, back), DISTANCE, coarse)
    sums = scale_fused().sum_products(*on_cuda, (forth, back), DISTANCE, coarse)
    torch.testing.assert_close(sums, expected, rtol=0, atol=1e-6 * float(expected.abs().max()))


def test_fused_planes_equal_plain_torch(points: Points) -> None:
    grid = NeighbourGrid.of(points[0].cuda())
    rows = surface_cuda.fit_planes(grid, points[0].cuda().double())
    expected = surface_cuda.fit_planes_plainly(grid, points[0].cuda().double(), 20)
    assert torch.equal(rows[:, :3], expected[:, :3])
    same = (
        rows[:, 6] - expected[:, 6]
    ).abs() < 1e-9  # among equally distant neighbours the choice may differ
    assert same.double().mean() > 0.995
    cosine = (rows[:, 3:6] * expected[:, 3:6]).sum(1).abs()
    assert (cosine[same] > 1 - 1e-6).double().mean() > 0.995


def test_covariance_equals_the_cpu(on_cpu: tuple, on_cuda: tuple, starts: np.ndarray) -> None:
    refined = [refine(*surfaces, starts[:1], RESOLUTION)[0] for surfaces in (on_cpu, on_cuda)]
    expected, covariance = (
        estimate_covariance(*surfaces, pose, RESOLUTION)
        for surfaces, pose in zip((on_cpu, on_cuda), refined, strict=True)
    )
    assert expected is not None
    assert covariance is not None
    np.testing.assert_allclose(covariance.matrix, expected.matrix, atol=0.05 * np.abs(expected.matrix).max())


def scale_fused() -> ModuleType:
    """The triton module, which cannot be imported without triton."""
    return import_module("wsdesc.alignment.scale.fused")


def test_surface_equals_the_cpu(on_cpu: tuple, on_cuda: tuple) -> None:
    for expected, surface in zip(on_cpu, on_cuda, strict=True):
        assert (expected.backend, surface.backend) == ("cpu", "cuda")
        assert surface.points.is_cuda
        np.testing.assert_array_equal(surface.sample.cpu(), expected.sample)
        cosine = np.abs((surface.normals.cpu().numpy() * expected.normals).sum(1))
        assert (cosine > 0.999).mean() > 0.995  # among equally distant neighbours the choice may differ
        assert np.quantile(np.abs(surface.curvature.cpu().numpy() - expected.curvature), 0.99) < 1e-6
        np.testing.assert_allclose(
            surface.direction_weights.cpu(), expected.direction_weights, rtol=0.02, atol=1e-6
        )


def test_surface_is_the_same_twice(points: Points) -> None:
    a, b = (CudaSurface.of(points[0].cuda()) for _ in range(2))
    for name in ("points", "normals", "curvature", "sample", "direction_weights"):
        assert torch.equal(getattr(a, name), getattr(b, name)), name


def test_scores_equal_the_cpu(on_cpu: tuple, on_cuda: tuple, starts: np.ndarray) -> None:
    for distance in (DISTANCE, 2 * DISTANCE):
        expected, scores = (verify(*surfaces, starts, distance) for surfaces in (on_cpu, on_cuda))
        np.testing.assert_allclose(scores, expected, atol=2e-3)


@pytest.mark.parametrize("dense", [False, True])
def test_free_space_equals_the_cpu(
    points: Points, on_cpu: tuple, on_cuda: tuple, starts: np.ndarray, dense: bool
) -> None:
    images = tuple(RangeImage.of(x.numpy(), np.zeros(3)) for x in points)
    expected, counted = (measure_free_space(*s, images, starts, dense=dense) for s in (on_cpu, on_cuda))
    assert sum(one.in_view for one in expected) > 0
    for one, other in zip(expected, counted, strict=True):
        np.testing.assert_allclose(np.ravel(other), np.ravel(one), atol=10)


def test_counts_in_one_kernel_equal_plain_torch(points: Points, on_cuda: tuple, starts: np.ndarray) -> None:
    fused = import_module("wsdesc.alignment.free_space.fused")  # needs triton
    image = RangeImage.of(points[1].numpy(), np.zeros(3))
    surface = on_cuda[0]
    tensors = (torch.from_numpy(x).cuda() for x in (starts, image.viewpoint, image.free))
    limits = DENSE_LIMITS._replace(margin=0.0, relative_margin=0.0)
    arguments = surface.points, surface.neighbours, *tensors, limits
    counts, expected = fused.count_points(*arguments), free_space_cuda.count_plainly(*arguments)
    assert expected[:, 2].max() > 0
    torch.testing.assert_close(counts, expected, atol=2, rtol=0)


def test_information_equals_the_cpu(on_cpu: tuple, on_cuda: tuple, starts: np.ndarray) -> None:
    results = (compute_information(*surfaces, starts, DISTANCE) for surfaces in (on_cpu, on_cuda))
    for expected, information in zip(*results, strict=True):
        np.testing.assert_allclose(information.matrix, expected.matrix, atol=2e-3)
        np.testing.assert_allclose(information.centre, expected.centre, atol=2e-3)
        assert information.extent == pytest.approx(expected.extent, rel=2e-3)
        assert information.pairs == pytest.approx(expected.pairs, rel=2e-3)


def test_patch_gaps_equal_the_cpu(on_cpu: tuple, on_cuda: tuple, starts: np.ndarray) -> None:
    for T in starts:
        expected, gap = (measure_patch_gap(*surfaces, T) for surfaces in (on_cpu, on_cuda))
        assert gap == pytest.approx(expected, rel=0.02)


def test_refined_poses_equal_the_cpu(
    points: Points, on_cpu: tuple, on_cuda: tuple, starts: np.ndarray
) -> None:
    results = (refine(*surfaces, starts, RESOLUTION) for surfaces in (on_cpu, on_cuda))
    for expected, refined in zip(*results, strict=True):
        distance = largest_difference(points[0], refined.T_target_source, expected.T_target_source)
        assert distance < 0.1 * RESOLUTION
        np.testing.assert_allclose(refined.score, expected.score, atol=0.01)


def test_a_batch_equals_single_poses(points: Points, on_cuda: tuple, starts: np.ndarray) -> None:
    scores = verify(*on_cuda, starts, DISTANCE)
    informations = compute_information(*on_cuda, starts, DISTANCE)
    refined = refine(*on_cuda, starts, RESOLUTION)
    for k, T in enumerate(starts):
        (score,) = verify(*on_cuda, T[None], DISTANCE)
        (information,) = compute_information(*on_cuda, T[None], DISTANCE)
        (single,) = refine(*on_cuda, T[None], RESOLUTION)
        np.testing.assert_allclose(scores[k], score, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(informations[k].matrix, information.matrix, atol=1e-9)
        distance = largest_difference(points[0], refined[k].T_target_source, single.T_target_source)
        assert distance < 1e-4 * RESOLUTION  # sums of a batch have another order


def test_two_runs_give_the_same_bits(on_cuda: tuple, starts: np.ndarray) -> None:
    assert verify(*on_cuda, starts, DISTANCE) == verify(*on_cuda, starts, DISTANCE)
    for a, b in zip(*(compute_information(*on_cuda, starts, DISTANCE) for _ in range(2)), strict=True):
        np.testing.assert_array_equal(a.matrix, b.matrix)
    for a, b in zip(*(refine(*on_cuda, starts, RESOLUTION) for _ in range(2)), strict=True):
        np.testing.assert_array_equal(a.T_target_source, b.T_target_source)
        assert a.score == b.score


def matches(inliers: int, outliers: int) -> tuple[torch.Tensor, torch.Tensor, np.ndarray]:
    """Make matched points with outliers, and the pose of the inliers."""
    g, T = np.random.default_rng(0), random_pose(0, 2.0)
    p = g.uniform(-2, 2, (inliers + outliers, 3))
    q = p @ T[:3, :3].T + T[:3, 3] + g.normal(0, 0.01, p.shape)
    q[inliers:] = g.uniform(-3, 3, (outliers, 3))
    return torch.from_numpy(p).float(), torch.from_numpy(q).float(), T


def test_consensus_equals_the_cpu_and_itself() -> None:
    p, q, T = matches(40, 400)
    expected = consensus(p, q, hypotheses=4)
    results = [consensus(p.cuda(), q.cuda(), hypotheses=4) for _ in range(2)]
    assert largest_difference(p, results[0][0].T_target_source.numpy(), T) < 0.05
    for a, b in zip(results[0][:2], expected[:2], strict=True):
        assert largest_difference(p, a.T_target_source.numpy(), b.T_target_source.numpy()) < 1e-3
        assert a.votes == pytest.approx(b.votes, rel=1e-4)
    for a, b in zip(*results, strict=True):
        assert torch.equal(a.T_target_source, b.T_target_source)
        assert torch.equal(a.inliers, b.inliers)


def test_surfaces_on_two_devices_are_rejected(points: Points) -> None:
    mixed = (make_surface(points[0]), make_surface(points[1].cuda()))
    assert isinstance(mixed[0], CpuSurface)
    with pytest.raises(InputError, match="one device"):
        verify(*mixed, np.eye(4)[None], DISTANCE)
