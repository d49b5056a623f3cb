"""Scans in every form become clouds: arrays, tables, tensors, and objects of other libraries."""

import subprocess
import sys
from types import SimpleNamespace

import laspy
import numpy as np
import pytest
import torch
import trimesh
from hypothesis import given
from hypothesis import strategies as st

from wsdesc import Cloud, as_cloud, write_cloud, write_points
from wsdesc.core.errors import FileFormatError, InputError

POINTS = np.random.default_rng(0).normal(size=(60, 3))
UTM = np.array([4e5, 5e6, 0.0])
LAYOUTS = ["C", "F", "spread", "frozen", "reversed"]
DTYPES = ["<f4", ">f4", "<f8", ">f8", "<f2", "<i4", ">i2", "u1"]


class Opaque:
    """An object that is no scan."""


def layouts(array: np.ndarray) -> dict[str, np.ndarray]:
    """The same values in different memory layouts."""
    spread = np.zeros((2 * len(array), 2 * array.shape[1]), array.dtype)
    spread[::2, ::2] = array
    frozen = array.copy()
    frozen.flags.writeable = False
    reverse = np.ascontiguousarray(array[::-1])[::-1]
    return {"C": array.copy(), "F": np.asfortranarray(array), "spread": spread[::2, ::2], "frozen": frozen,
            "reversed": reverse}  # fmt: skip


@given(st.sampled_from(DTYPES), st.sampled_from(LAYOUTS), st.integers(3, 7))
def test_arrays_of_every_type_and_layout(dtype, layout, columns):
    values = np.random.default_rng(columns).uniform(0, 100, (20, columns)).astype(dtype)
    cloud = as_cloud(layouts(values)[layout])
    assert cloud.points.dtype == np.float64
    np.testing.assert_array_equal(cloud.points, values[:, :3].astype(np.float64))
    assert list(cloud.attributes) == [f"column_{k}" for k in range(3, columns)]
    for k in range(3, columns):
        np.testing.assert_array_equal(cloud.attributes[f"column_{k}"], values[:, k])


@given(st.lists(st.integers(0, 59), max_size=30), st.booleans())
def test_rows_that_are_not_finite_are_dropped_with_their_attributes(rows, masked):
    values = np.column_stack([POINTS, np.arange(60)])
    bad = np.zeros(values.shape, bool)
    bad[rows, np.arange(len(rows)) % 3] = True
    kept = ~bad.any(axis=1)
    scan = np.ma.array(values, mask=bad) if masked else np.where(bad, np.nan, values)
    cloud = as_cloud(scan)
    np.testing.assert_array_equal(cloud.points, POINTS[kept])
    np.testing.assert_array_equal(cloud.attributes["column_3"], np.flatnonzero(kept))
    assert cloud.dropped == 60 - kept.sum()


def test_lists_and_masked_integers():
    np.testing.assert_array_equal(as_cloud(POINTS.tolist()).points, POINTS)
    integers = np.ma.array(np.arange(12).reshape(4, 3), mask=[[0, 0, 0], [1, 0, 0], [0, 0, 0], [0, 0, 1]])
    np.testing.assert_array_equal(as_cloud(integers).points, [[0, 1, 2], [6, 7, 8]])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int32])
def test_tensors_of_torch(dtype):
    tensor = (100 * torch.from_numpy(POINTS)).to(dtype)
    expected = tensor.double().numpy()
    if tensor.is_floating_point():
        tensor.requires_grad_()
    np.testing.assert_array_equal(as_cloud(tensor).points, expected)
    np.testing.assert_array_equal(as_cloud(tensor.T.contiguous().T).points, expected)


@pytest.mark.gpu
def test_tensors_on_a_gpu():
    np.testing.assert_array_equal(as_cloud(torch.from_numpy(POINTS).cuda()).points, POINTS)


@pytest.mark.parametrize("names", [("x", "y", "z"), ("X", "Y", "Z")])
def test_structured_arrays(names):
    rows = np.zeros(60, [("time", "u4"), *((name, ">f4") for name in names), ("label", "U3")])
    for axis, name in enumerate(names):
        rows[name] = POINTS[:, axis]
    cloud = as_cloud(rows)
    np.testing.assert_allclose(cloud.points, POINTS, atol=1e-6)
    assert list(cloud.attributes) == ["time"]
    np.testing.assert_array_equal(as_cloud(rows.view(np.recarray)).points, cloud.points)
    np.testing.assert_array_equal(as_cloud(rows.reshape(6, 10)).points, cloud.points)


def test_structured_arrays_with_one_field_of_coordinates():
    rows = np.zeros(60, [("xyz", "f4", 3), ("intensity", "u1")])
    rows["xyz"] = POINTS
    cloud = as_cloud(rows)
    np.testing.assert_allclose(cloud.points, POINTS, atol=1e-6)
    assert list(cloud.attributes) == ["intensity"]


