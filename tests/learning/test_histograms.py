"""Point feature histograms equal a plain implementation, are invariant to motions, and are never NaN."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation
from torch import Tensor

from surfaces import hills, plain_normal
from wsdesc.cloud.neighbours import NeighbourGrid
from wsdesc.core.errors import InputError
from wsdesc.learning.histograms import point_histograms

NORMAL, FEATURE = 0.25, 0.5


def plain_simple(points: NDArray, point_normals: NDArray, at: NDArray, u: NDArray) -> NDArray:
    """(3, 11): the histograms of one neighbourhood, with normals on the side of u."""
    values = []
    for point, n in zip(points, point_normals, strict=True):
        d = point - at
        if 0 < np.linalg.norm(d) <= FEATURE:
            d = d / np.linalg.norm(d)
            n = n if n @ u >= 0 else -n
            v = np.cross(u, d) / np.linalg.norm(np.cross(u, d))
            values.append((n @ v, u @ d, n @ np.cross(u, v)))
    return np.array([np.histogram(part, 11, (-1, 1))[0] / len(values) for part in np.transpose(values)])


def plain(points: NDArray, keypoint: NDArray) -> NDArray:
    """The descriptor of one keypoint. All signs are fixed first, so no histogram has to be mirrored."""
    point_normals = np.array([plain_normal(points, point, NORMAL) for point in points])
    u = plain_normal(points, keypoint, NORMAL)
    distance = np.linalg.norm(points - keypoint, axis=1)
    near = (distance <= FEATURE) & (distance > 0)
    u = u if u @ (keypoint - points[near]).sum(0) >= 0 else -u
    sided = [n if n @ u >= 0 else -n for n in point_normals[near]]
    around = [plain_simple(points, point_normals, *of) for of in zip(points[near], sided, strict=True)]
    total = plain_simple(points, point_normals, keypoint, u) + np.mean(around, axis=0)
    return np.sqrt(total / total.sum()).ravel()


def test_equals_a_plain_implementation() -> None:
    points = hills(300)
    between = points[:1] + 0.01  # not a point of the cloud
    keypoints = torch.cat([points[:3], between])
    expected = np.stack([plain(points.numpy(), keypoint) for keypoint in keypoints.numpy()])
    histograms = point_histograms(points, keypoints, NORMAL, FEATURE)
    assert histograms.dtype == torch.float32
    assert histograms.shape == (4, 33)
    np.testing.assert_allclose(histograms, expected, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_is_invariant_to_a_rigid_motion(dtype: torch.dtype) -> None:
    points = hills()
    R = torch.from_numpy(Rotation.random(random_state=1).as_matrix())
    moved = points @ R.T + torch.tensor([1.0, -2.0, 3.0], dtype=torch.float64)
    before, after = (
        point_histograms(p.to(dtype), p[:100].to(dtype), NORMAL, FEATURE) for p in (points, moved)
    )
    assert (before - after).norm(dim=1).max() < (0.02 if dtype == torch.float32 else 1e-5)
    others = torch.cdist(before, before) + 9 * torch.eye(100)
    assert (before - after).norm(dim=1).max() < 0.1 * others.amin(1).median()


def test_is_invariant_to_unit_and_order() -> None:
    points = hills().float()
    expected = point_histograms(points, points[:50], NORMAL, FEATURE)
    order = torch.randperm(len(points), generator=torch.Generator().manual_seed(2))
    assert torch.equal(point_histograms(points[order], points[:50], NORMAL, FEATURE), expected)
    assert torch.equal(point_histograms(NeighbourGrid.of(points), points[:50], NORMAL, FEATURE), expected)
    scaled = point_histograms(1024 * points, 1024 * points[:50], 1024 * NORMAL, 1024 * FEATURE)
    torch.testing.assert_close(scaled, expected, rtol=0, atol=1e-4)


def test_keypoints_do_not_influence_each_other() -> None:
    points = hills().float()
    together = point_histograms(points, points[:50], NORMAL, FEATURE)
    alone = torch.cat([point_histograms(points, points[k : k + 1], NORMAL, FEATURE) for k in range(50)])
    assert torch.equal(together, alone)


def test_does_not_depend_on_threads(set_threads: Callable[[int], None], desk: Tensor) -> None:
    results = []
    for threads in (1, 2, 3):
        set_threads(threads)
        results.append(point_histograms(desk, desk[::20]))
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


def test_real_neighbourhoods_differ(desk: Tensor) -> None:
    features = point_histograms(desk, desk[::20])
    torch.testing.assert_close(features.norm(dim=1), torch.ones(len(features)))
    assert torch.pdist(features).median() > 0.2


LINE = torch.linspace(0, 1, 40)[:, None] * torch.tensor([1.0, 2.0, 3.0])
PLANE = torch.cartesian_prod(torch.arange(12.0), torch.arange(12.0), torch.zeros(1)) / 10


@pytest.mark.parametrize(
    "points",
    [torch.zeros(1, 3), torch.ones(9, 3), LINE, torch.tensor([[0.0, 0, 0], [0.1, 0, 0]]), 1e6 * torch.eye(3)],
    ids=["one point", "equal points", "a line", "two points", "far apart"],
)
def test_no_surface_gives_zeros(points: Tensor) -> None:
    assert torch.equal(point_histograms(points, points), torch.zeros(len(points), 33))


def test_plane_fills_the_middle_bins() -> None:
    R = torch.from_numpy(Rotation.random(random_state=3).as_matrix())
    features = torch.cat([point_histograms(p, p) for p in (PLANE, (PLANE.double() @ R.T).float())])
    flat = torch.zeros(3, 11)
    flat[:, 5] = 3**-0.5  # each third in its middle bin
    torch.testing.assert_close(features, flat.ravel().expand_as(features))


def test_keypoint_without_neighbours_is_zero() -> None:
    keypoints = torch.cat([PLANE[:1], PLANE[:1] + 100])
    assert point_histograms(PLANE, keypoints).norm(dim=1).tolist() == pytest.approx([1, 0])


def test_geographic_coordinates_in_double_precision() -> None:
    points = hills()
    offset = torch.tensor([4e5, 5e6, 100.0], dtype=torch.float64)
    near, far = (point_histograms(p, p[:50], NORMAL, FEATURE) for p in (points, points + offset))
    torch.testing.assert_close(near, far, rtol=0, atol=0.01)


@pytest.mark.parametrize("radius", [0.0, -1.0, float("nan"), float("inf")])
def test_invalid_radii_are_refused(radius: float) -> None:
    with pytest.raises(InputError, match="radius"):
        point_histograms(PLANE, PLANE, radius, 1.0)
    with pytest.raises(InputError, match="radius"):
        point_histograms(PLANE, PLANE, 1.0, radius)


def test_invalid_points_are_refused() -> None:
    with pytest.raises(InputError):
        point_histograms(PLANE * torch.nan, PLANE)
    with pytest.raises(InputError):
        point_histograms(PLANE, PLANE[:, :2])
    with pytest.raises(InputError):
        point_histograms(PLANE[:0], PLANE)
