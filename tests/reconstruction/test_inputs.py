"""Scans of a reconstruction in every form become files."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
import trimesh

import wsdesc
from wsdesc.cloud.convert import as_cloud
from wsdesc.core.errors import InputError
from wsdesc.reconstruction.inputs import as_files

POINTS = np.random.default_rng(0).normal(size=(60, 3))


def test_every_form_becomes_a_file(tmp_path):
    wsdesc.write_points(tmp_path / "a.ply", POINTS)
    scans = [
        tmp_path / "a.ply",
        POINTS,
        torch.from_numpy(POINTS),
        wsdesc.Cloud(POINTS),
        SimpleNamespace(points=POINTS),
        dict(zip("xyz", POINTS.T, strict=True)),
        trimesh.PointCloud(POINTS),
        None,
    ]
    paths, failed = as_files(scans, tmp_path, None)
    assert list(paths) == ["a.ply", *(f"scan {k}" for k in range(1, 7))]
    for path in paths.values():
        np.testing.assert_array_equal(wsdesc.read_points(path), POINTS)
    assert list(failed) == ["scan 7"]
    assert "NoneType: pass an array" in failed["scan 7"]


@pytest.mark.parametrize(
    "scan", [POINTS, wsdesc.Cloud(POINTS), SimpleNamespace(points=POINTS), torch.from_numpy(POINTS)]
)
def test_one_scan_is_not_a_sequence_of_scans(scan):
    with pytest.raises(InputError, match="at least two readable scans are required, found 1"):
        wsdesc.reconstruct(scan)


def test_an_array_of_scans_is_a_sequence(tmp_path):
    paths, failed = as_files(np.stack([POINTS, POINTS]), tmp_path, None)
    assert (len(paths), failed) == (2, {})


def test_scans_in_memory_keep_viewpoint_and_attributes(tmp_path):
    viewpoint, intensity = np.array([0.5, -0.2, 1.5]), np.arange(len(POINTS), dtype=np.float32)
    names = np.array(["wall"] * len(POINTS))  # text is left out
    clouds = [
        wsdesc.Cloud(POINTS, {"intensity": intensity, "name": names}, viewpoint=viewpoint),
        wsdesc.Cloud(POINTS, sampled=True),
    ]
    paths, failed = as_files(clouds, tmp_path, None)
    first, second = (as_cloud(path) for path in paths.values())
    assert failed == {}
    np.testing.assert_array_equal(first.viewpoint, viewpoint)
    assert list(first.attributes) == ["intensity"]
    assert len(first.attributes["intensity"]) == len(first)
    assert not first.sampled
    assert second.sampled
    assert second.viewpoint is None
