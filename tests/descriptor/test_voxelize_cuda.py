"""The voxelization kernels on CUDA: values and gradients against the reference."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from voxel_scenes import (
    SIGMA,
    VoxelScene,
    gradients,
    pairs_at_cutoff,
    random_scene,
    seeded,
    without_cutoff_pairs,
)
from wsdesc import voxelize
from wsdesc.cloud.neighbours import NeighbourGrid
from wsdesc.core.errors import InputError

pytestmark = pytest.mark.gpu


def on_cuda(scene: VoxelScene) -> VoxelScene:
    return VoxelScene(*(tensor.cuda() for tensor in scene))


def one_keypoint(scene: VoxelScene, k: int) -> VoxelScene:
    return VoxelScene(scene.points, scene.keypoints[k : k + 1], scene.frames[k : k + 1])


@pytest.mark.parametrize("h", [1, 2, 3, 5, 8, 16])
@pytest.mark.parametrize("support", [0.35, 1.0, 3.0])
def test_values_equal_the_reference(support: float, h: int) -> None:
    scene = random_scene(keypoints=2)
    fast = voxelize(*on_cuda(scene), support, h, SIGMA, backend="triton").cpu()
    gap = (fast - voxelize(*scene, support, h, SIGMA, backend="reference")).abs()
    assert fast.shape == (2, h, h, h)
    assert gap.amax() < 2e-3  # a pair at the cut-off contributes 1e-3 or nothing
    at_cutoff = pairs_at_cutoff(scene, support, h).any(1).view_as(gap)
    assert gap[~at_cutoff].amax() < 1e-5


@pytest.mark.parametrize(("sigma", "cutoff"), [(1e-4, 1e-3), (1e-2, 1e-3), (1e-3, 0.02), (1e-3, 0.4)])
def test_values_equal_the_reference_with_other_sigma_and_cutoff(sigma: float, cutoff: float) -> None:
    scene = random_scene(800)
    fast = voxelize(*on_cuda(scene), 1.0, 8, sigma, cutoff, backend="triton").cpu()
    gap = (fast - voxelize(*scene, 1.0, 8, sigma, cutoff, backend="reference")).abs()
    at_cutoff = pairs_at_cutoff(scene, 1.0, 8, sigma, cutoff).any(1).view_as(gap)
    assert gap[~at_cutoff].amax() < 1e-5


@pytest.mark.parametrize("support", [0.35, 1.0, 1.5])
@pytest.mark.parametrize("h", [5, 16])
def test_gradients_equal_the_reference(support: float, h: int) -> None:
    scene = without_cutoff_pairs(random_scene(400, 3, seed=2), support, h)
    for size in (torch.tensor(support), torch.full((3,), support), torch.tensor([support, 0.9, 1.2])):
        fast = gradients(on_cuda(scene), size.cuda(), h, "triton")
        for a, b in zip(fast, gradients(scene, size, h, "reference"), strict=True):
            assert a.shape == b.shape
            assert b.abs().amax() > 1e-2
            if size.ndim == 0 or len(set(size.tolist())) == 1:
                torch.testing.assert_close(a.cpu(), b, rtol=1e-3, atol=1e-3 * float(b.abs().amax()))
            else:  # other supports have other pairs at the cut-off
                assert float((a.cpu() - b).norm() / b.norm()) < 1e-2


@pytest.mark.parametrize("only", ["points", "support"])
def test_gradient_of_one_argument(only: str) -> None:
    scene = on_cuda(random_scene(300))
    both = gradients(scene, torch.tensor(1.0, device="cuda"), 8, "triton")
    points, support = scene.points.clone(), torch.tensor(1.0, device="cuda")
    argument = {"points": points, "support": support}[only].requires_grad_()
    grids = voxelize(points, scene.keypoints, scene.frames, support, 8, SIGMA, backend="triton")
    upstream = torch.randn(grids.shape, generator=seeded(1)).cuda()
    (gradient,) = torch.autograd.grad((grids * upstream).sum(), argument)
    torch.testing.assert_close(gradient, both[("points", "support").index(only)])


def test_values_equal_the_cpu_kernel_on_a_scan(kitchen: Tensor) -> None:
    chosen = torch.arange(0, len(kitchen), len(kitchen) // 40)
    frames = torch.eye(3).expand(len(chosen), 3, 3)
    slow = voxelize(kitchen, kitchen[chosen], frames, 1.0)
    fast = voxelize(kitchen.cuda(), kitchen[chosen].cuda(), frames.cuda(), 1.0)
    gap = (fast.cpu() - slow).abs()
    assert gap.amax() < 5e-3
    assert (gap > 1e-5).double().mean() < 2e-3


def test_batch_equals_single_keypoints() -> None:
    """More keypoints than one launch takes: every grid has the bits of a single voxelization."""
    scene = on_cuda(random_scene(3000, 700))
    support = torch.linspace(0.8, 1.2, 700, device="cuda")
    batch = voxelize(*scene, support, 8)
    for k in (0, 1, 511, 512, 699):
        single = voxelize(*one_keypoint(scene, k), support[k], 8)
        assert torch.equal(single[0], batch[k])


def test_dense_points_take_more_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    from wsdesc.descriptor.voxelize import cuda

    scene = on_cuda(random_scene(3000, 20))
    together = voxelize(*scene, 1.0, 8)
    monkeypatch.setattr(cuda, "_LEAVES_PER_LAUNCH", 50)
    assert torch.equal(voxelize(*scene, 1.0, 8), together)


def test_gradient_of_a_batch_is_the_sum_of_single_gradients() -> None:
    scene = on_cuda(random_scene(500, 6))
    points = scene.points.clone().requires_grad_()
    support = torch.full((6,), 1.0, device="cuda", requires_grad=True)
    batch = voxelize(points, scene.keypoints, scene.frames, support, 8)
    upstream = torch.randn(batch.shape, generator=seeded(1)).cuda()
    to_points, to_support = torch.autograd.grad((batch * upstream).sum(), (points, support))
    total = torch.zeros_like(to_points)
    for k in range(6):
        single = one_keypoint(scene, k)
        size = torch.tensor(1.0, device="cuda", requires_grad=True)
        grid = voxelize(points, single.keypoints, single.frames, size, 8)
        part, slope = torch.autograd.grad((grid[0] * upstream[k]).sum(), (points, size))
        total += part
        torch.testing.assert_close(slope, to_support[k], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(total, to_points, rtol=1e-4, atol=1e-4 * float(to_points.abs().amax()))


def test_same_bits_in_a_second_run_and_in_another_order() -> None:
    scene = on_cuda(random_scene(3000, 60))
    size = torch.tensor(1.0, device="cuda")
    first, second = (gradients(scene, size, 16, "triton") for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    shuffled = scene._replace(points=scene.points[torch.randperm(3000, generator=seeded(3)).cuda()])
    assert torch.equal(voxelize(*scene, size), voxelize(*shuffled, size))


@pytest.mark.parametrize("count", [1, 2, 5, 33])
def test_few_points(count: int) -> None:
    scene = without_cutoff_pairs(random_scene(count, 1, seed=count), 1.0, 8)
    scene = scene if len(scene.points) else random_scene(count, 1, seed=count)
    size = torch.tensor(1.0)
    fast = gradients(on_cuda(scene), size.cuda(), 8, "triton")
    for a, b in zip(fast, gradients(scene, size, 8, "reference"), strict=True):
        torch.testing.assert_close(a.cpu(), b, rtol=1e-3, atol=1e-3 * max(1.0, float(b.abs().amax())))


def test_no_keypoints_are_refused() -> None:
    points = torch.rand(10, 3, device="cuda")
    with pytest.raises(InputError, match="keypoints is empty"):
        voxelize(points, points[:0], torch.empty(0, 3, 3, device="cuda"), 1.0)


@pytest.mark.parametrize("far", [40.0, 1e6])
def test_keypoints_without_neighbours_have_empty_grids(far: float) -> None:
    points = torch.rand(50, 3, device="cuda", requires_grad=True)
    keypoints = torch.tensor([[far] * 3, [0.5] * 3, [-far] * 3], device="cuda")
    size = torch.full((3,), 1.0, device="cuda", requires_grad=True)
    frames = torch.eye(3, device="cuda").expand(3, 3, 3)
    grids = voxelize(points, keypoints, frames, size, 8)
    assert (grids[[0, 2]] == 0).all()
    assert grids[1].amax() > 0.5
    to_points, to_size = torch.autograd.grad(grids.sum(), (points, size))
    assert torch.isfinite(to_points).all()
    assert (to_size[[0, 2]] == 0).all()
    only_far = voxelize(points, keypoints[:1], frames[:1], 1.0, 8)
    assert (only_far == 0).all()
    assert (torch.autograd.grad(only_far.sum(), points)[0] == 0).all()


def test_many_coincident_points_and_points_at_voxel_centres() -> None:
    points = torch.tensor([[0.03, 0.04, 0.02]]).repeat(100_000, 1).cuda()
    points[-1] += 0.7
    size = torch.tensor(0.5, device="cuda", requires_grad=True)
    keypoint, frame = torch.zeros(1, 3, device="cuda"), torch.eye(3, device="cuda")[None]
    grids = voxelize(points, keypoint, frame, size, 4)
    assert grids[0, 2, 2, 2] > 1 - 1e-6
    assert grids.amax() <= 1
    assert torch.isfinite(torch.autograd.grad(grids.sum(), size)[0])
    centres = torch.tensor([[0.0, 0, 0], [1.0, 0, 0], [0.5, 0.5, 0.5]], device="cuda", requires_grad=True)
    for h in (3, 4):
        size = torch.tensor(float(h), device="cuda", requires_grad=True)
        grids = voxelize(centres, keypoint, frame, size, h, 1.0)
        assert all(
            torch.isfinite(t).all() for t in (grids, *torch.autograd.grad(grids.sum(), (centres, size)))
        )


def test_neighbour_grid_instead_of_points() -> None:
    scene = on_cuda(random_scene())
    grid = NeighbourGrid.of(scene.points)
    assert torch.equal(voxelize(grid, *scene[1:], 1.0, 8), voxelize(*scene, 1.0, 8))


def test_the_numba_backend_refuses_cuda_tensors() -> None:
    with pytest.raises(InputError, match="numba"):
        voxelize(*on_cuda(random_scene()), 1.0, 8, backend="numba")
