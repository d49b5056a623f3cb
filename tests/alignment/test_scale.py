"""The relative scale of two aligned surfaces, and its uncertainty."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.spatial.transform import Rotation

from wsdesc.alignment.scale import estimate_scale
from wsdesc.alignment.surface import CudaSurface, make_surface
from wsdesc.cloud.sampling import voxel_downsample
from wsdesc.datasets.synthetic import RoomPair

RESOLUTION = 0.025


def downsampled(points: np.ndarray) -> np.ndarray:
    return voxel_downsample(torch.from_numpy(points.astype(np.float64)), RESOLUTION).numpy()


def scaled_about_the_mean(points: np.ndarray, factor: float) -> tuple[np.ndarray, np.ndarray]:
    """Scale points and return the rigid pose that brings the scaled points closest to the originals."""
    middle = points.mean(axis=0)
    R = Rotation.from_rotvec([0.3, -0.8, 0.5]).as_matrix()
    T = np.eye(4)
    T[:3, :3] = R.T
    T[:3, 3] = middle - R.T @ (factor * R @ middle)
    return factor * points @ R.T, T


@pytest.mark.parametrize("factor", [0.9, 0.94, 1.0, 1.06, 1.15])
def test_factor_is_found_and_judged(room: RoomPair, factor: float):
    target = downsampled(room.target)
    moved, T = scaled_about_the_mean(downsampled(room.target), factor)
    scale = estimate_scale(make_surface(moved), make_surface(target), T, RESOLUTION)
    assert scale.factor == pytest.approx(factor, rel=0.005)
    assert scale.differs == (factor != 1.0)
    assert 0.014 < scale.deviation < 0.02


@pytest.mark.parametrize(("single", "differs"), [(False, False), (True, True)])
def test_scans_from_one_viewpoint_each_are_not_distorted(room: RoomPair, single: bool, differs: bool):
    target = downsampled(room.target)
    moved, T = scaled_about_the_mean(target, 1.04)
    scale = estimate_scale(make_surface(moved), make_surface(target), T, RESOLUTION, single=single)
    assert scale.differs == differs


def test_swapped_surfaces_give_the_inverse_factor(room: RoomPair):
    target = downsampled(room.target)
    moved, T = scaled_about_the_mean(target, 1.04)
    source, target = make_surface(moved), make_surface(target)
    forth = estimate_scale(source, target, T, RESOLUTION).factor
    back = estimate_scale(target, source, np.linalg.inv(T), RESOLUTION).factor
    assert forth * back == pytest.approx(1.0, abs=2e-3)


def test_plane_does_not_determine_the_scale():
    x, y = np.meshgrid(np.arange(60), np.arange(60))
    plane = np.stack([x.ravel(), y.ravel(), 0 * x.ravel()], axis=1) * RESOLUTION
    scale = estimate_scale(make_surface(1.2 * plane), make_surface(plane), np.eye(4), RESOLUTION)
    assert not scale.differs


def test_surfaces_without_contact_have_no_scale():
    rng = np.random.default_rng(0)
    source, target = make_surface(rng.random((100, 3))), make_surface(rng.random((100, 3)) + 50)
    scale = estimate_scale(source, target, np.eye(4), RESOLUTION)
    assert scale.factor == 1.0
    assert math.isinf(scale.deviation)
    assert not scale.differs


def test_backends_agree(room: RoomPair):
    target = downsampled(room.target)
    moved, T = scaled_about_the_mean(target, 1.03)
    cpu = estimate_scale(make_surface(moved), make_surface(target), T, RESOLUTION)
    torch_surfaces = [CudaSurface.of(torch.from_numpy(points)) for points in (moved, target)]
    cuda = estimate_scale(*torch_surfaces, T, RESOLUTION)
    assert cuda.factor == pytest.approx(cpu.factor, rel=1e-3)
    assert cuda.deviation == pytest.approx(cpu.deviation, rel=0.05)


@pytest.mark.gpu
def test_gpu_agrees_with_cpu(room: RoomPair):
    target = downsampled(room.target)
    moved, T = scaled_about_the_mean(target, 1.03)
    cpu = estimate_scale(make_surface(moved), make_surface(target), T, RESOLUTION)
    surfaces = [make_surface(torch.from_numpy(points).cuda()) for points in (moved, target)]
    assert estimate_scale(*surfaces, T, RESOLUTION).factor == pytest.approx(cpu.factor, rel=1e-3)
