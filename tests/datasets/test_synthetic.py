"""Synthetic rooms: reproducible, geometrically correct, similar to real scans."""

import subprocess
import sys
from functools import cache

import numpy as np
import pytest
import torch
from scipy.spatial import cKDTree

from wsdesc.core.errors import InputError
from wsdesc.datasets.synthetic import Room, SyntheticScan, overlap, room_pair, room_scans
from wsdesc.datasets.synthetic.camera import Camera, measure_depth, render
from wsdesc.datasets.synthetic.fusion import fuse, voxel_mean
from wsdesc.datasets.synthetic.raycast import Tree, cast
from wsdesc.datasets.synthetic.shapes import box, bumpy, place, rounded
from wsdesc.datasets.synthetic.walk import look_at

SEEDS = range(20)


@cache
def scans(seed: int) -> list[SyntheticScan]:
    return room_scans(seed, 2 if seed < 3 else 1)


def relative(source: SyntheticScan, target: SyntheticScan) -> np.ndarray:
    return np.linalg.inv(target.T_world_scan) @ source.T_world_scan


def nearest_by_hand(triangles: np.ndarray, origin: np.ndarray, ray: np.ndarray) -> float:
    """Solve origin + t ray = a + u ab + v ac for every triangle."""
    a, ab, ac = triangles[:, 0], triangles[:, 1] - triangles[:, 0], triangles[:, 2] - triangles[:, 0]
    matrix = np.stack([ab, ac, np.broadcast_to(-ray, ab.shape)], axis=-1)
    sound = np.abs(np.linalg.det(matrix)) > 1e-12
    u, v, t = np.linalg.solve(matrix[sound], (origin - a[sound])[..., None])[..., 0].T
    met = t[(u >= 0) & (v >= 0) & (u + v <= 1) & (t > 0)]
    return float(met.min()) if len(met) else np.inf


def a_camera(**changes: object) -> Camera:
    plain = Camera(80, 60, 70.0, 0.4, 5.0, False, 0.0, np.zeros((60, 80), np.float32))
    return Camera(**{**vars(plain), **changes})  # type: ignore[arg-type]


def test_ray_casting_equals_a_plain_search() -> None:
    rng = np.random.default_rng(0)
    triangles = rng.uniform(-1, 1, (300, 1, 3)) + rng.normal(0, 0.2, (300, 3, 3))
    triangles[100:140] = triangles[100]  # coincident triangles cannot be split
    rays = rng.normal(size=(400, 3)).astype(np.float32)
    rays[:3] = np.eye(3)  # rays with zero components
    origins = rng.uniform(-1.5, 1.5, (400, 3)).astype(np.float32)
    hits = cast(Tree.over(triangles), origins, rays)
    expected = [nearest_by_hand(triangles, o, r) for o, r in zip(origins, rays, strict=True)]
    agree = np.isclose(hits.depth, expected, rtol=1e-3, atol=1e-4) | (
        np.isinf(hits.depth) & np.isinf(expected)
    )
    assert agree.mean() > 0.99  # a ray along an edge may hit or miss
    assert ((hits.triangle < 0) == np.isinf(hits.depth)).all()


def test_same_seed_same_bits_with_any_number_of_threads() -> None:
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        one_thread = room_scans(7, 1)
        torch.set_num_threads(3)
        three_threads = room_scans(7, 1)
    finally:
        torch.set_num_threads(before)
    for a, b in zip(one_thread, three_threads, strict=True):
        assert a.points.tobytes() == b.points.tobytes()
        assert a.T_world_scan.tobytes() == b.T_world_scan.tobytes()


def test_the_first_scan_does_not_depend_on_their_number() -> None:
    assert room_scans(0, 1)[0].points.tobytes() == scans(0)[0].points.tobytes()