def test_mappings():
    x, y, z = POINTS.T
    cloud = as_cloud({"id": np.arange(60), "x": x, "y": list(y), "z": z, "name": ["a"] * 60})
    np.testing.assert_array_equal(cloud.points, POINTS)
    assert list(cloud.attributes) == ["id"]
    cloud = as_cloud({"points": POINTS, "colors": np.zeros((60, 3)), "origin": np.zeros(3)})
    np.testing.assert_array_equal(cloud.points, POINTS)
    assert list(cloud.attributes) == ["colors"]


class Table:
    """Stand-in for DataFrames: column names, and columns that convert to NumPy."""

    def __init__(self, columns: dict) -> None:
        self.content = columns
        self.columns = list(columns)
        self.transform = self.points = None  # methods and columns that other objects also have

    def __getitem__(self, name):
        return self.content[name]

    def to_numpy(self):
        return np.column_stack(list(self.content.values()))


def test_tables():
    cloud = as_cloud(Table(dict(zip("xyzi", [*POINTS.T, np.arange(60)], strict=True))))
    np.testing.assert_array_equal(cloud.points, POINTS)
    np.testing.assert_array_equal(cloud.attributes["i"], np.arange(60))
    np.testing.assert_array_equal(as_cloud(Table(dict(enumerate(POINTS.T)))).points, POINTS)
    with pytest.raises(InputError, match=r"Table: .*\bz\b"):
        as_cloud(Table(dict(zip("xy", POINTS.T[:2], strict=True))))


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_data_frames(library):
    frames = pytest.importorskip(library)
    frame = frames.DataFrame({"time": range(60), "x": POINTS[:, 0], "y": POINTS[:, 1], "z": POINTS[:, 2]})
    cloud = as_cloud(frame)
    np.testing.assert_array_equal(cloud.points, POINTS)
    np.testing.assert_array_equal(cloud.attributes["time"], range(60))
    gaps = frames.DataFrame({"x": [1.0, None, 3.0], "y": [1, 2, 3], "z": [1, 2, 3]})
    np.testing.assert_array_equal(as_cloud(gaps).points, [[1, 1, 1], [3, 3, 3]])


def test_laspy_data():
    las = laspy.LasData(laspy.LasHeader(point_format=2))
    las.header.offsets, las.header.scales = [4e5, 5e6, 0], [1e-4] * 3
    las.x, las.y, las.z = (POINTS + UTM).T
    las.intensity = np.arange(60)
    for scan in (las, las.points):
        cloud = as_cloud(scan)
        np.testing.assert_allclose(cloud.points, POINTS + UTM, atol=1e-4)
        np.testing.assert_array_equal(cloud.attributes["intensity"], np.arange(60))


def test_trimesh_point_clouds_and_scenes():
    cloud = trimesh.PointCloud(POINTS, colors=np.full((60, 4), 7, np.uint8))
    np.testing.assert_array_equal(as_cloud(cloud).points, POINTS)
    np.testing.assert_array_equal(as_cloud(cloud).attributes["colors"], np.full((60, 4), 7))
    scene = trimesh.Scene([cloud])
    scene.apply_translation([5, 0, 0])
    np.testing.assert_allclose(as_cloud(scene).points - POINTS, np.tile([5.0, 0, 0], (60, 1)), atol=1e-12)


def test_open3d_point_clouds():
    o3d = pytest.importorskip("open3d")
    legacy = o3d.geometry.PointCloud(o3d.utility.Vector3dVector(POINTS))
    legacy.normals = o3d.utility.Vector3dVector(POINTS)
    for scan in (legacy, o3d.t.geometry.PointCloud.from_legacy(legacy, o3d.core.float64)):
        cloud = as_cloud(scan)
        np.testing.assert_array_equal(cloud.points, POINTS)
        np.testing.assert_allclose(cloud.attributes["normals"], POINTS)
    np.testing.assert_array_equal(as_cloud(legacy.points).points, POINTS)
    np.testing.assert_array_equal(as_cloud(o3d.core.Tensor(POINTS)).points, POINTS)
    for empty in (o3d.geometry.PointCloud(), o3d.t.geometry.PointCloud(), o3d.t.geometry.TriangleMesh()):
        with pytest.raises(InputError, match="has no"):
            as_cloud(empty)


def open3d_tensor(array):
    """Stand-in for `open3d.core.Tensor`: NumPy cannot convert it by itself."""
    on_cpu = SimpleNamespace(numpy=lambda: array)
    return SimpleNamespace(cpu=lambda: on_cpu, shape=array.shape, dtype="Float32")


