"""Merging scans one at a time equals the voxel average of all points."""

import tracemalloc

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from poses import random_pose
from wsdesc.cloud.cloud import Cloud
from wsdesc.cloud.merge import VoxelMerge
from wsdesc.cloud.storage import Storage
from wsdesc.core.errors import InputError


def plain_average(points, size):
    """Average by definition, with a dictionary of cells."""
    cells = {}
    for point, cell in zip(points, map(tuple, np.floor(points / size).astype(int)), strict=True):
        cells.setdefault(cell, []).append(point)
    return np.array([np.mean(cells[cell], axis=0) for cell in sorted(cells)])


@pytest.mark.parametrize("shift", [0.0, 4.5e5])
def test_equals_a_plain_voxel_average(shift):
    rng = np.random.default_rng(0)
    merged, moved = VoxelMerge(0.25), []
    for count in (700, 1, 500, 300):
        scan, T = rng.normal(size=(count, 3)), random_pose(rng, 2.0)
        T[:3, 3] += shift
        merged.add(scan.astype(np.float32), T)
        moved.append(scan.astype(np.float32).astype(np.float64) @ T[:3, :3].T + T[:3, 3])
    expected = plain_average(np.concatenate(moved), 0.25)
    assert len(merged.points) == len(expected) > 100
    np.testing.assert_allclose(merged.points, expected, atol=1e-12 if shift == 0 else 1e-8)
    assert merged.counts.sum() == 1501


def test_the_order_of_scans_does_not_matter():
    rng = np.random.default_rng(1)
    scans = [rng.normal(size=(400, 3)) for _ in range(3)]
    forth, back = VoxelMerge(0.3), VoxelMerge(0.3)
    for scan in scans:
        forth.add(scan)
    for scan in reversed(scans):
        back.add(scan)
    np.testing.assert_allclose(forth.points, back.points, atol=1e-12)


def test_memory_does_not_grow_with_the_number_of_scans():
    rng = np.random.default_rng(2)
    merged = VoxelMerge(0.1)
    merged.add(rng.uniform(0, 1, (20_000, 3)))

    def peak_of(scans):
        tracemalloc.start()
        for _ in range(scans):
            merged.add(rng.uniform(0, 1, (20_000, 3)))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return peak

    assert peak_of(12) < 1.2 * peak_of(2)
    assert len(merged.points) == 1000


def test_large_clouds_are_added_in_chunks(monkeypatch):
    from wsdesc.cloud import merge

    points = np.random.default_rng(3).normal(size=(1000, 3))
    expected, chunked = VoxelMerge(0.5), VoxelMerge(0.5)
    expected.add(points)
    monkeypatch.setattr(merge, "_POINTS_PER_CHUNK", 77)
    chunked.add(points)
    np.testing.assert_allclose(chunked.points, expected.points, atol=1e-12)


def test_attributes_are_averaged_or_taken_from_the_first_point():
    turn = np.eye(4)
    turn[:3, :3] = Rotation.from_euler("z", 90, degrees=True).as_matrix()
    first = Cloud(
        np.array([[0.1, 0.1, 0.1], [0.2, 0.2, 0.2], [2.5, 0.5, 0.5]]),
        {
            "colors": np.array([[10, 0, 0], [21, 0, 0], [7, 8, 9]], np.uint8),
            "normals": np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1]], np.float32),
            "classification": np.array([2, 5, 6], np.uint8),
            "intensity": np.array([1, 4, 9], np.uint16),
            "only here": np.zeros(3),
        },
        storage=Storage(".pcd", single=True),
    )
    rgb = np.array([30 << 16], np.uint32)
    more = {"rgb": rgb.view(np.float32), "classification": np.array([300], np.uint16)}
    normals = dict(
        zip(("normal_x", "normal_y", "normal_z"), np.array([[0], [-1], [0]], np.float32), strict=True)
    )
    second = Cloud(np.array([[0.3, -0.3, 0.3]]), more | normals | {"intensity": np.array([4], np.uint16)})
    merged = VoxelMerge(1.0)
    merged.add_cloud(first)
    merged.add_cloud(second, turn)  # (0.3, 0.3, 0.3), normal (1, 0, 0)
    cloud = merged.cloud
    assert set(cloud.attributes) == {"red", "green", "blue", "nx", "ny", "nz", "classification", "intensity"}
    assert cloud.attributes["red"].tolist() == [20, 7]  # (10 + 21 + 30) / 3
    assert cloud.attributes["red"].dtype == np.uint8
    assert cloud.attributes["intensity"].tolist() == [3, 9]
    assert cloud.attributes["classification"].tolist() == [2, 6]
    assert cloud.attributes["classification"].dtype == np.uint16
    half = [cloud.attributes[name][0] for name in ("nx", "ny", "nz")]
    np.testing.assert_allclose(half, np.array([2, 1, 0]) / np.sqrt(5), atol=1e-6)
    assert not cloud.storage.single
    np.testing.assert_allclose(cloud.points, [[0.2, 0.2, 0.2], [2.5, 0.5, 0.5]])


def test_attributes_do_not_depend_on_chunks(monkeypatch):
    from wsdesc.cloud import merge

    rng = np.random.default_rng(4)
    cloud = Cloud(rng.normal(size=(1000, 3)), {"a": rng.random(1000), "label": rng.integers(0, 9, 1000)})
    expected, chunked = VoxelMerge(0.5), VoxelMerge(0.5)
    expected.add_cloud(cloud)
    monkeypatch.setattr(merge, "_POINTS_PER_CHUNK", 77)
    chunked.add_cloud(cloud)
    for name, values in expected.cloud.attributes.items():
        np.testing.assert_allclose(chunked.cloud.attributes[name], values, atol=1e-12)


def test_bad_input():
    assert VoxelMerge(1.0).points.shape == (0, 3)
    for size in (0.0, -1.0, np.nan, np.inf):
        with pytest.raises(InputError, match="voxel size"):
            VoxelMerge(size)
    merged = VoxelMerge(1e-6)
    merged.add(np.zeros((1, 3)))
    with pytest.raises(InputError, match="larger"):
        merged.add(np.full((1, 3), 100.0))
