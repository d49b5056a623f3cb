"""SHOT against a plain implementation; invariance, continuity and degenerate input."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation
from torch import Tensor

from surfaces import hills, plain_normal
from wsdesc.cloud.neighbours import NeighbourGrid
from wsdesc.core.errors import InputError
from wsdesc.peers.shot import LENGTH, Shot, _histograms
from wsdesc.peers.shot_frames import shot_frames, surface_normals

SUPPORT, NORMAL = 0.5, 0.25
shot = Shot(SUPPORT, NORMAL)


def plain_frame(offsets: NDArray) -> NDArray:
    """Compute the frame (3, 3) with rows x, y, z."""
    weights = SUPPORT - np.linalg.norm(offsets, axis=1)
    covariance = sum(w * np.outer(d, d) for w, d in zip(weights, offsets, strict=True))
    vectors = np.linalg.eigh(covariance)[1]
    z, x = (v if np.sign(offsets @ v).sum() >= 0 else -v for v in (vectors[:, 0], vectors[:, 2]))
    return np.stack([x, np.cross(z, x), z])


def plain_interpolation(value: float, bins: int, round_about: bool = False) -> NDArray:
    """Interpolate a value in [0, 1] between the centres of bins."""
    middles = (np.arange(bins) + 0.5) / bins
    apart = np.abs(value - middles)
    if round_about:
        apart = np.minimum(apart, 1 - apart)
    else:  # the outermost bins are not interpolated outwards
        apart = np.abs(np.clip(value, middles[0], middles[-1]) - middles)
    return np.maximum(0, 1 - bins * apart)


def plain(points: NDArray, keypoint: NDArray) -> NDArray:
    distance = np.linalg.norm(points - keypoint, axis=1)
    near = points[(distance <= SUPPORT) & (distance > 0)]
    frames = plain_frame(near - keypoint)
    result = np.zeros((8, 2, 2, 11))
    for point in near:
        u, v, w = frames @ (point - keypoint)
        length = np.linalg.norm(point - keypoint)
        azimuth = plain_interpolation(np.arctan2(v, u) / (2 * np.pi) % 1, 8, round_about=True)
        elevation = plain_interpolation(np.arccos(w / length) / np.pi, 2)
        shell = plain_interpolation(length / SUPPORT, 2)
        cosine = plain_interpolation((frames[2] @ plain_normal(points, point, NORMAL) + 1) / 2, 11)
        result += np.einsum("a,e,s,c->aesc", azimuth, elevation, shell, cosine)
    return result.ravel() / np.linalg.norm(result)


def test_equals_a_plain_implementation() -> None:
    points = hills(300)
    keypoints = torch.cat([points[:8], points[:1] + 0.01])  # the last is not a point of the cloud
    expected = np.stack([plain(points.numpy(), keypoint) for keypoint in keypoints.numpy()])
    descriptors = shot(points, keypoints)
    assert descriptors.dtype == torch.float32
    assert descriptors.shape == (9, LENGTH)
    np.testing.assert_allclose(descriptors, expected, atol=2e-4)


def test_invariant_to_rigid_transformations() -> None:
    points = hills(600)
    R = torch.from_numpy(Rotation.random(random_state=1).as_matrix())
    moved = points @ R.T + torch.tensor([1e5, -2e5, 3.0], dtype=torch.float64)
    before, after = shot(points, points[:100]), shot(moved, moved[:100])
    apart = (before - after).norm(dim=1)
    # With equal numbers of neighbours on both sides, rounding may flip an axis.
    assert apart.median() < 1e-4
    assert (apart < 1e-2).float().mean() > 0.95


def test_invariant_to_order_unit_and_other_keypoints() -> None:
    points = hills(600).float()
    expected = shot(points, points[:50])
    order = torch.randperm(len(points), generator=torch.Generator().manual_seed(2))
    torch.testing.assert_close(shot(points[order], points[:50]), expected, rtol=0, atol=1e-4)
    scaled = shot(1024 * points, 1024 * points[:50], unit=1024.0)
    torch.testing.assert_close(scaled, expected, rtol=0, atol=1e-4)
    torch.testing.assert_close(shot(points, points[7:8]), expected[7:8], rtol=0, atol=1e-6)


def test_robust_to_density() -> None:
    dense = hills(6000)
    thin = dense[torch.randperm(6000, generator=torch.Generator().manual_seed(3))[:3000]]
    keypoints = hills(6000, seed=0)[:200]
    dense_rows, thin_rows = shot(dense, keypoints), shot(thin, keypoints)
    same = (dense_rows - thin_rows).norm(dim=1).median()
    other = torch.pdist(dense_rows).median()
    assert same < 0.35 * other


def test_continuous_in_the_position_of_a_neighbour() -> None:
    """Frames and normals are fixed, because they have thresholds of their own."""
    points, step = hills(400).float(), 1e-3
    grid = NeighbourGrid.of(points)
    key = grid.points[:1].clone()
    normals = surface_normals(grid, NORMAL)
    frames, usable = shot_frames(grid, key, SUPPORT)
    cloud, *balls = grid.arrays()
    balls[1] += 0.3  # wide enough for the walk, in leaves ...
    balls[3] += 0.3  # ... and branches
    distance = np.linalg.norm(cloud - key.numpy(), axis=1)
    for walker in np.flatnonzero((distance > 0.2) & (distance < 0.3))[:5]:
        rows = []
        for i in range(150):
            moved = cloud.copy()
            moved[walker, :2] += i * step * np.float32(0.6)
            row = np.zeros((1, LENGTH), np.float32)
            radius = np.float32(2 * SUPPORT)  # it stays inside
            _histograms(0, 1, moved, *balls, normals, key.numpy(), radius, frames, usable, row)
            rows.append(row[0])
        jumps = np.linalg.norm(np.diff(rows, axis=0), axis=1)
        assert jumps.max() < 1e-3
        assert np.linalg.norm(rows[0] - rows[-1]) > 5 * jumps.max()


def test_frames_are_right_handed_and_rotate_with_the_scan() -> None:
    points = hills(600).float()
    frames, usable = shot_frames(NeighbourGrid.of(points), points[:80].contiguous(), SUPPORT)
    assert usable.all()
    np.testing.assert_allclose(frames @ frames.transpose(0, 2, 1), np.tile(np.eye(3), (80, 1, 1)), atol=1e-9)
    np.testing.assert_allclose(np.linalg.det(frames), 1, atol=1e-9)


def test_normals_of_a_sphere() -> None:
    sphere = torch.nn.functional.normalize(torch.randn(3000, 3, generator=torch.Generator().manual_seed(0)))
    grid = NeighbourGrid.of(sphere)
    assert (surface_normals(grid, 0.3) * grid.points.numpy()).sum(1).min() > 0.98


PLANE = torch.cartesian_prod(torch.arange(12.0), torch.arange(12.0), torch.zeros(1)) / 10
LINE = torch.linspace(0, 1, 40)[:, None] * torch.tensor([1.0, 2.0, 3.0])


@pytest.mark.parametrize(
    "points",
    [torch.zeros(1, 3), torch.ones(9, 3), torch.tensor([[0.0, 0, 0], [0.1, 0, 0]]), 1e6 * torch.eye(3)],
    ids=["one point", "equal points", "two points", "far apart"],
)
def test_without_neighbours_descriptors_are_zero(points: Tensor) -> None:
    assert torch.equal(shot(points, points), torch.zeros(len(points), LENGTH))


@pytest.mark.parametrize("points", [PLANE, LINE, PLANE.repeat(2, 1)], ids=["plane", "line", "twice a plane"])
def test_degenerate_surfaces_are_finite(points: Tensor) -> None:
    descriptors = shot(points, points)
    lengths = descriptors.norm(dim=1)
    assert torch.isfinite(descriptors).all()
    assert bool(((lengths - 1).abs().lt(1e-5) | (lengths == 0)).all())


def test_far_keypoints_are_zero() -> None:
    keypoints = torch.cat([PLANE[66:67], PLANE[:1] + 100])
    assert shot(PLANE, keypoints).norm(dim=1).tolist() == pytest.approx([1, 0], abs=1e-5)


def test_invalid_arguments() -> None:
    with pytest.raises(InputError, match="unit"):
        shot(PLANE, PLANE, 0.0)
    with pytest.raises(InputError, match="support_radius"):
        Shot(support_radius=-1.0)
    with pytest.raises(InputError, match="finite"):
        shot(PLANE * torch.nan, PLANE)
