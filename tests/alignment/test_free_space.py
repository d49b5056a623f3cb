"""Free space: right poses leave it empty, wrong poses do not, on both backends."""

import numpy as np
import pytest
import torch

from wsdesc.alignment.free_space import FreeSpace, measure_free_space
from wsdesc.alignment.surface import CudaSurface, make_surface
from wsdesc.cloud.range_image import RangeImage
from wsdesc.core.errors import InputError
from wsdesc.datasets.synthetic.floor import floor_scans
from wsdesc.datasets.synthetic.shapes import rotation

RESOLUTION = 0.1


@pytest.fixture(scope="module")
def pair():
    a, b = floor_scans(3, 4)[1:3]
    images = tuple(RangeImage.of(s.points, np.zeros(3)) for s in (a, b))
    surfaces = tuple(make_surface(s.points) for s in (a, b))
    return surfaces, images, np.linalg.inv(b.T_world_scan) @ a.T_world_scan


def moved(T: np.ndarray, yaw: float = 0.0, by: tuple[float, float, float] = (0, 0, 0)) -> np.ndarray:
    step = np.eye(4)
    step[:3, :3], step[:3, 3] = rotation(yaw), by
    return T @ step


def violations(pair, poses, **options):
    surfaces, images, _ = pair
    results = measure_free_space(*surfaces, images, np.stack(poses), resolution=RESOLUTION, **options)
    return [r.violation for r in results]


def test_right_pose_leaves_free_space_empty(pair):
    T = pair[2]
    right, near = violations(pair, [T, moved(T, 0.003, (0.03, 0.02, 0.01))])
    assert right < 0.002
    assert near < 0.005


def test_wrong_poses_violate_it(pair):
    T = pair[2]
    wrong = [moved(T, np.pi / 2), moved(T, np.pi), moved(T, 0, (3.0, 0, 0)), moved(T, 0, (0, 0, 1.0))]
    assert min(violations(pair, wrong)) > 0.05
    assert np.median(violations(pair, wrong, refined=False)) > 0.05


def test_rough_poses_are_tolerated(pair):
    T = pair[2]
    rough = [moved(T, yaw, (0.1, y, 0.1)) for yaw in (-0.03, 0.03) for y in (-0.15, 0.15)]
    assert max(violations(pair, rough, refined=False)) < 0.02


def test_a_wall_pushed_into_the_room():
    wall = np.stack(np.meshgrid([3.0], np.arange(-3, 3, 0.04), np.arange(-1, 1, 0.04)), -1).reshape(-1, 3)
    image = RangeImage.of(wall, np.zeros(3))
    surface = make_surface(wall)
    pushes = [np.eye(4) for _ in range(3)]
    pushes[1][0, 3], pushes[2][0, 3] = -1.0, 1.0
    at, before, behind = measure_free_space(surface, surface, (None, image), pushes, resolution=0.05)
    assert at.violating == 0
    assert before.violation > 0.5
    assert behind.violating == 0
    assert behind.source.at_surface == 0
    assert before.target.in_view == 0  # the source has no viewpoint


def test_single_points_do_not_count(pair):
    (source, target), images, T = pair
    stray = np.random.default_rng(0).uniform(-1, 1, (20, 3)) + np.linalg.inv(T)[:3, 3]
    with_stray = make_surface(np.concatenate([source.points, stray]))
    result = measure_free_space(with_stray, target, images, T[None], resolution=RESOLUTION)[0]
    assert result.violation < 0.002


def test_rotation_about_the_viewpoint_keeps_the_counts(pair):
    surfaces, images, T = pair
    turn = np.eye(4)
    turn[:3, :3] = rotation(0.7)
    points = surfaces[1].points @ turn[:3, :3].T
    turned = (images[0], RangeImage.of(floor_scans(3, 4)[2].points @ turn[:3, :3].T, np.zeros(3)))
    poses = np.stack([T, moved(T, np.pi)])
    plain = measure_free_space(*surfaces, images, poses, resolution=RESOLUTION)
    other = measure_free_space(surfaces[0], make_surface(points), turned, turn @ poses, resolution=RESOLUTION)
    for a, b in zip(plain, other, strict=True):
        assert b.in_view == pytest.approx(a.in_view, rel=0.02)
        assert b.violation == pytest.approx(a.violation, abs=0.03)


