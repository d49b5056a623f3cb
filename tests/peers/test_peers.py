"""Peers: the registry, missing packages, units and origins, and each peer that is installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from scipy.spatial.transform import Rotation
from torch import Tensor

from wsdesc import peers
from wsdesc.cloud.sampling import voxel_downsample
from wsdesc.core.errors import InputError
from wsdesc.datasets.synthetic import RoomPair
from wsdesc.evaluation import inlier_ratio, r2_success
from wsdesc.evaluation.scans import load_scan
from wsdesc.evaluation.scenes import read_scenes
from wsdesc.matching import mutual_matches
from wsdesc.peers.base import far_origin, load_package, to_scan_frames

MISSING = peers.available()
POSES = ("fpfh+ransac", "fgr", "kiss-matcher")


def if_available(*names: str) -> list[Any]:
    """Create parameters that are skipped, before any fixture runs, if the peer is not installed."""
    return [
        pytest.param(name, marks=pytest.mark.skipif(MISSING[name] is not None, reason=MISSING[name] or ""))
        for name in names
    ]


def random_pose(seed: int = 0, shift: float = 0.5) -> Tensor:
    T = torch.eye(4, dtype=torch.float64)
    T[:3, :3] = torch.from_numpy(Rotation.random(random_state=seed).as_matrix())
    T[:3, 3] = shift * torch.tensor([1.0, -2.0, 0.5])
    return T


def part_of(room: RoomPair) -> Tensor:
    """Choose a few thousand points at the working resolution, because FPFH is slow."""
    points = voxel_downsample(torch.from_numpy(room.source).double(), 0.025)
    return points[(points - points.median(0).values).norm(dim=1).argsort()[:4000]]


def transformed(points: Tensor, T: Tensor) -> Tensor:
    return points.double() @ T[:3, :3].T + T[:3, 3]


def test_names_by_kind() -> None:
    assert {"shot", "fpfh", "fpfh-unoriented"} <= set(peers.names("descriptor"))
    assert set(POSES) | {"icp"} <= set(peers.names("pose"))
    assert peers.names() == list(MISSING)
    assert MISSING["shot"] is None


def test_unknown_names() -> None:
    with pytest.raises(InputError, match=r"choose shot, fpfh"):
        peers.descriptor("shoot")
    with pytest.raises(InputError, match=r"unknown pose peer 'shot'"):
        peers.pose("shot")


def test_packages_are_imported_when_a_peer_is_created() -> None:
    code = "import sys, wsdesc.peers; print({'open3d', 'kiss_matcher'} & set(sys.modules))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "set()"


def test_a_missing_package_has_an_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "open3d", None)
    monkeypatch.setitem(sys.modules, "kiss_matcher", None)
    lines = peers.available()
    assert 'pip install "open3d>=' in str(lines["fpfh"])
    assert "libusb-1.0-0 libgl1 libgomp1" in str(lines["fgr"])
    assert 'pip install "open3d>=' in str(lines["kiss-matcher"])
    assert lines["shot"] is None
    with pytest.raises(peers.PeerUnavailableError, match="pip install"):
        peers.descriptor("fpfh")


def test_a_missing_system_library_has_an_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(name: str) -> ModuleType:
        raise ImportError("libusb-1.0.so.0: cannot open shared object file\nsecond line")

    monkeypatch.setattr("wsdesc.peers.base.import_module", fails)
    with pytest.raises(peers.PeerUnavailableError) as caught:
        load_package("open3d", "Open3D", "libusb-1.0-0")
    assert "\n" not in str(caught.value)
    assert str(caught.value).endswith("apt-get install libusb-1.0-0")


def test_origins_are_included_in_the_pose() -> None:
    T, unit = random_pose(), 1000.0
    source = torch.randn(20, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    origin_p, origin_q = np.array([1.0, 2, 3]), np.array([-4.0, 5, 6])
    in_scan_frames = to_scan_frames(T.numpy(), origin_p, origin_q, unit)
    assert in_scan_frames is not None
    local = transformed(source - torch.from_numpy(origin_p), T) + torch.from_numpy(origin_q)
    torch.testing.assert_close(transformed(unit * source, in_scan_frames), unit * local)
    assert to_scan_frames(np.full((4, 4), np.nan), origin_p, origin_q, unit) is None
    assert to_scan_frames(np.diag([2.0, 2, 2, 1]), origin_p, origin_q, unit) is None


def test_only_far_scans_are_shifted() -> None:
    near = np.random.default_rng(0).normal(size=(50, 3))
    assert not far_origin(near).any()
    np.testing.assert_allclose(far_origin(near + 1e6), near.mean(0) + 1e6)


class FakeMatcher:
    """Record the arguments; return a fixed pose."""

    seen: list[tuple[np.ndarray, np.ndarray]]
    T: np.ndarray
    inliers = 50

    def __init__(self, config: Any) -> None:
        assert config.voxel_size == 0.025

    def estimate(self, p: np.ndarray, q: np.ndarray) -> Any:
        type(self).seen.append((p, q))
        return SimpleNamespace(valid=True, rotation=self.T[:3, :3], translation=self.T[:3, 3])

    def get_num_final_inliers(self) -> int:
        return self.inliers


@pytest.mark.parametrize("unit", [0.001, 1.0, 1000.0])
@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_kiss_matcher_receives_metres(monkeypatch: pytest.MonkeyPatch, unit: float, offset: float) -> None:
    fake = ModuleType("kiss_matcher")
    fake.KISSMatcher = FakeMatcher  # type: ignore[attr-defined]
    fake.KISSMatcherConfig = lambda **options: SimpleNamespace(**options)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "kiss_matcher", fake)
    FakeMatcher.seen, FakeMatcher.T, FakeMatcher.inliers = [], random_pose().numpy(), 50
    cloud = 0.4 * torch.rand(1000, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    given = unit * (cloud + offset)
    estimate = peers.pose("kiss-matcher")(given, given, unit)
    assert estimate is not None
    p, _ = FakeMatcher.seen[0]
    assert p.dtype == np.float32
    assert np.abs(p).max() < 2
    # The fake's pose is converted to the frames of the original scans.
    seen = transformed(torch.from_numpy(p).double(), random_pose())
    mean = (given / unit).mean(0) if offset else torch.zeros(3, dtype=torch.float64)
    moved = transformed(unit * (torch.from_numpy(p).double() + mean), estimate) / unit
    torch.testing.assert_close(moved, seen + mean, rtol=0, atol=0.02)
    FakeMatcher.inliers = 4
    assert peers.pose("kiss-matcher")(given, given, unit) is None


@pytest.mark.parametrize("name", if_available("fpfh", "fpfh-unoriented"))
def test_fpfh(name: str, room: RoomPair) -> None:
    points = part_of(room).float()
    keypoints = points[::50]
    descriptors = peers.descriptor(name)(points, keypoints)
    assert descriptors.shape == (len(keypoints), 33)
    assert descriptors.dtype == torch.float32
    scaled = peers.descriptor(name)(1024 * points, 1024 * keypoints, 1024.0)
    torch.testing.assert_close(scaled, descriptors, rtol=1e-3, atol=0.1)


@pytest.mark.parametrize("name", if_available("fpfh", "fpfh-unoriented"))
def test_inlier_ratio_on_a_real_pair(name: str, data_folder: Path) -> None:
    """Both fragments are transformed at random."""
    (scene,) = read_scenes(data_folder / "indoor" / "test")
    pair = scene.pairs[0]
    q, p = (load_scan(scene, k, keypoints=800, voxel=0.025, rotated=True, seed=0) for k in (pair.i, pair.j))
    truth = q.T_work_file @ torch.from_numpy(pair.T_i_j) @ torch.linalg.inv(p.T_work_file)
    ratios = {}
    for peer in ("shot", name):
        describe = peers.descriptor(peer)
        matches = mutual_matches(*(describe(fragment.points, fragment.keypoints) for fragment in (p, q)))
        ratios[peer] = inlier_ratio(p.keypoints, q.keypoints, matches, truth)
    assert ratios["shot"] > 1.2 * ratios[name] > 0


@pytest.mark.parametrize("name", if_available(*POSES))
@pytest.mark.parametrize("unit", [1.0, 1000.0])
def test_poses_of_a_rotated_scan(name: str, unit: float, room: RoomPair) -> None:
    T = random_pose(shift=0.0)  # about the origin, where the viewpoint stays
    source = unit * part_of(room)
    estimate = peers.pose(name)(source, transformed(source, T), unit)
    assert estimate is not None
    assert estimate.dtype == torch.float64
    assert bool(r2_success(estimate, T, unit))


@pytest.mark.parametrize("name", if_available("icp"))
def test_icp_from_a_small_displacement(name: str, room: RoomPair) -> None:
    T = torch.eye(4, dtype=torch.float64)
    T[:3, :3] = torch.from_numpy(Rotation.from_rotvec([0.0, 0.03, 0.02]).as_matrix())
    T[:3, 3] = torch.tensor([0.03, -0.02, 0.04])
    source = part_of(room)
    estimate = peers.pose(name)(source, transformed(source, T))
    assert estimate is not None
    torch.testing.assert_close(estimate, T, rtol=0, atol=0.01)


@pytest.mark.parametrize("name", if_available(*peers.names("pose")))
def test_too_few_points(name: str) -> None:
    few = torch.tensor([[0.0, 0, 0], [1, 0, 0], [0, 1, 0]])
    assert peers.pose(name)(few, few) is None


@pytest.mark.parametrize("name", if_available("kiss-matcher"))
def test_points_without_neighbours(name: str) -> None:
    sparse = 100 * torch.rand(500, 3, generator=torch.Generator().manual_seed(0))
    dense = torch.rand(5000, 3, generator=torch.Generator().manual_seed(1))
    assert peers.pose(name)(sparse, dense) is None
    assert peers.pose(name)(dense, sparse) is None