def test_seeds_differ() -> None:
    rooms = [Room(seed) for seed in range(8)]
    assert len({room.size.tobytes() for room in rooms}) == len(rooms)
    assert len({room.kind for room in rooms}) > 2
    assert len({scans(seed)[0].points.tobytes() for seed in range(3)}) == 3


def test_scans_overlap_under_their_poses() -> None:
    for seed in range(3):
        source, target = scans(seed)
        T = relative(source, target)
        moved = source.points @ T[:3, :3].T + T[:3, 3]
        distance, _ = cKDTree(target.points).query(moved)
        shared = distance[distance < 0.06]
        assert len(shared) > 300
        assert np.median(shared) < 0.015
        assert np.allclose(T[:3, :3] @ T[:3, :3].T, np.eye(3), atol=1e-12)


def test_walls_occlude() -> None:
    class Walled(Room):
        def __init__(self) -> None:
            wall = place(box(4, 0.1, 3), (0, 2, 0))
            self.items = [wall, place(box(1, 1, 1), (0, 4, 0)), place(rounded(0.5, 0.5, 0.5), (0, 1.4, 0.8))]
            self.dropout_level = np.full(3, np.inf, dtype=np.float32)

    camera = a_camera(noise=1.0, structured_light=True)
    pose = look_at(np.array([0.3, 0.0, 1.2]), np.array([0.0, 2.0, 1.0]))[None]
    still = np.zeros((1, 2))
    seen = render(Walled(), camera, pose, still)
    assert set(Walled().item_of[seen.triangle[seen.triangle >= 0]]) == {0, 2}
    depth = measure_depth(Walled(), camera, pose, still, np.random.default_rng(0))
    points = camera.rays(pose, still) * depth[..., None] + pose[0, :3, 3]
    assert points[depth > 0][:, 1].max() < 1.95 + 0.04
    assert 0.5 < (depth > 0).mean() < 1.0


def test_measured_points_are_in_the_room() -> None:
    for seed in range(3):
        room = Room(seed)
        pose = look_at(np.array([0.0, 0.0, 1.5]), np.array([1.0, 0.7, 1.0]))[None]
        seen = render(room, a_camera(), pose, np.zeros((1, 2)))
        met = np.isfinite(seen.depth)
        points = (a_camera().rays(pose, np.zeros((1, 2))) * seen.depth[..., None])[met] + pose[0, :3, 3]
        # Through an open door, a corridor of 2.2 m is visible.
        assert (np.abs(points[:, :2]) < room.size[:2] / 2 + 2.3).all()
        assert points[:, 2].min() > -0.01
        assert points[:, 2].max() < room.size[2] + 0.01


def test_noise_depends_on_depth() -> None:
    class Bare(Room):
        def __init__(self) -> None:
            self.items = [place(box(8, 0.1, 8), (0, self.at + 0.05, -4))]
            self.dropout_level = np.full(1, np.inf, dtype=np.float32)

    errors = []
    for at in (1.0, 3.0):
        Bare.at = at  # type: ignore[attr-defined]
        pose = look_at(np.zeros(3), np.array([0.0, 1.0, 0.0]))[None]
        depth = measure_depth(Bare(), a_camera(noise=1.0), pose, np.zeros((1, 2)), np.random.default_rng(1))
        errors.append((depth[depth > 0] - at).std() / (0.0012 + 0.0019 * (at - 0.4) ** 2))
    assert np.allclose(errors, 1.0, atol=0.25)


