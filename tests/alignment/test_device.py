"""What runs on a GPU, on tensors of the CPU: it says the same as the CPU's own code about the same clouds."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy.spatial.transform import Rotation
from torch import Tensor

from wsdesc.alignment import consensus_cuda
from wsdesc.alignment.consensus import consensus
from wsdesc.alignment.hypotheses import Hypothesis
from wsdesc.alignment.observability import degeneracy, information
from wsdesc.alignment.observability_cuda import informations
from wsdesc.alignment.refine import evaluate_pose, refine
from wsdesc.alignment.refine_cuda import refine_all
from wsdesc.alignment.surface import Surface
from wsdesc.alignment.surface_cuda import DeviceSurface
from wsdesc.alignment.verify import agreement
from wsdesc.alignment.verify_cuda import agreements
from wsdesc.cloud.sampling import voxel_downsample
from wsdesc.core.errors import InputError
from wsdesc.core.geometry import inverse
from wsdesc.datasets.synthetic import RoomPair
from wsdesc.registration.candidates import verify_hypotheses

STEP = 0.025
REACH = 2 * STEP

Pair = tuple[Tensor, Tensor, np.ndarray]  # source (N, 3), target (M, 3), T_target_source


@pytest.fixture(scope="module")
def pair(room: RoomPair) -> Pair:
    """Two scans of a synthetic room, thinned."""
    clouds = [voxel_downsample(torch.as_tensor(x).float(), STEP) for x in (room.source, room.target)]
    return clouds[0], clouds[1], np.asarray(room.T_target_source)


@pytest.fixture(scope="module")
def surfaces(pair: Pair) -> tuple[Surface, Surface]:
    return Surface.of(pair[0].numpy()), Surface.of(pair[1].numpy())


@pytest.fixture(scope="module")
def on_device(pair: Pair) -> tuple[DeviceSurface, DeviceSurface]:
    return DeviceSurface.of(pair[0]), DeviceSurface.of(pair[1])


def disturbed(pair: Pair, degrees: float, steps: float, seed: int) -> np.ndarray:
    """The true pose, off by a turn about the source's middle and a shift in units of the resolution."""
    source, _, T = pair
    turn, shift = (v / np.linalg.norm(v) for v in np.random.default_rng(seed).normal(size=(2, 3)))
    centre = source.double().mean(0).numpy()
    D = np.eye(4)
    D[:3, :3] = Rotation.from_rotvec(np.radians(degrees) * turn).as_matrix()
    D[:3, 3] = centre - D[:3, :3] @ centre + steps * STEP * shift
    return T @ D


def apart(points: Tensor, T_a: np.ndarray, T_b: np.ndarray) -> float:
    """The greatest distance between the same point under two poses, in units of the resolution."""
    D = T_a - T_b
    return float(np.linalg.norm(points.double().numpy() @ D[:3, :3].T + D[:3, 3], axis=1).max() / STEP)


def test_a_surface_is_the_same(surfaces: tuple, on_device: tuple) -> None:
    for here, there in zip(surfaces, on_device, strict=True):
        np.testing.assert_array_equal(there.sample, here.sample)
        cosine = np.abs((there.normals.numpy() * here.normals).sum(1))
        assert (cosine > 0.999).mean() > 0.995  # where neighbours are as far, others may be taken
        assert np.quantile(np.abs(there.bend.numpy() - here.bend), 0.99) < 1e-6
        np.testing.assert_allclose(there.rarity, here.rarity, rtol=0.02, atol=1e-6)


def test_many_poses_are_judged_as_each_alone(pair: Pair, surfaces: tuple, on_device: tuple) -> None:
    poses = np.stack([pair[2], *(disturbed(pair, 4 * k, 3 * k, k) for k in range(1, 6)), np.eye(4)])
    for reach in (REACH, 2 * REACH):
        alone = [agreement(*surfaces, T, reach) for T in poses]
        np.testing.assert_allclose(agreements(*on_device, poses, reach), alone, atol=2e-3)
    for T, known in zip(poses, informations(*on_device, poses, REACH), strict=True):
        expected = information(*surfaces, T, REACH)
        np.testing.assert_allclose(known.matrix, expected.matrix, atol=2e-3)
        np.testing.assert_allclose(known.centre, expected.centre, atol=2e-3)
        assert known.extent == pytest.approx(expected.extent, rel=2e-3)
        assert known.height == pytest.approx(expected.height, rel=5e-3)
        assert known.places == pytest.approx(expected.places, rel=2e-3)


