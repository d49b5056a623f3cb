"""Differentiable voxelization: values and gradients of all backends."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from voxel_scenes import (
    SIGMA,
    VoxelScene,
    band_of,
    gradients,
    pairs_at_cutoff,
    random_scene,
    rotations,
    scan_scene,
    seeded,
    without_cutoff_pairs,
)
from wsdesc import voxelize
from wsdesc.cloud.neighbours import NeighbourGrid
from wsdesc.core.errors import InputError


def assert_close_except_cutoff(
    scene: VoxelScene, support: float, h: int, sigma: float, cutoff: float
) -> None:
    fast = voxelize(*scene, support, h, sigma, cutoff, backend="numba")
    slow = voxelize(*scene, support, h, sigma, cutoff, backend="reference")
    assert fast.shape == (len(scene.keypoints), h, h, h)
    assert slow.amax() > 0.5  # not empty
    gap = (fast - slow).abs()
    assert gap.amax() < 2e-3
    band = pairs_at_cutoff(scene, support, h, sigma, cutoff).any(1).view_as(gap)
    assert band.double().mean() < 0.3
    assert gap[~band].amax() < 1e-5


@pytest.mark.parametrize("h", [8, 16, 5])
@pytest.mark.parametrize("support", [0.35, 1.0, 1.5, 3.0])
def test_numba_equals_the_reference(support: float, h: int) -> None:
    assert_close_except_cutoff(random_scene(keypoints=2), support, h, SIGMA, 1e-3)


@pytest.mark.parametrize(("sigma", "cutoff"), [(1e-4, 1e-3), (1e-2, 1e-3), (1e-3, 0.02), (1e-3, 0.4)])
def test_numba_equals_the_reference_with_other_sigma_and_cutoff(sigma: float, cutoff: float) -> None:
    assert_close_except_cutoff(random_scene(800), 1.0, 8, sigma, cutoff)


@pytest.mark.parametrize("support", [0.35, 1.5, 3.0])
def test_numba_equals_the_reference_on_a_scan(support: float, kitchen: Tensor) -> None:
    assert_close_except_cutoff(scan_scene(kitchen), support, 16, SIGMA, 1e-3)


@pytest.mark.parametrize("h", [1, 2, 3])
def test_numba_equals_the_reference_for_small_grids(h: int) -> None:
    assert_close_except_cutoff(random_scene(300), 0.5, h, SIGMA, 1e-3)


def test_without_cutoff_equals_the_paper_product() -> None:
    support, h = 1.3, 6
    points, keypoints, _ = random_scene(400, 2)
    scene = VoxelScene(points.double(), keypoints.double(), rotations(2))
    values = voxelize(*scene, support, h, SIGMA, cutoff=None)
    points, keypoints, frames = (t.numpy() for t in scene)
    r = support / (2 * h)
    for k in range(2):
        for cell in np.ndindex(h, h, h):
            o = keypoints[k] + frames[k] @ (support * ((np.array(cell) + 0.5) / h - 0.5))
            d = np.linalg.norm(points - o, axis=1) - r
            p = 1 / (1 + np.exp(np.minimum(np.sign(d) * d**2 / SIGMA, 700)))
            assert float(values[k][cell]) == pytest.approx(1 - np.prod(1 - p), abs=1e-10)


def test_cutoff_distance() -> None:
    h, support = 3, 0.3
    r, band = support / (2 * h), band_of(SIGMA, 1e-3)
    assert band == pytest.approx(0.0831, abs=1e-4)
    centre = torch.zeros(1, 3)
    for beyond, value in ((-1e-4, 1e-3), (1e-4, 0.0)):
        points = torch.tensor([[r + band + beyond, 0.0, 0.0], [10.0, 10.0, 10.0]])
        for backend in ("numba", "reference"):
            grid = voxelize(points, centre, torch.eye(3)[None], support, h, backend=backend)
            assert float(grid[0, 1, 1, 1]) == pytest.approx(value, rel=0.02)


def test_a_point_fills_its_voxel() -> None:
    """The axes of the grid are the columns of the frame."""
    h, support = 8, 4.0
    frame = rotations(1, 3)[0]
    cell = torch.tensor([2, 5, 7])
    keypoint = torch.tensor([[1.0, -2.0, 0.5]], dtype=torch.float64)
    point = keypoint + frame @ (support * ((cell.double() + 0.5) / h - 0.5))
    for backend in ("numba", "reference"):
        grid = voxelize(point.float(), keypoint.float(), frame[None].float(), support, h, backend=backend)[0]
        assert grid.flatten().argmax() == (cell * torch.tensor([64, 8, 1])).sum()
        assert grid.amax() > 0.999
        assert grid.sum() < 1.1


@pytest.mark.parametrize("cutoff", [None, 1e-3])
@pytest.mark.parametrize("each", [False, True], ids=["one support", "support per keypoint"])
def test_reference_gradients_against_finite_differences(cutoff: float | None, each: bool) -> None:
    h, size = 3, 0.4
    scene = without_cutoff_pairs(random_scene(400, 2, seed=4), size, h, width=1e-3)
    close = torch.cdist(scene.points, scene.keypoints).amin(1) < 0.3
    scene = VoxelScene(*(t.double() for t in scene._replace(points=scene.points[close][:12])))
    assert len(scene.points) >= 6
    support = torch.full((2,) if each else (), size, dtype=torch.float64, requires_grad=True)

    def layer(points: Tensor, support: Tensor) -> Tensor:
        return voxelize(points, scene.keypoints, scene.frames, support, h, SIGMA, cutoff)

    inputs = (scene.points.clone().requires_grad_(), support)
    assert torch.autograd.gradcheck(layer, inputs, eps=1e-6, atol=1e-6)
    both = torch.autograd.grad(layer(*inputs).sum(), inputs)
    assert all(g.abs().amax() > 1e-2 for g in both)


@pytest.mark.parametrize("support", [0.35, 1.0, 1.5])
@pytest.mark.parametrize("h", [5, 16])
def test_numba_gradients_equal_the_reference(support: float, h: int) -> None:
    scene = without_cutoff_pairs(random_scene(400, 3, seed=2), support, h)
    for size in (torch.tensor(support), torch.full((3,), support)):
        fast, slow = (gradients(scene, size, h, backend) for backend in ("numba", "reference"))
        for a, b in zip(fast, slow, strict=True):
            assert a.shape == b.shape
            assert b.abs().amax() > 1e-2
            torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4 * float(b.abs().amax()))


def test_numba_gradients_on_a_scan(kitchen: Tensor) -> None:
    scene = without_cutoff_pairs(scan_scene(kitchen, 2), 1.5, 16)
    fast, slow = (gradients(scene, torch.tensor(1.5), 16, backend) for backend in ("numba", "reference"))
    for a, b in zip(fast, slow, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-3 * float(b.abs().amax()))


def test_one_support_per_keypoint() -> None:
    scene = random_scene()
    sizes = torch.tensor([0.4, 1.0, 2.5])
    for backend in ("numba", "reference"):
        whole = voxelize(*scene, sizes, 8, backend=backend)
        for k in range(3):
            alone = voxelize(
                scene.points,
                scene.keypoints[k : k + 1],
                scene.frames[k : k + 1],
                sizes[k],
                8,
                backend=backend,
            )
            assert torch.equal(alone[0], whole[k])


def test_a_larger_support_includes_farther_points() -> None:
    points = torch.tensor([[0.9, 0.0, 0.0]])
    centre, frame = torch.zeros(1, 3), torch.eye(3)[None]
    assert voxelize(points, centre, frame, 1.0).amax() == 0
    assert voxelize(points, centre, frame, 2.0).amax() > 0.2


def test_invariant_to_the_order_of_points() -> None:
    scene = random_scene()
    shuffled = scene._replace(points=scene.points[torch.randperm(len(scene.points), generator=seeded(3))])
    same, other = (voxelize(*s, 1.0, 8, backend="reference") for s in (scene, shuffled))
    torch.testing.assert_close(other, same, rtol=0, atol=2e-6)
    same, other = (voxelize(*s, 1.0, 8, backend="numba") for s in (scene, shuffled))
    assert torch.equal(other, same)


@pytest.mark.parametrize("backend", ["numba", "reference"])
def test_invariant_to_rigid_transformations(backend: str) -> None:
    scene = without_cutoff_pairs(random_scene(), 1.5, 8)
    R, t = rotations(1, 5)[0], torch.tensor([3.0, -1.0, 2.0], dtype=torch.float64)
    moved = VoxelScene(
        (scene.points.double() @ R.T + t).float(),
        (scene.keypoints.double() @ R.T + t).float(),
        (R @ scene.frames.double()).float(),
    )
    before, after = (voxelize(*s, 1.5, 8, backend=backend) for s in (scene, moved))
    torch.testing.assert_close(before, after, rtol=0, atol=1e-4)
    rotated_only = voxelize(*moved._replace(frames=scene.frames), 1.5, 8, backend=backend)
    assert (rotated_only - before).abs().amax() > 0.5


@pytest.mark.parametrize("backend", ["numba", "reference"])
def test_invariant_to_the_unit(backend: str) -> None:
    scene = without_cutoff_pairs(random_scene(), 1.0, 8)
    large = VoxelScene(scene.points * 1000, scene.keypoints * 1000, scene.frames)
    metres = voxelize(*scene, 1.0, 8, SIGMA, backend=backend)
    millimetres = voxelize(*large, 1000.0, 8, SIGMA * 1e6, backend=backend)
    torch.testing.assert_close(millimetres, metres, rtol=0, atol=1e-4)


@pytest.mark.parametrize("backend", ["numba", "reference"])
def test_many_coincident_points(backend: str) -> None:
    points = torch.tensor([[0.03, 0.04, 0.02]]).repeat(100_000, 1)
    points[-1] += 0.7
    size = torch.tensor(0.5, requires_grad=True)
    grids = voxelize(points, torch.zeros(1, 3), torch.eye(3)[None], size, 4, backend=backend)
    assert torch.isfinite(grids).all()
    assert grids[0, 2, 2, 2] > 1 - 1e-6
    assert grids.amax() <= 1
    grids.sum().backward()
    assert size.grad is not None
    assert torch.isfinite(size.grad)


@pytest.mark.parametrize("backend", ["numba", "reference"])
@pytest.mark.parametrize("h", [3, 4])
def test_a_point_on_a_voxel_centre(backend: str, h: int) -> None:
    """The centre of the keypoint's voxel, and of a voxel off the grid's centre."""
    points = torch.tensor([[0.0, 0, 0], [1.0, 0, 0], [0.5, 0.5, 0.5]], requires_grad=True)
    size = torch.tensor(float(h), requires_grad=True)
    grids = voxelize(points, torch.zeros(1, 3), torch.eye(3)[None], size, h, 1.0, backend=backend)
    grads = torch.autograd.grad(grids.sum(), (points, size))
    assert all(torch.isfinite(t).all() for t in (grids, *grads))
    assert grids.amax() > 0.5


def test_far_points_have_no_effect() -> None:
    scene = random_scene()
    beyond = torch.cat([torch.randn(100, 3, generator=seeded(8)) + 20, torch.tensor([[3e5, -1e6, 0.0]])])
    more = scene._replace(points=torch.cat([scene.points, beyond]))
    same, other = (voxelize(*s, 1.5, 8, backend="reference") for s in (scene, more))
    assert torch.equal(other, same)
    same, other = (voxelize(*s, 1.5, 8, backend="numba") for s in (scene, more))
    assert torch.equal(other, same)


def test_keypoints_without_neighbours_have_empty_grids() -> None:
    points, size = torch.rand(50, 3), torch.tensor(1.0, requires_grad=True)
    for backend in ("numba", "reference"):
        grids = voxelize(points, torch.full((1, 3), 40.0), torch.eye(3)[None], size, 8, backend=backend)
        assert (grids == 0).all()
        assert torch.autograd.grad(grids.sum(), size)[0] == 0


def test_invariant_to_the_number_of_threads(set_threads: Callable[[int], None]) -> None:
    scene = random_scene(3000, 150)
    results = []
    for threads in (1, 2):
        set_threads(threads)
        grids = voxelize(*scene, 1.0, 8)
        results.append((grids, *gradients(scene, torch.full((150,), 1.0), 8, "numba")))
    for one, two in zip(*results, strict=True):
        assert torch.equal(one, two)


def test_neighbour_grid_instead_of_points() -> None:
    scene = random_scene()
    grid = NeighbourGrid.of(scene.points)
    assert torch.equal(voxelize(grid, *scene[1:], 1.0, 8), voxelize(*scene, 1.0, 8))
    torch.testing.assert_close(
        voxelize(grid, *scene[1:], 1.0, 8, backend="reference"), voxelize(*scene, 1.0, 8, backend="reference")
    )
    size = torch.tensor(1.0, requires_grad=True)
    assert torch.autograd.grad(voxelize(grid, *scene[1:], size, 8).sum(), size)[0] != 0


def test_double_precision() -> None:
    scene = random_scene(300)
    exact = voxelize(*(t.double() for t in scene), 1.0, 8)
    assert exact.dtype == torch.float64
    torch.testing.assert_close(exact.float(), voxelize(*scene, 1.0, 8), rtol=0, atol=2e-3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"backend": "opencl"}, "opencl"),
        ({"backend": "numba", "cutoff": None}, "reference"),
        ({"backend": "numba", "cutoff": 1e-5}, "reference"),
        ({"backend": "triton"}, "triton"),
        ({"points": torch.zeros(4, 2)}, "points"),
        ({"points": torch.empty(0, 3)}, "points"),
        ({"points": torch.full((4, 3), torch.nan)}, "points"),
        ({"keypoints": torch.zeros(2)}, "keypoints"),
        ({"keypoints": torch.empty(0, 3)}, "keypoints"),
        ({"keypoints": torch.full((2, 3), torch.nan)}, "keypoints"),
        ({"frames": torch.eye(3)}, "frames"),
        ({"frames": torch.eye(3).expand(3, 3, 3)}, "frames"),
        ({"frames": torch.full((2, 3, 3), torch.inf)}, "frames"),
        ({"support": 0.0}, "support"),
        ({"support": -1.0}, "support"),
        ({"support": float("nan")}, "support"),
        ({"support": torch.ones(3)}, "support"),
        ({"support": torch.ones(2, 1)}, "support"),
        ({"support": torch.tensor([1.0, -1.0])}, "support"),
        ({"resolution": 0}, "resolution"),
        ({"sigma": 0.0}, "sigma"),
        ({"sigma": float("nan")}, "sigma"),
        ({"sigma": float("inf")}, "sigma"),
        ({"cutoff": 0.5}, "cut-off"),
        ({"cutoff": 0.0}, "cut-off"),
    ],
)
def test_invalid_arguments(change: dict[str, object], message: str) -> None:
    good = {
        "points": torch.rand(10, 3),
        "keypoints": torch.zeros(2, 3),
        "frames": torch.eye(3).expand(2, 3, 3),
        "support": 1.0,
    }
    with pytest.raises(InputError, match=message):
        voxelize(**{**good, **change})  # type: ignore[arg-type]


def test_tiny_support() -> None:
    """All voxels are at the keypoint; its own point is inside with a probability of 0.5."""
    point = torch.zeros(1, 3)
    for backend in ("numba", "reference"):
        for size in (1e-6, 1e-20):
            grids = voxelize(point, point, torch.eye(3)[None], size, 4, backend=backend)
            torch.testing.assert_close(grids, torch.full((1, 4, 4, 4), 0.5), rtol=0, atol=1e-4)
