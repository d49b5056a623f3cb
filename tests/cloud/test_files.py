"""Reading and writing of clouds, and the errors of files that cannot be read or written."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from wsdesc.cloud.cloud import Cloud
from wsdesc.cloud.files import read_cloud, read_points, write_points
from wsdesc.core.errors import FileFormatError, InputError, MissingExtraError, WSDescError

EXACT = ["ply", "pcd", "xyz", "txt", "csv", "pts", "asc", "npy", "npz", "obj", "off"]
WITH_ATTRIBUTES = ["ply", "xyz", "txt", "csv"]
UTM = np.array([5e5, 5e6, 300])


@pytest.fixture
def points() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(50, 3)) * 10 + UTM


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def all_formats() -> list[str]:
    return [*EXACT, "las", "laz", "e57"]


@pytest.mark.parametrize("extension", [*EXACT, "PLY", "NPY", "Csv"])
def test_float64_is_read_back_exactly(tmp_path, points, extension):
    path = tmp_path / f"scan.{extension}"
    write_points(path, points)
    back = read_points(path)
    assert back.dtype == np.float64
    np.testing.assert_array_equal(back, points)
    assert names_in(tmp_path) == [path.name]


@pytest.mark.parametrize(("extension", "tolerance"), [("las", 1e-4), ("laz", 1e-4), ("e57", 1e-5)])
def test_rounding_far_from_the_origin(tmp_path, points, extension, tolerance):
    path = tmp_path / f"scan.{extension}"
    write_points(path, points)
    assert np.abs(read_points(path) - points).max() < tolerance


@pytest.mark.parametrize("size", [1e-3, 1.0, 1e3, 1e7])
def test_las_scale_depends_on_the_extent(tmp_path, size):
    cloud = np.random.default_rng(1).uniform(-size, size, (100, 3))
    write_points(tmp_path / "scan.las", cloud)
    assert np.abs(read_points(tmp_path / "scan.las") - cloud).max() <= max(1e-7 * size, 1e-13)


@pytest.mark.parametrize("extension", all_formats())
def test_one_float32_point_from_a_tensor(tmp_path, extension):
    path = tmp_path / f"one.{extension}"
    point = torch.tensor([[0.1, -2.5, 3e3]], requires_grad=True)
    write_points(path, point)
    np.testing.assert_allclose(read_points(path), point.detach().double().numpy(), rtol=0, atol=1e-4)


@pytest.mark.parametrize("extension", ["ply", "pcd", "npz"])
def test_float32_takes_half_the_space(tmp_path, points, extension):
    write_points(tmp_path / f"double.{extension}", points)
    write_points(tmp_path / f"single.{extension}", points.astype(np.float32))
    sizes = [(tmp_path / f"{name}.{extension}").stat().st_size for name in ("double", "single")]
    assert sizes[0] - sizes[1] >= 50 * 3 * 4 - 10
    np.testing.assert_array_equal(read_points(tmp_path / f"single.{extension}"), points.astype(np.float32))


@pytest.mark.parametrize("extension", WITH_ATTRIBUTES)
def test_attributes_are_read_back_as_columns(tmp_path, points, extension):
    rng = np.random.default_rng(2)
    colors = rng.integers(0, 256, (50, 3), dtype=np.uint8)
    normals = rng.normal(size=(50, 3)).astype(np.float32)
    wide = rng.integers(-(2**31), 2**31, 50)
    path = tmp_path / f"scan.{extension}"
    given = {"colors": colors, "normal": normals, "time stamp": wide, "inside": wide > 0}
    write_points(path, points, given)
    cloud = read_cloud(path)
    np.testing.assert_array_equal(cloud.points, points)
    names = {"red", "green", "blue", "nx", "ny", "nz", "time_stamp", "inside"}
    assert set(cloud.attributes) == names
    np.testing.assert_array_equal(cloud.attributes["green"], colors[:, 1])
    np.testing.assert_array_equal(cloud.attributes["nz"], normals[:, 2])
    np.testing.assert_array_equal(cloud.attributes["time_stamp"], wide)
    np.testing.assert_array_equal(cloud.attributes["inside"], wide > 0)
    again = tmp_path / f"again.{extension}"
    write_points(again, cloud.points, cloud.attributes)
    assert set(read_cloud(again).attributes) == names


def test_pcd_attributes(tmp_path, points):
    """Colours and normals as in the Point Cloud Library, other vectors as one field."""
    rng = np.random.default_rng(2)
    colors = rng.integers(0, 256, (50, 3), dtype=np.uint8)
    normals, histogram = rng.normal(size=(50, 3)).astype(np.float32), rng.random((50, 33))
    write_points(tmp_path / "a.pcd", points, {"colors": colors, "normals": normals, "fpfh": histogram})
    attributes = read_cloud(tmp_path / "a.pcd").attributes
    assert set(attributes) == {"rgb", "normal_x", "normal_y", "normal_z", "fpfh"}
    np.testing.assert_array_equal(attributes["fpfh"], histogram)
    np.testing.assert_array_equal(attributes["normal_y"], normals[:, 1])
    packed = attributes["rgb"].view(np.uint32)
    np.testing.assert_array_equal(packed >> 8 & 255, colors[:, 1])


def test_npz_keeps_attribute_arrays(tmp_path, points):
    normals = np.random.default_rng(3).normal(size=(50, 3))
    write_points(tmp_path / "scan.npz", points, {"normals": normals})
    np.testing.assert_array_equal(read_cloud(tmp_path / "scan.npz").attributes["normals"], normals)


@pytest.mark.parametrize("extension", ["las", "laz"])
def test_las_attributes(tmp_path, points, extension):
    rng = np.random.default_rng(4)
    given = {
        "intensity": rng.integers(0, 65536, 50).astype(np.uint16),
        "colors": rng.integers(0, 256, (50, 3), dtype=np.uint8),
        "gps_time": rng.random(50),
        "curvature": rng.random(50).astype(np.float32),
    }
    path = tmp_path / f"scan.{extension}"
    write_points(path, points, given)
    attributes = read_cloud(path).attributes
    for name in ("intensity", "gps_time", "curvature"):
        np.testing.assert_array_equal(attributes[name], given[name])
    np.testing.assert_array_equal(attributes["blue"], given["colors"][:, 2])
    with pytest.raises(InputError, match="intensity"):
        write_points(path, points, {"intensity": rng.random(50)})
    np.testing.assert_array_equal(read_cloud(path).attributes["intensity"], given["intensity"])


def test_e57_attributes(tmp_path, points):
    colors = np.random.default_rng(5).integers(0, 256, (50, 3), dtype=np.uint8)
    write_points(tmp_path / "scan.e57", points, {"colors": colors, "intensity": np.arange(50.0)})
    attributes = read_cloud(tmp_path / "scan.e57").attributes
    np.testing.assert_array_equal(attributes["colorGreen"], colors[:, 1])
    np.testing.assert_array_equal(attributes["intensity"], np.arange(50))


def test_e57_scans_are_merged_by_their_poses(tmp_path):
    import pye57

    local = np.array([[1.0, 0, 0], [0, 2, 0], [0, 0, 3], [9, 9, 9]])
    turn = np.array([np.sqrt(0.5), 0, 0, np.sqrt(0.5)])  # 90° about z
    with pye57.E57(str(tmp_path / "two.e57"), mode="w") as file:
        for rotation, shift in (([1.0, 0, 0, 0], [0.0, 0, 0]), (turn, [10.0, 20, 30])):
            data = {f"cartesian{axis}": local[:, i].copy() for i, axis in enumerate("XYZ")}
            data["cartesianInvalidState"] = np.array([0, 0, 0, 2], np.int8)
            file.write_scan_raw(data, rotation=np.array(rotation), translation=np.array(shift))
    moved = [[10, 21, 30], [8, 20, 30], [10, 20, 33]]
    np.testing.assert_allclose(read_points(tmp_path / "two.e57"), [*local[:3], *moved], atol=1e-6)


def test_e57_without_its_package_names_the_extra(tmp_path, points, monkeypatch):
    write_points(tmp_path / "scan.e57", points)
    monkeypatch.setitem(sys.modules, "pye57", None)
    with pytest.raises(MissingExtraError, match='pip install "pye57'):
        read_points(tmp_path / "scan.e57")


def test_a_missing_library_is_named(tmp_path, points, monkeypatch):
    write_points(tmp_path / "scan.las", points)
    monkeypatch.setitem(sys.modules, "laspy", None)
    with pytest.raises(FileFormatError, match="laspy is not installed; type: pip install laspy"):
        read_points(tmp_path / "scan.las")


@pytest.mark.parametrize("extension", ["las", "laz"])
def test_an_attribute_named_like_a_standard_one(tmp_path, points, extension):
    path = tmp_path / f"scan.{extension}"
    own = {"overlaq": np.arange(50, dtype=np.float32), "scanner_channel": np.ones(50, np.uint8)}
    write_points(path, points, own)
    path.write_bytes(path.read_bytes().replace(b"overlaq", b"overlap"))
    cloud = read_cloud(path)
    np.testing.assert_allclose(cloud.points, points, atol=1e-3)
    assert {len(values) for values in cloud.attributes.values()} == {50}


def test_importing_needs_numpy_only():
    heavy = ["torch", "trimesh", "pypcd4", "laspy", "pydantic", "pye57", "numba", "scipy"]
    code = f"import sys, wsdesc.cloud.files; sys.exit(str([m for m in {heavy} if m in sys.modules] or ''))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.strip() == ""


@pytest.mark.parametrize("extension", ["ply", "las", "e57", "csv", "npy"])
def test_invalid_points_are_not_written(tmp_path, extension):
    path = tmp_path / f"scan.{extension}"
    for bad in (np.empty((0, 3)), np.zeros(3), np.zeros((4, 2)), [[0, 0, np.nan]], [["a", "b", "c"]]):
        with pytest.raises(InputError):
            write_points(path, bad)
    with pytest.raises(InputError, match="3 rows"):
        write_points(path, np.zeros((3, 3)), {"intensity": np.zeros(4)})
    assert names_in(tmp_path) == []


@pytest.mark.parametrize(
    "attributes",
    [
        {"x": [1]},
        {"a b": [1], "a_b": [1]},
        {"name": ["wall"]},
        {"id": [2**62 + 1]},
        {"z": [[1, 2]], "z_0": [1]},
    ],
)
def test_attributes_that_cannot_be_stored_are_rejected(tmp_path, attributes):
    with pytest.raises(InputError):
        write_points(tmp_path / "scan.ply", np.zeros((1, 3)), attributes)
    assert names_in(tmp_path) == []


@pytest.mark.parametrize("extension", ["obj", "off", "npy"])
def test_formats_without_attributes_reject_them(tmp_path, points, extension):
    with pytest.raises(InputError, match="cannot store attributes"):
        write_points(tmp_path / f"scan.{extension}", points, {"intensity": np.zeros(50)})


@pytest.mark.parametrize("extension", all_formats())
def test_a_full_disk_keeps_the_old_file_and_no_temporary_file(tmp_path, points, extension, monkeypatch):
    path = tmp_path / f"scan.{extension}"
    write_points(path, points)
    before = path.read_bytes()

    def full(_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(FileFormatError, match="No space left"):
        write_points(path, points[:5])
    assert path.read_bytes() == before
    assert names_in(tmp_path) == [path.name]


def test_paths_that_cannot_be_written(tmp_path, points):
    (tmp_path / "file").write_text("")
    (tmp_path / "folder.ply").mkdir()
    for path in ("missing/scan.ply", "file/scan.ply", "folder.ply", "scan.stl", "scan", "scan.docx"):
        with pytest.raises(FileFormatError, match=Path(path).name):
            write_points(tmp_path / path, points)
    assert names_in(tmp_path) == ["file", "folder.ply"]
    assert names_in(tmp_path / "folder.ply") == []


def test_a_folder_without_permission(tmp_path, points, request):
    tmp_path.chmod(0o500)
    request.getfixturevalue("ordinary_user")
    with pytest.raises(FileFormatError, match="Permission"):
        write_points(tmp_path / "scan.ply", points)


@pytest.mark.parametrize("extension", [*all_formats(), "stl"])
def test_missing_or_empty_files_and_folders(tmp_path, extension):
    path = tmp_path / f"scan.{extension}"
    with pytest.raises(FileFormatError, match="no such file"):
        read_points(path)
    path.mkdir()
    with pytest.raises(FileFormatError, match="not a file"):
        read_points(path)
    path.rmdir()
    path.write_bytes(b"")
    with pytest.raises(FileFormatError, match="empty"):
        read_points(path)
    path.write_bytes(b"\n \n")
    with pytest.raises(FileFormatError, match=path.name):
        read_points(path)


def test_an_unsupported_extension_lists_the_supported_ones(tmp_path):
    (tmp_path / "scan.docx").write_text("1 2 3")
    with pytest.raises(FileFormatError, match=r"\.docx.*\.ply.*\.e57"):
        read_points(tmp_path / "scan.docx")


@pytest.mark.parametrize("extension", ["ply", "npy", "npz", "csv", "pcd"])
def test_points_that_are_not_finite(tmp_path, points, extension, caplog):
    path = tmp_path / f"scan.{extension}"
    write_points(path, points)
    write_with_nan(path, points, [3, 7])
    with pytest.raises(FileFormatError, match=r'2 of 50 points.*nonfinite="drop"'):
        read_points(path, nonfinite="raise")
    cloud = read_cloud(path)
    assert cloud.dropped == 2
    assert "2 points dropped" in repr(cloud)
    np.testing.assert_array_equal(read_points(path), cloud.points)
    assert caplog.messages == [f"{path}: 2 points that are not finite were ignored."]
    np.testing.assert_array_equal(cloud.points, np.delete(points, [3, 7], axis=0))
    write_with_nan(path, points, range(50))
    for nonfinite in ("raise", "drop"):
        with pytest.raises(FileFormatError, match="none of its 50 points"):
            read_points(path, nonfinite=nonfinite)


def write_with_nan(path: Path, points: np.ndarray, rows) -> None:
    """Write a file with points that are not finite, which `write_points` rejects."""
    content = path.read_bytes() if path.suffix not in (".npz", ".csv") else b""
    bad = points.copy()
    bad[rows, 1] = np.nan
    bad[rows, 2] = np.inf
    if path.suffix == ".npz":
        np.savez(path, points=bad)
    elif path.suffix == ".csv":
        path.write_text("x,y,z\n" + "\n".join(",".join(map(str, row)) for row in bad.tolist()))
    else:
        start = len(content) - points.nbytes  # the coordinates are at the end of the file
        path.write_bytes(content[:start] + bad.tobytes())


@pytest.mark.parametrize(
    ("points", "says"),
    [
        (np.zeros((3, 9)), r"not \(3, 9\): pass the transposed array"),
        (np.zeros((9, 2)), r"not \(9, 2\): one row for each point"),
        (Cloud(np.zeros((9, 3))), "not a Cloud: write it with wsdesc.write_cloud"),
        (object(), "not object"),
    ],
)
def test_points_of_another_form_are_refused_with_advice(tmp_path, points, says):
    with pytest.raises(InputError, match=says):
        write_points(tmp_path / "a.ply", points)


def test_a_missing_file_is_missing_whatever_its_extension(tmp_path):
    for name in ("scan", "scan.docx", "scan.ply"):
        with pytest.raises(FileFormatError, match="there is no such file"):
            read_points(tmp_path / name)


def test_attributes_are_dropped_along_with_their_points(tmp_path):
    (tmp_path / "scan.csv").write_text("x,y,z,label\n1,2,3,10\nnan,2,3,20\n4,5,6,30\n")
    cloud = read_cloud(tmp_path / "scan.csv", nonfinite="drop")
    assert cloud.attributes["label"].tolist() == [10, 30]
    assert (cloud.dropped, len(cloud)) == (1, 2)


def test_invalid_arguments(tmp_path, points):
    write_points(tmp_path / "scan.ply", points)
    with pytest.raises(InputError, match="nonfinite"):
        read_points(tmp_path / "scan.ply", nonfinite="ignore")
    with pytest.raises(InputError, match="sample"):
        read_points(tmp_path / "scan.ply", sample=0)
    for extension in ("ply", "csv", "npy", "obj", "off"):
        write_points(tmp_path / f"scan.{extension}", points)
        with pytest.raises(WSDescError, match="no faces"):
            read_points(tmp_path / f"scan.{extension}", sample=10)
