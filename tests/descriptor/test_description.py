"""Descriptions of scans: coordinates, files, and more keypoints."""

import numpy as np
import pytest

import wsdesc
from wsdesc import Description
from wsdesc.core.errors import FileFormatError
from wsdesc.datasets.synthetic import room_scans


@pytest.fixture(scope="module")
def points():
    return room_scans(5, 1, resolution=0.08)[0].points.astype(np.float64) + [1e5, 0.0, -7.0]


@pytest.fixture(scope="module")
def description(points):
    return wsdesc.describe(points, keypoints=60)


def test_keypoints_are_in_the_coordinates_of_the_scan(points, description):
    assert description.descriptors.shape == (60, 32)
    assert description.frames.shape == (60, 3, 3)
    nearest = np.linalg.norm(description.scan_keypoints[:, None] - points, axis=2).min(axis=1)
    assert nearest.max() < description.resolution


def test_file_keeps_the_description(description, tmp_path):
    description.save(tmp_path / "a.npz")
    loaded = Description.load(tmp_path / "a.npz")
    assert (loaded.descriptors == description.descriptors).all()
    np.testing.assert_array_equal(loaded.scan_keypoints, description.scan_keypoints)
    assert (loaded.resolution, loaded.model) == (description.resolution, description.model)


def test_first_keypoints_do_not_depend_on_the_number(points, description):
    fewer = wsdesc.describe(points, keypoints=20, resolution=description.resolution)
    np.testing.assert_allclose(fewer.descriptors, description.descriptors[:20], atol=1e-5)


@pytest.mark.parametrize("content", [b"", b"PK nonsense", b"\x80\x04pickle"])
def test_other_files_are_refused(tmp_path, content):
    (tmp_path / "a.npz").write_bytes(content)
    with pytest.raises(FileFormatError, match=r"a\.npz"):
        Description.load(tmp_path / "a.npz")


def test_truncated_files_are_refused(description, tmp_path):
    description.save(tmp_path / "a.npz")
    content = (tmp_path / "a.npz").read_bytes()
    for length in (len(content) // 2, len(content) - 10):
        (tmp_path / "a.npz").write_bytes(content[:length])
        with pytest.raises(FileFormatError, match=r"a\.npz"):
            Description.load(tmp_path / "a.npz")