def test_a_small_thing_counts_if_all_points_are_measured(pair):
    (source, target), images, T = pair
    thing = np.random.default_rng(0).uniform(-0.15, 0.15, (25, 3)) + np.linalg.inv(T)[:3, 3] + (0.5, 0, 0)
    with_thing = make_surface(np.concatenate([source.points, thing]))
    sampled, dense = (
        measure_free_space(with_thing, target, images, T[None], dense=dense, resolution=RESOLUTION)[0]
        for dense in (False, True)
    )
    plain = measure_free_space(source, target, images, T[None], dense=True, resolution=RESOLUTION)[0]
    assert sampled.violating <= 2
    assert 20 <= dense.violating - plain.violating <= 30
    assert plain.violation < 0.002


def test_a_thing_close_to_a_wall_counts_at_refined_poses_only():
    sides = np.meshgrid([3.0], np.arange(-3, 3, 0.04), np.arange(-1, 1, 0.04))
    wall = np.stack(sides, -1).reshape(-1, 3)
    images = None, RangeImage.of(wall, np.zeros(3))
    target = make_surface(wall)
    box = wall[(np.abs(wall[:, 1]) < 0.4) & (np.abs(wall[:, 2]) < 0.4)] - (0.22, 0, 0)
    source = make_surface(np.concatenate([wall, box]))
    options = {"dense": True, "resolution": 0.05}
    refined, rough = (
        measure_free_space(source, target, images, np.eye(4)[None], refined=refined, **options)[0]
        for refined in (True, False)
    )
    assert refined.violating > 0.8 * len(box)
    assert rough.violating == 0


@pytest.mark.parametrize("dense", [True, False])
@pytest.mark.parametrize("refined", [True, False])
def test_torch_gives_the_same_counts(pair, refined, dense):
    surfaces, images, T = pair
    rng = np.random.default_rng(0)
    poses = np.stack([moved(T, rng.uniform(0, 6), tuple(rng.normal(0, 2, 3))) for _ in range(20)])
    sparse = [s.points[:: len(s.points) // 2500] for s in surfaces]  # plain torch is slow on the CPU
    on_torch = [CudaSurface.of(torch.from_numpy(points.copy())) for points in sparse]
    on_cpu = [make_surface(points) for points in sparse]
    options = {"refined": refined, "dense": dense, "resolution": RESOLUTION}
    expected = measure_free_space(*on_cpu, images, poses, **options)
    result = measure_free_space(*on_torch, images, poses, **options)
    for a, b in zip(expected, result, strict=True):
        np.testing.assert_allclose(np.ravel(b), np.ravel(a), atol=3)


def test_no_images_and_no_poses(pair):
    surfaces, images, T = pair
    assert measure_free_space(*surfaces, (None, None), T[None]) == [FreeSpace()]
    assert FreeSpace().violation == 0
    assert measure_free_space(*surfaces, images, np.zeros((0, 4, 4))) == []
    on_torch = [CudaSurface.of(torch.from_numpy(s.points[:100].copy())) for s in surfaces]
    assert measure_free_space(*on_torch, (None, None), T[None]) == [FreeSpace()]
    assert measure_free_space(*on_torch, images, np.zeros((0, 4, 4))) == []


@pytest.mark.parametrize("count", [1, 2, 3])
def test_tiny_surfaces(pair, count):
    points = np.random.default_rng(0).normal(size=(count, 3))
    for surface in (make_surface(points), CudaSurface.of(torch.from_numpy(points))):
        result = measure_free_space(surface, surface, pair[1], np.eye(4)[None])[0]
        assert 0 <= result.violation <= 1


def test_bad_arguments(pair):
    surfaces, images, T = pair
    with pytest.raises(InputError, match="resolution"):
        measure_free_space(*surfaces, images, T[None], resolution=float("nan"))
    with pytest.raises(InputError, match="poses"):
        measure_free_space(*surfaces, images, 2 * T[None])