def test_refines_to_the_same_pose(pair: Pair, surfaces: tuple, on_device: tuple) -> None:
    starts = np.stack([disturbed(pair, *off, seed) for seed, off in enumerate([(0, 0), (3, 4), (6, 4)])])
    for start, found in zip(starts, refine_all(*on_device, starts, resolution=STEP), strict=True):
        expected = refine(*surfaces, start, resolution=STEP)
        assert apart(pair[0], found.T_target_source, expected.T_target_source) < 0.1
        np.testing.assert_allclose(found.agreement, expected.agreement, atol=0.01)
        np.testing.assert_allclose(found.information.matrix, expected.information.matrix, atol=0.01)
        assert found.rmse == pytest.approx(expected.rmse, rel=0.02)
        R = found.T_target_source[:3, :3]
        np.testing.assert_allclose(R @ R.T, np.eye(3), atol=1e-12)


def test_a_pose_does_not_depend_on_those_beside_it(pair: Pair, on_device: tuple) -> None:
    starts = np.stack([disturbed(pair, 5, 3, seed) for seed in range(3)])
    together = refine_all(*on_device, starts, resolution=STEP)
    for start, found in zip(starts, together, strict=True):
        (alone,) = refine_all(*on_device, start[None], resolution=STEP)
        assert apart(pair[0], alone.T_target_source, found.T_target_source) < 1e-6


def test_swapping_inverts(pair: Pair, on_device: tuple) -> None:
    start = disturbed(pair, 5, 3, 1)
    (there,) = refine_all(*on_device, start[None], resolution=STEP)
    (back,) = refine_all(*on_device[::-1], inverse(start)[None], resolution=STEP)
    assert apart(pair[0], there.T_target_source, inverse(back.T_target_source)) < 0.05


def test_unrefined_says_the_same(pair: Pair, surfaces: tuple, on_device: tuple) -> None:
    start = disturbed(pair, 2, 2, 1)
    (found,) = refine_all(*on_device, start[None], resolution=STEP, refined=False)
    expected = evaluate_pose(*surfaces, start, resolution=STEP)
    np.testing.assert_array_equal(found.T_target_source, expected.T_target_source)
    np.testing.assert_allclose(found.agreement, expected.agreement, atol=2e-3)
    assert not found.converged


def test_real_scans_end_at_the_same_pose(read_scan: Callable[[str], Tensor]) -> None:
    names = [f"indoor/train/tum_fr1_xyz/cloud_bin_{k}.ply" for k in (1, 3)]
    p, q = map(read_scan, names)
    here, there = [Surface.of(x.numpy()) for x in (p, q)], [DeviceSurface.of(x) for x in (p, q)]
    (rough,) = refine_all(*there, np.eye(4)[None], resolution=STEP)  # the camera hardly moved
    starts = np.stack([disturbed((p, q, rough.T_target_source), 3, 4, seed) for seed in range(2)])
    for start, found in zip(starts, refine_all(*there, starts, resolution=STEP), strict=True):
        expected = refine(*here, start, resolution=STEP)
        assert expected.agreement.overlap_source > 0.4
        assert apart(p, found.T_target_source, expected.T_target_source) < 0.1
        np.testing.assert_allclose(found.agreement, expected.agreement, atol=0.02)
        np.testing.assert_allclose(found.information.matrix, expected.information.matrix, atol=0.02)


def test_the_same_candidates_are_chosen(pair: Pair, surfaces: tuple, on_device: tuple) -> None:
    poses = [pair[2], disturbed(pair, 40, 20, 0), disturbed(pair, 2, 1, 1), disturbed(pair, 90, 9, 2)]
    proposed = [Hypothesis(torch.from_numpy(T), torch.ones(9).bool(), 9.0 - k) for k, T in enumerate(poses)]
    expected = verify_hypotheses(proposed, surfaces, 9, refined=2)
    found = verify_hypotheses(proposed, on_device, 9, refined=2)
    for a, b in zip(found, expected, strict=True):
        assert apart(pair[0], a.refined.T_target_source, b.refined.T_target_source) < 0.1
        np.testing.assert_allclose(a.evidence, b.evidence, atol=0.02)
    assert verify_hypotheses([], on_device, 9) == []
    with pytest.raises(InputError, match="GPU"):
        verify_hypotheses(proposed, (surfaces[0], on_device[1]), 9)


