"""Surfaces: normals, curvature, weights, contacts, and the choice of the backend."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from poses import random_pose
from wsdesc.alignment.information import compute_information
from wsdesc.alignment.refine import refine
from wsdesc.alignment.surface import CpuSurface, CudaSurface, make_surface, make_surfaces
from wsdesc.alignment.surface.base import REFERENCE_SIZE, SAMPLE_SIZE, for_backend
from wsdesc.alignment.surface.cpu import find_contacts
from wsdesc.alignment.verify import verify
from wsdesc.core.errors import InputError
from wsdesc.core.geometry import transform


def sphere(count: int, seed: int = 0) -> np.ndarray:
    v = np.random.default_rng(seed).normal(size=(count, 3))
    return v / np.linalg.norm(v, axis=1, keepdims=True)


def test_normals_of_a_sphere_are_its_radii() -> None:
    points = sphere(4000)
    surface = CpuSurface.of(points)
    cosine = np.abs(np.einsum("ni,ni->n", surface.normals, points))
    assert cosine.min() > 0.99
    np.testing.assert_allclose(np.linalg.norm(surface.normals, axis=1), 1)


def test_curvature_is_zero_on_planes_and_positive_at_edges() -> None:
    g = np.random.default_rng(0)
    floor = np.c_[g.uniform(-1, 1, (3000, 2)), np.zeros(3000)]
    wall = np.c_[np.full(1500, -1.0), g.uniform(-1, 1, 1500), g.uniform(0, 1, 1500)]
    surface = CpuSurface.of(np.r_[floor, wall])
    from_edge = np.maximum(np.abs(surface.points[:, 0] + 1), surface.points[:, 2])
    assert surface.curvature[from_edge > 0.3].max() < 1e-9
    assert np.median(surface.curvature[from_edge < 0.03]) > 0.1
    assert surface.curvature.min() >= 0
    assert surface.curvature.max() <= 1


def test_rare_directions_have_larger_weights() -> None:
    g = np.random.default_rng(1)
    floor = np.c_[g.uniform(-1, 1, (4500, 2)), np.zeros(4500)]
    wall = np.c_[np.full(500, 2.0), g.uniform(-0.3, 0.3, (500, 2))]
    surface = CpuSurface.of(np.r_[floor, wall])
    assert surface.direction_weights.sum() == pytest.approx(1)
    on_wall = surface.direction_weights[surface.points[surface.sample, 0] == 2]
    assert 0.35 < on_wall.sum() < 0.65  # a tenth of the points, half of the weight


@pytest.mark.parametrize("count", [1, 2, 3, 5, 19, 20, SAMPLE_SIZE])
def test_moving_the_points_keeps_curvature_and_weights(count: int) -> None:
    points = np.random.default_rng(2).normal(size=(count, 3))
    T = random_pose(3)
    before, after = CpuSurface.of(points), CpuSurface.of(transform(points, T))
    np.testing.assert_array_equal(before.sample, after.sample)
    np.testing.assert_allclose(before.curvature, after.curvature, atol=1e-9)
    if count <= REFERENCE_SIZE:
        np.testing.assert_allclose(before.direction_weights, after.direction_weights, atol=1e-9)
    rotated = before.normals @ T[:3, :3].T
    np.testing.assert_allclose(
        np.abs((rotated * after.normals).sum(1)), np.linalg.norm(rotated, axis=1), atol=1e-6
    )


@pytest.mark.parametrize("added", [-1, 0, 1])
def test_noise_and_single_points_keep_the_sample(added: int) -> None:
    rng = np.random.default_rng(4)
    points = rng.normal(size=(5000, 3)) * [3, 2, 0.5]
    before = CpuSurface.of(points)
    changed = points + 1e-7 * rng.normal(size=points.shape)
    changed = np.r_[changed[:2000], np.zeros((max(added, 0), 3)), changed[2000 + max(-added, 0) :]]
    after = CpuSurface.of(changed)
    assert len(before.sample) == len(after.sample) == SAMPLE_SIZE
    distance, _ = before.tree.query(after.points[after.sample])
    assert (distance < 1e-6).mean() > 0.999
    in_both = np.isin(before.tree.query(after.points[after.sample])[1], before.sample)
    assert in_both.mean() > 0.99


def test_the_sample_is_even() -> None:
    points = np.random.default_rng(5).uniform(size=(12_000, 3)) * [4, 3, 2]
    sampled = points[CpuSurface.of(points).sample]
    for axis, side in enumerate((4, 3, 2)):
        counts, _ = np.histogram(sampled[:, axis], 10, (0, side))
        assert 240 < counts.min() <= counts.max() < 360  # 300 each, less or more four deviations


@pytest.mark.parametrize(
    "points",
    [np.zeros((1, 3)), np.ones((50, 3)), np.c_[np.arange(40.0), np.zeros((40, 2))], np.eye(3)[:2]],
    ids=["one", "equal", "line", "two"],
)
def test_points_without_a_surface_have_no_normals(points: np.ndarray) -> None:
    surface = CpuSurface.of(points)
    assert not surface.normals.any()
    assert not surface.curvature.any()
    np.testing.assert_allclose(surface.direction_weights, 1 / len(points))


def test_contacts_equal_brute_force() -> None:
    a, b, T = sphere(300, 1), sphere(200, 2), random_pose(0)
    sampled, searched = CpuSurface.of(a), CpuSurface.of(transform(b, T))
    c = find_contacts(sampled, searched, T, 0.1)
    distance = np.linalg.norm(transform(a, T)[:, None] - searched.points, axis=2)
    nearest = distance.min(1)
    near = nearest <= 0.1
    assert 0.3 < near.mean() < 1  # both cases occur
    np.testing.assert_array_equal(np.isfinite(c.distance), near)
    np.testing.assert_allclose(c.distance[near], nearest[near])
    np.testing.assert_array_equal(c.partner[near], distance.argmin(1)[near])
    assert (c.plane_distance <= c.distance + 1e-12).all()
    assert c.cosine[near].min() > 0.9
    assert not c.cosine[~near].any()


def test_surface_keeps_a_copy_of_the_points() -> None:
    points = sphere(100)
    surface = CpuSurface.of(points)
    points[:] = 0
    assert surface.points.any()


@pytest.mark.parametrize("bad", [np.zeros((0, 3)), np.zeros((4, 2)), np.full((4, 3), np.nan)])
def test_invalid_points_are_rejected(bad: np.ndarray) -> None:
    with pytest.raises(InputError, match="surface"):
        CpuSurface.of(bad)


def test_make_surface_chooses_the_backend_by_the_device() -> None:
    points = sphere(100)
    for given in (points, points.tolist(), torch.from_numpy(points)):
        surface = make_surface(given)
        assert surface.backend == "cpu"
        np.testing.assert_array_equal(surface.points, points)
    first, second = make_surfaces(points, points[:50])
    assert (len(first.points), len(second.points)) == (100, 50)


def test_surfaces_of_two_backends_are_rejected() -> None:
    points = torch.from_numpy(sphere(100))
    mixed = (CpuSurface.of(points.numpy()), CudaSurface.of(points))
    for pair in (mixed, mixed[::-1]):
        with pytest.raises(InputError, match="one device"):
            for_backend(*pair, cpu=len, cuda=len)
        with pytest.raises(InputError, match="one device"):
            verify(*pair, np.eye(4)[None], 0.05)
        with pytest.raises(InputError, match="one device"):
            refine(*pair, np.eye(4)[None], 0.025)
        with pytest.raises(InputError, match="one device"):
            compute_information(*pair, np.eye(4)[None], 0.05)


@pytest.mark.parametrize("bad", [np.eye(4), 2 * np.eye(4)[None], np.full((1, 4, 4), np.nan), np.eye(3)[None]])
def test_invalid_poses_are_rejected(bad: np.ndarray) -> None:
    surface = CpuSurface.of(sphere(100))
    for function in (verify, refine, compute_information):
        with pytest.raises(InputError, match="poses"):
            function(surface, surface, bad, 0.05)
