"""Synthetic scenes whose scans are moved copies of one cloud, and methods with known results."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.spatial.transform import Rotation
from torch import Tensor

from wsdesc.cloud.files import write_points
from wsdesc.core.geometry import make_pose
from wsdesc.datasets.threedmatch import InfoEntry, LogEntry, write_info, write_log
from wsdesc.evaluation import information_matrix
from wsdesc.evaluation.methods import Method

POINTS = 300


def random_pose(rng: np.random.Generator, shift: float = 2.0) -> np.ndarray:
    return make_pose(Rotation.from_quat(rng.normal(size=4)).as_matrix(), rng.uniform(-shift, shift, 3))


def write_scene(root: Path, name: str = "room", scans: int = 4, scale: float = 1.0, seed: int = 0) -> Path:
    """Write a scene of moved copies of one cloud, one metre being `scale` long; all pairs overlap."""
    rng = np.random.default_rng(seed)
    world = rng.uniform(-1, 1, (POINTS, 3))
    poses = [random_pose(rng) for _ in range(scans)]  # T_scan_world
    (root / name).mkdir(parents=True)
    (root / f"{name}-evaluation").mkdir()
    clouds = [world @ T[:3, :3].T + T[:3, 3] for T in poses]
    for k, cloud in enumerate(clouds):
        write_points(root / name / f"cloud_bin_{k}.ply", scale * cloud[rng.permutation(POINTS)])
    log, info = [], []
    for i in range(scans):
        for j in range(i + 1, scans):
            T_i_j = poses[i] @ np.linalg.inv(poses[j])
            T_i_j[:3, 3] *= scale
            log.append(LogEntry(i, j, scans, T_i_j))
            matrix = information_matrix(torch.from_numpy(scale * clouds[i])).numpy()
            info.append(InfoEntry(i, j, scans, matrix))
    write_log(root / f"{name}-evaluation" / "gt.log", log)
    write_info(root / f"{name}-evaluation" / "gt.info", info)
    return root


def sorted_distances(points: Tensor, keypoints: Tensor, unit: float) -> Tensor:
    """Describe a keypoint by the distances to its eight nearest points: exact for moved copies."""
    assert unit > 0
    return torch.cdist(keypoints.double(), points.double()).sort(1).values[:, 1:9] / unit


class CountingDescriber:
    """Count calls; optionally stop the run or return NaN at one of them."""

    def __init__(self, stop_at: int | None = None, nan_at: int | None = None) -> None:
        self.calls, self.stop_at, self.nan_at = 0, stop_at, nan_at

    def __call__(self, points: Tensor, keypoints: Tensor, unit: float) -> Tensor:
        self.calls += 1
        if self.calls == self.stop_at:
            raise KeyboardInterrupt
        descriptors = sorted_distances(points, keypoints, unit)
        if self.calls == self.nan_at:
            descriptors[3] = torch.nan
        return descriptors


@pytest.fixture
def exact_method() -> Method:
    return Method("exact", describer=sorted_distances)


@pytest.fixture
def scene_root(tmp_path: Path) -> Path:
    return write_scene(tmp_path / "data")


@pytest.fixture
def make_scene_root(tmp_path: Path) -> Callable[..., Path]:
    return lambda folder="data", **options: write_scene(tmp_path / folder, **options)
