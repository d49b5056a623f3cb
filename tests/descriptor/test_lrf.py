"""Local frames: definition, invariance, degenerate neighbourhoods, and all backends."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest
import torch
from torch import Tensor

from seeded import rotation
from wsdesc import local_frames
from wsdesc.cloud.neighbours import NeighbourGrid
from wsdesc.cloud.sampling import farthest_points
from wsdesc.core.errors import InputError
from wsdesc.descriptor.lrf import LocalFrames

BACKENDS = ["numba", "reference"]
RADIUS = 0.3


def random(n: int, seed: int = 0) -> Tensor:
    return torch.randn(n, 3, generator=torch.Generator().manual_seed(seed))


def keypoints_of(points: Tensor, count: int = 200) -> Tensor:
    return points[farthest_points(points, count)]


def assert_frames(frames: LocalFrames) -> None:
    """Check that frames are finite, orthonormal and right-handed."""
    matrices = frames.frames.double()
    assert torch.isfinite(matrices).all()
    identity = torch.eye(3, dtype=torch.float64).expand_as(matrices)
    torch.testing.assert_close(matrices.mT @ matrices, identity, rtol=0, atol=1e-5)
    assert (torch.linalg.det(matrices) > 0.99).all()


def largest_difference(a: Tensor, b: Tensor) -> Tensor:
    """Compute the largest difference of any entry of each pair of frames."""
    return (a.double() - b.double()).abs().amax((1, 2))


def test_numba_equals_the_reference(kitchen: Tensor, desk: Tensor) -> None:
    for scan in (kitchen, desk):
        keypoints = keypoints_of(scan)
        for outer in (None, 2 * RADIUS):
            fast, slow = (local_frames(scan, keypoints, RADIUS, outer, backend=b) for b in BACKENDS)
            assert torch.equal(fast.reliable, slow.reliable)
            assert largest_difference(fast.frames, slow.frames)[fast.reliable].amax() < 1e-4
            for frames in (fast, slow):
                assert_frames(frames)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("radius", "outer"), [(RADIUS, RADIUS), (0.15, 0.25)])
def test_equals_the_definition(backend: str, dtype: torch.dtype, radius: float, outer: float) -> None:
    points = (random(400) * torch.tensor([0.15, 0.12, 0.04])).to(dtype)
    keypoint = points[0].double()
    matrices = local_frames(points, points[:1], radius, outer, backend=backend).frames[0].double()
    offset = points[1:].double() - keypoint
    inner = offset[offset.norm(dim=1) <= radius]
    values, vectors = torch.linalg.eigh(inner.T @ inner)
    assert values[1] > 2 * values[0]
    offset = offset[offset.norm(dim=1) <= outer]
    z = vectors[:, 0] * torch.sign(-(offset @ vectors[:, 0]).sum())
    height = offset @ z
    weight = (outer - offset.norm(dim=1)) ** 2 * height**2
    x = (weight[:, None] * (offset - height[:, None] * z)).sum(0)
    expected = torch.stack([x / x.norm(), torch.linalg.cross(z, x / x.norm()), z], dim=1)
    torch.testing.assert_close(matrices, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_frames_rotate_with_the_scan(seed: int, kitchen: Tensor, desk: Tensor) -> None:
    for scan in (kitchen, desk):
        chosen = farthest_points(scan, 300)
        R, t = rotation(seed), torch.tensor([2.0, -3.0, 1.0], dtype=torch.float64)
        moved = (scan.double() @ R.T + t).float()
        before, after = (local_frames(cloud, cloud[chosen], RADIUS) for cloud in (scan, moved))
        both = before.reliable & after.reliable
        gap = largest_difference(R @ before.frames.double(), after.frames)[both]
        assert (gap < 1e-3).double().mean() >= 0.98
        assert (
            largest_difference(before.frames, after.frames)[both].amin() > 1e-3
        )  # identical frames would not pass


def test_most_frames_of_a_scan_are_reliable(kitchen: Tensor, desk: Tensor) -> None:
    for scan in (kitchen, desk):
        assert local_frames(scan, keypoints_of(scan, 500)).reliable.double().mean() > 0.95


@pytest.mark.parametrize("backend", BACKENDS)
def test_z_points_away_from_the_neighbours(backend: str, kitchen: Tensor) -> None:
    keypoints = keypoints_of(kitchen, 100)
    z = local_frames(kitchen, keypoints, RADIUS, backend=backend).frames[:, :, 2].double()
    offset = kitchen.double() - keypoints.double()[:, None]
    near = offset.norm(dim=-1) <= RADIUS
    away = -(offset * near[..., None]).sum(1)
    assert ((z * away).sum(-1) >= -1e-4).all()
    assert ((z * away).sum(-1) > 1e-2).double().mean() > 0.9


def grid_plane(step: float = 0.02) -> Tensor:
    axis = torch.arange(-20, 21) * step
    return torch.cat([torch.cartesian_prod(axis, axis), torch.zeros(41 * 41, 1)], dim=1)


def cube() -> Tensor:
    axis = torch.arange(-4.0, 5) * 0.05
    return torch.cartesian_prod(axis, axis, axis)


def rotated(points: Tensor) -> Tensor:
    return (points.double() @ rotation(9).T + torch.tensor([1.0, 2.0, -0.5], dtype=torch.float64)).float()


line = torch.linspace(-1, 1, 201)[:, None] * torch.tensor([[0.6, 0.0, 0.8]])
spread_plane = random(2000) * torch.tensor([0.3, 0.3, 0.0])
DEGENERATE = {
    "no neighbour": (torch.tensor([[5.0, 5, 5]]), torch.zeros(1, 3)),
    "only itself": (torch.zeros(1, 3), torch.zeros(1, 3)),
    "one neighbour": (torch.tensor([[0.1, 0.05, 0.02], [0.0, 0, 0]]), torch.zeros(1, 3)),
    "two neighbours": (random(2) * 0.05, torch.zeros(1, 3)),
    "a line": (line, line[100:101]),
    "beside a line": (line, line[100:101] + torch.tensor([[0.0, 0.1, 0.0]])),
    "a rotated line": (rotated(line), rotated(line)[100:101]),
    "a regular plane": (grid_plane(), torch.zeros(1, 3)),
    "a plane": (spread_plane, torch.zeros(1, 3)),
    "a rotated regular plane": (rotated(grid_plane()), rotated(grid_plane())[840:841]),
    "a rotated plane": (rotated(spread_plane), rotated(spread_plane)[:40]),
    "all points equal": (torch.full((500, 3), 0.7), torch.full((1, 3), 0.7)),
    "coincident points": (torch.full((100_000, 3), 0.7), torch.full((1, 3), 0.7)),
    "beside coincident points": (torch.full((100_000, 3), 0.7), torch.tensor([[0.6, 0.65, 0.75]])),
    "a cube": (cube(), torch.zeros(1, 3)),
    "a rotated cube": (rotated(cube()), rotated(torch.zeros(1, 3))),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", DEGENERATE)
def test_degenerate_neighbourhoods(name: str, backend: str) -> None:
    points, keypoints = DEGENERATE[name]
    frames = local_frames(points, keypoints, RADIUS, backend=backend)
    assert_frames(frames)
    assert not frames.reliable.any()


@pytest.mark.parametrize("backend", BACKENDS)
def test_without_neighbours_the_frame_is_the_identity(backend: str) -> None:
    frames = local_frames(torch.full((3, 3), 9.0), torch.zeros(2, 3), backend=backend)
    assert torch.equal(frames.frames, torch.eye(3).expand(2, 3, 3))


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_slightly_bent_sheet_is_reliable(backend: str) -> None:
    """Heights of tenths of a millimetre are far above rounding."""
    sheet = grid_plane()
    sheet[:, 2] = 0.01 * sheet[:, 0] ** 2 + 0.02 * sheet[:, 0] ** 3 + 0.03 * sheet[:, 1] ** 3
    assert local_frames(rotated(sheet), rotated(sheet)[840:841], RADIUS, backend=backend).reliable.all()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("scale", [1e-3, 1024.0])
def test_invariant_to_the_unit(backend: str, scale: float) -> None:
    points = random(400) * torch.tensor([0.15, 0.12, 0.04])
    metres = local_frames(points, points[:20], RADIUS, backend=backend)
    other = local_frames(points * scale, points[:20] * scale, RADIUS * scale, backend=backend)
    assert torch.equal(metres.reliable, other.reliable)
    assert largest_difference(metres.frames, other.frames)[metres.reliable].amax() < 1e-3


def test_invariant_to_the_number_of_threads(kitchen: Tensor, set_threads: Callable[[int], None]) -> None:
    keypoints, results = keypoints_of(kitchen, 400), []
    for threads in (1, 2):
        set_threads(threads)
        results.append(local_frames(kitchen, keypoints))
    for one, two in zip(*results, strict=True):
        assert torch.equal(one, two)


def test_neighbour_grid_instead_of_points() -> None:
    points = random(300) * 0.2
    for backend in BACKENDS:
        same = local_frames(points, points[:5], backend=backend)
        other = local_frames(NeighbourGrid.of(points), points[:5], backend=backend)
        assert torch.equal(other.reliable, same.reliable)
        torch.testing.assert_close(other.frames, same.frames)


def test_no_gradient_flows_through_frames() -> None:
    points = (random(50) * 0.2).requires_grad_()
    assert not local_frames(points, points[:3]).frames.requires_grad


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"points": torch.zeros(3)}, "points"),
        ({"points": torch.full((3, 3), torch.nan)}, "points"),
        ({"keypoints": torch.zeros(3)}, "keypoints"),
        ({"keypoints": torch.full((3, 3), torch.inf)}, "keypoints"),
        ({"keypoints": torch.empty(0, 3)}, "keypoints"),
        ({"radius": 0.0}, "radius"),
        ({"radius": -1.0}, "radius"),
        ({"orientation_radius": 0.1}, "smaller than the radius"),
        ({"backend": "cobol"}, "cobol"),
        ({"backend": "triton"}, "triton"),
    ],
)
def test_invalid_arguments(change: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        local_frames(**{"points": random(9), "keypoints": random(2), **change})  # type: ignore[arg-type]


@pytest.mark.gpu
def test_cuda_equals_the_reference_and_the_cpu(kitchen: Tensor, desk: Tensor) -> None:
    for scan in (kitchen, desk):
        keypoints = keypoints_of(scan)
        for outer, backend in product((None, 2 * RADIUS), ("triton", "reference")):
            cpu = local_frames(scan, keypoints, RADIUS, outer)
            cuda = local_frames(scan.cuda(), keypoints.cuda(), RADIUS, outer, backend=backend)
            both = cuda.reliable.cpu() & cpu.reliable
            assert (cuda.reliable.cpu() != cpu.reliable).sum() <= 1  # rounding at a threshold
            assert largest_difference(cuda.frames.cpu(), cpu.frames)[both].amax() < 1e-4
            assert_frames(LocalFrames(cuda.frames.cpu(), cuda.reliable.cpu()))


@pytest.mark.gpu
@pytest.mark.parametrize("name", DEGENERATE)
def test_degenerate_neighbourhoods_on_cuda(name: str) -> None:
    points, keypoints = DEGENERATE[name]
    frames = local_frames(points.cuda(), keypoints.cuda(), RADIUS, backend="triton")
    assert_frames(LocalFrames(frames.frames.cpu(), frames.reliable.cpu()))
    assert not frames.reliable.any()


@pytest.mark.gpu
def test_cuda_batch_equals_single_keypoints() -> None:
    points = (random(2000) * torch.tensor([0.3, 0.25, 0.05])).cuda()
    batch = local_frames(points, points[:100], RADIUS)
    for k in (0, 1, 50, 99):
        single = local_frames(points, points[k : k + 1], RADIUS)
        assert torch.equal(single.reliable, batch.reliable[k : k + 1])
        if single.reliable.all():
            assert largest_difference(single.frames, batch.frames[k : k + 1]).amax() < 1e-5


@pytest.mark.gpu
def test_hostile_sizes_on_cuda() -> None:
    points = (random(300) * 0.2).cuda()
    with pytest.raises(InputError, match="keypoints is empty"):
        local_frames(points, points[:0])
    for far in (50.0, 1e6):
        frames = local_frames(points, torch.full((2, 3), far, device="cuda"))
        assert torch.equal(frames.frames, torch.eye(3, device="cuda").expand(2, 3, 3))
        assert not frames.reliable.any()
    one = local_frames(points[:1], points[:1])
    assert torch.equal(one.frames[0], torch.eye(3, device="cuda"))
    assert not local_frames(points.requires_grad_(), points[:3]).frames.requires_grad