def flat(seed: int) -> Tensor:
    g = torch.Generator().manual_seed(seed)
    points = torch.rand(6000, 3, generator=g) * torch.tensor([2.0, 2.0, 0.0])
    return voxel_downsample(points + 0.003 * torch.randn(6000, 3, generator=g), STEP)


def test_a_plane_slides_on_both() -> None:
    clouds = flat(0), flat(1)
    T = np.eye(4)
    T[:3, 3] = 0.1, 0.05, 0.02
    (found,) = refine_all(*map(DeviceSurface.of, clouds), T[None], resolution=STEP)
    assert degeneracy(found.information, REACH).kind == "plane"
    expected = refine(*(Surface.of(x.numpy()) for x in clouds), T, resolution=STEP)
    assert abs(found.T_target_source[2, 3] - expected.T_target_source[2, 3]) < 0.1 * STEP


def test_clouds_apart_keep_the_pose(on_device: tuple) -> None:
    T = np.eye(4)
    T[0, 3] = 50
    (found,) = refine_all(*on_device, T[None], resolution=STEP)
    assert not found.converged
    np.testing.assert_array_equal(found.T_target_source, T)
    assert found.rmse == np.inf
    assert found.information.places == 0
    assert degeneracy(found.information, REACH).kind == "empty"


@pytest.mark.parametrize("points", [torch.eye(3)[:1], torch.eye(3)[:2], torch.eye(3), torch.ones(50, 3)])
def test_clouds_that_are_hardly_any(points: Tensor, pair: Pair, on_device: tuple) -> None:
    few, many = DeviceSurface.of(points), on_device[0]
    assert few.rarity.sum() == pytest.approx(1)
    for both in ((few, few), (few, many), (many, few)):
        (found,) = refine_all(*both, np.eye(4)[None], resolution=STEP)
        assert np.isfinite(found.T_target_source).all()
        assert not found.converged
        here = [Surface.of(x.points.numpy()) for x in both]
        np.testing.assert_allclose(found.agreement, agreement(*here, found.T_target_source, REACH), atol=2e-3)


def matches(right: int, wrong: int, seed: int) -> tuple[Tensor, Tensor, Tensor, np.ndarray]:
    """Matched points of which some follow a motion, weights, and the motion."""
    g = np.random.default_rng(seed)
    T = np.eye(4)
    T[:3, :3] = Rotation.random(random_state=seed).as_matrix()
    T[:3, 3] = g.uniform(-2, 2, 3)
    p = g.uniform(-2, 2, (right + wrong, 3))
    q = p @ T[:3, :3].T + T[:3, 3] + g.normal(0, 0.01, p.shape)
    q[right:] = g.uniform(-3, 3, (wrong, 3))
    weights = np.where(g.random(len(p)) < 0.5, 1.0, 0.5)
    return *(torch.from_numpy(x).float() for x in (p, q, weights)), T


@pytest.mark.parametrize(
    ("right", "wrong", "limit"), [(30, 400, 5000), (12, 150, 5000), (60, 300, 200), (80, 0, 5000)]
)
def test_matches_propose_the_same_motions(right: int, wrong: int, limit: int) -> None:
    p, q, w, T = matches(right, wrong, right)
    expected = consensus(p, q, weights=w, threshold=0.05, hypotheses=6, limit=limit)
    found = consensus_cuda.consensus(p, q, w, 0.05, 6, limit)
    assert apart(p, found[0].T_target_source.numpy(), T) < 1
    assert len(found) == len(expected)
    for a, b in zip(found[:3], expected[:3], strict=True):
        assert apart(p, a.T_target_source.numpy(), b.T_target_source.numpy()) < 1e-3
        assert a.score == pytest.approx(b.score, rel=1e-4)
        assert (a.inliers != b.inliers).sum() <= 1


@pytest.mark.parametrize(
    "points",
    [torch.rand(2, 3), torch.zeros(30, 3), torch.rand(30, 1).expand(30, 3) * 5],
    ids=["two", "one place", "line"],
)
def test_matches_that_fix_nothing_propose_nothing(points: Tensor) -> None:
    assert consensus_cuda.consensus(points, points, torch.ones(len(points)), 0.05, 6, 5000) == []