def test_open3d_without_open3d():
    cloud = as_cloud(SimpleNamespace(points=POINTS, colors=POINTS, normals=np.empty((0, 3)), transform=None))
    np.testing.assert_array_equal(cloud.points, POINTS)
    assert list(cloud.attributes) == ["colors"]
    maps = {"positions": open3d_tensor(POINTS), "intensity": open3d_tensor(np.arange(60))}
    cloud = as_cloud(SimpleNamespace(point=maps, clone=None))
    np.testing.assert_array_equal(cloud.points, POINTS)
    np.testing.assert_array_equal(cloud.attributes["intensity"], np.arange(60))


def test_pyvista_without_pyvista():
    scan = SimpleNamespace(points=POINTS.astype("f4"), point_data={"d": np.arange(60), "Normals": POINTS})
    cloud = as_cloud(scan)
    np.testing.assert_array_equal(cloud.points, POINTS.astype("f4"))
    assert list(cloud.attributes) == ["d", "Normals"]


def test_pyvista():
    pv = pytest.importorskip("pyvista")
    data = pv.PolyData(POINTS)
    data["d"] = np.arange(60)
    cloud = as_cloud(data)
    np.testing.assert_allclose(cloud.points, POINTS, atol=1e-6)
    np.testing.assert_array_equal(cloud.attributes["d"], np.arange(60))
    assert len(as_cloud(pv.ImageData(dimensions=(4, 4, 4)))) == 64
    assert len(as_cloud(pv.Box())) > 10_000


def test_points_that_are_a_method():
    np.testing.assert_array_equal(as_cloud(SimpleNamespace(points=lambda: POINTS)).points, POINTS)


def test_files_and_clouds(tmp_path):
    write_points(tmp_path / "a.ply", POINTS)
    np.testing.assert_array_equal(as_cloud(tmp_path / "a.ply").points, POINTS)
    np.testing.assert_array_equal(as_cloud(str(tmp_path / "a.ply")).points, POINTS)
    cloud = Cloud(POINTS)
    assert as_cloud(cloud) is cloud
    with pytest.raises(FileFormatError, match=r"missing\.ply"):
        as_cloud(tmp_path / "missing.ply")


@pytest.mark.parametrize(
    ("scan", "message"),
    [
        (None, "NoneType: pass an array"),
        (3, "int: pass an array"),
        (b"bytes", "bytes: pass an array"),
        ({1, 2}, "set: pass an array"),
        (Opaque(), "test_convert.Opaque: pass an array"),
        ({}, "dict: .*x"),
        ({"x": ["a"], "y": [1], "z": [1]}, "dict: .*x"),
        ({"x": [1, 2], "y": [1], "z": [1, 2]}, "same length"),
        ([], r"shape \(N, 3\), not \(0,\)"),
        ([[1, 2], [3]], "list cannot be converted to an array"),
        (POINTS[:, :2], r"not \(60, 2\)"),
        (POINTS[None], r"not \(1, 60, 3\)"),
        (POINTS.reshape(6, 10, 3), r"pass points\.reshape\(-1, 3\) of an organised cloud"),
        (np.ones((3, 500)), r"not \(3, 500\): pass the transposed"),
        (np.empty((0, 3)), "no points"),
        (np.full((4, 3), np.nan), "none of the 4 points is finite"),
        (POINTS > 0, "real numbers, not bool"),
        (POINTS * 1j, "real numbers, not complex"),
        (POINTS.astype(str), "real numbers, not <U"),
        (np.array([[1, 2, None]]), "real numbers, not object"),
        (torch.from_numpy(POINTS).to_sparse(), "Tensor cannot be converted"),
        (SimpleNamespace(descriptors=1, frames=1, points=POINTS), "Description"),
    ],
)
def test_everything_else_is_refused_with_its_name(scan, message):
    with pytest.raises(InputError, match=message):
        as_cloud(scan)


def test_no_library_is_imported():
    others = ["torch", "trimesh", "laspy", "open3d", "pandas", "polars", "pyvista", "scipy", "numba"]
    code = f"import sys, wsdesc.cloud.convert; sys.exit(str([m for m in {others} if m in sys.modules] or ''))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.strip() == ""


def test_every_form_can_be_written(tmp_path):
    tensor = torch.from_numpy(POINTS)
    write_cloud(tmp_path / "a.ply", tensor)
    np.testing.assert_array_equal(as_cloud(tmp_path / "a.ply").points, POINTS)
    columns = dict(zip("xyz", POINTS.T, strict=True))
    write_cloud(tmp_path / "b.ply", {**columns, "i": np.ones(60, ">u2")})
    np.testing.assert_array_equal(as_cloud(tmp_path / "b.ply").attributes["i"], np.ones(60))
