"""The relative scale of two aligned surfaces, and its uncertainty."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.spatial.transform import Rotation

from wsdesc.alignment.refine import refine
from wsdesc.alignment.scale import RelativeScale, estimate_scale
from wsdesc.alignment.scale.parts import ContactPairs, deviation_between_parts, divide
from wsdesc.alignment.surface import CudaSurface, make_surface
from wsdesc.cloud.sampling import voxel_downsample
from wsdesc.datasets.synthetic import RoomPair, room_pair

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


@pytest.mark.parametrize("factor", [0.9, 0.94, 0.98, 0.99, 1.0, 1.012, 1.04, 1.15])
def test_factor_is_found_and_judged(room: RoomPair, factor: float):
    target = downsampled(room.target)
    moved, T = scaled_about_the_mean(downsampled(room.target), factor)
    scale = estimate_scale(make_surface(moved), make_surface(target), T, RESOLUTION)
    assert scale.factor == pytest.approx(factor, rel=0.005)
    assert scale.differs == (factor != 1.0)
    assert not scale.unchecked
    assert 0.003 <= scale.deviation < 0.0035


@pytest.mark.parametrize("factor", [0.97, 1.0, 1.03])
def test_two_scans_of_a_room_are_judged(factor: float):
    pair = room_pair(1)
    source, target = downsampled(factor * pair.source), downsampled(pair.target)
    T = pair.T_target_source.copy()
    middle = pair.source.mean(axis=0)
    T[:3, 3] += T[:3, :3] @ ((1 - factor) * middle)
    surfaces = make_surface(source), make_surface(target)
    T = refine(*surfaces, T[None], RESOLUTION)[0].T_target_source
    scale = estimate_scale(*surfaces, T, RESOLUTION)
    assert scale.differs == (factor != 1.0)
    assert scale.suspicious == (factor != 1.0)


def test_distortion_is_no_wrong_scale(room: RoomPair):
    target = downsampled(room.target)
    along = (target[:, 0] - target[:, 0].mean()) / np.ptp(target[:, 0])
    middle = target.mean(axis=0)
    distorted = middle + (1.01 + 0.08 * along)[:, None] * (target - middle)  # grows from one end to the other
    surfaces = make_surface(distorted), make_surface(target)
    T = refine(*surfaces, np.eye(4)[None], RESOLUTION)[0].T_target_source
    scale = estimate_scale(*surfaces, T, RESOLUTION)
    assert scale.deviation > 0.006
    assert not scale.differs


def test_factor_above_one_percent_is_suspicious_and_above_five_differs():
    assert not RelativeScale(1.009, 0.02).suspicious
    assert RelativeScale(1.011, 0.02).suspicious
    assert not RelativeScale(1.04, 0.02).differs
    assert RelativeScale(1.06, 0.04).differs


def test_overlap_that_cannot_show_five_percent_is_unchecked():
    assert RelativeScale(1.0, 0.02).unchecked
    assert RelativeScale(1.0, 0.003, determinacy=0.0).unchecked
    assert not RelativeScale(1.0, 0.015).unchecked


def test_parts_are_equal_halves_along_the_longest_axis():
    points = np.random.default_rng(0).random((800, 3)) * (4.0, 2.0, 1.0)
    part = divide(points, 3)
    np.testing.assert_array_equal(np.bincount(part), 100)
    halves = points[:, 0] > np.median(points[:, 0])
    assert max(np.mean((part >= 4) == halves), np.mean((part >= 4) != halves)) > 0.95
    np.testing.assert_array_equal(part // 4, divide(points, 1))


def test_few_pairs_or_one_place_have_no_deviation():
    few = ContactPairs(np.random.default_rng(0).random((9, 3)), np.ones((9, 3)), np.zeros(9), np.ones(9))
    assert math.isinf(deviation_between_parts(few))
    one_place = ContactPairs(np.zeros((99, 3)), np.ones((99, 3)), np.zeros(99), np.ones(99))
    assert math.isinf(deviation_between_parts(one_place))


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
    assert scale.unchecked


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
    cuda = estimate_scale(*surfaces, T, RESOLUTION)
    assert cuda.factor == pytest.approx(cpu.factor, rel=1e-3)
    assert cuda.deviation == pytest.approx(cpu.deviation, rel=0.05)