def test_fusion_of_exact_images() -> None:
    rng = np.random.default_rng(2)
    sphere = bumpy(rounded(1.0, 1.0, 1.0, 1.0, 41), rng, 0.0, 1.0)
    tree, camera = Tree.over(sphere), a_camera(width=160, height=120, focal=140.0)
    eyes = [np.array([np.sin(a) * 2, -np.cos(a) * 2, 0.8]) for a in (-0.3, 0.0, 0.3)]
    poses, still = np.stack([look_at(eye, np.array([0, 0, 0.5])) for eye in eyes]), np.zeros((3, 2))
    rays = camera.rays(poses, still)
    depth = cast(
        tree, np.broadcast_to(poses[:, None, None, :3, 3].astype(np.float32), rays.shape), rays
    ).depth
    images = np.where(np.isfinite(depth), depth, 0).astype(np.float32)
    points = voxel_mean(fuse(images, camera, poses, still, voxel=0.014, band=0.04), 0.02)
    radius = np.linalg.norm(points - [0, 0, 0.5], axis=1)
    assert len(points) > 1500
    assert np.median(np.abs(radius - 0.5)) < 0.003
    assert np.quantile(np.abs(radius - 0.5), 0.95) < 0.015


def test_fusion_of_empty_images() -> None:
    empty = fuse(
        np.zeros((1, 60, 80), np.float32), a_camera(), np.eye(4)[None], np.zeros((1, 2)), 0.014, 0.04
    )
    assert voxel_mean(empty, 0.02).shape == (0, 3)


@pytest.mark.slow
def test_scans_are_similar_to_real_ones() -> None:
    """The bounds hold for real RGB-D scans of offices and kitchens at the same resolution."""
    counts, spacings = [], []
    for seed in SEEDS:
        points = scans(seed)[0].points
        assert points.dtype == np.float32
        assert np.isfinite(points).all()
        # One point per voxel of 2 cm.
        assert len(np.unique(np.floor(points / np.float32(0.02)), axis=0)) >= 0.999 * len(points)
        nearest, _ = cKDTree(points).query(points, 2)
        spacings.append(np.median(nearest[:, 1]))
        counts.append(len(points))
        assert 0.2 < np.median(points[:, 2]) < 4.0  # in front of the first camera
        assert (np.ptp(points, axis=0) < 8).all()
    assert len({scans(seed)[0].points.tobytes() for seed in SEEDS}) == len(SEEDS)
    assert min(counts) > 1500
    assert max(counts) < 100_000
    assert 8_000 < np.median(counts) < 35_000
    assert 0.011 < min(spacings) <= max(spacings) < 0.017


@pytest.mark.parametrize(
    ("seed", "at_least"),
    [
        (0, 0.3),
        pytest.param(1, 0.6, marks=pytest.mark.slow),
        pytest.param(2, 0.1, marks=pytest.mark.slow),
    ],
)
def test_overlap_of_a_pair(seed: int, at_least: float) -> None:
    pair = room_pair(seed, at_least)
    back = overlap(pair.target, pair.source, np.linalg.inv(pair.T_target_source))
    assert pair.overlap == overlap(pair.source, pair.target, pair.T_target_source)
    assert min(pair.overlap, back) >= at_least
    wrong = pair.T_target_source.copy()
    wrong[:3, 3] += 3.0
    assert overlap(pair.source, pair.target, wrong) < 0.5 * pair.overlap


def test_overlap_counts_points() -> None:
    line = np.array([[0.0, 0, 0], [1, 0, 0], [2, 0, 0], [3, 0, 0]])
    assert overlap(line, line[:3] + np.array([0, 0.01, 0]), np.eye(4), distance=0.02) == 0.75
    assert overlap(line, line[:0], np.eye(4)) == 0.0


def test_invalid_arguments() -> None:
    with pytest.raises(InputError, match="seed"):
        room_scans(-1, 1)
    with pytest.raises(InputError, match="resolution"):
        room_scans(0, 1, resolution=0.0)
    with pytest.raises(InputError, match="overlap"):
        room_pair(0, min_overlap=0.99)


def test_the_import_needs_no_file_readers() -> None:
    """Training machines have numpy, scipy, numba and torch only."""
    code = (
        "import sys, wsdesc.datasets.synthetic\n"
        "print([m for m in ('trimesh', 'pydantic', 'matplotlib', 'laspy', 'h5py') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
