"""Scans are moved by a pose and keep their form."""

import laspy
import numpy as np
import pytest
import torch
import trimesh
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation

from wsdesc import Cloud, write_points
from wsdesc.cloud.apply import apply_pose
from wsdesc.core.errors import InputError

T = np.eye(4)
T[:3, :3] = Rotation.from_rotvec([0.3, -1.1, 0.7]).as_matrix()
T[:3, 3] = [1.0, -2.0, 3.0]
POINTS = np.random.default_rng(0).normal(size=(40, 3))
MOVED = POINTS @ T[:3, :3].T + T[:3, 3]
TURNED = POINTS @ T[:3, :3].T


@given(
    st.sampled_from(["<f4", "<f8", ">f8", "<f2"]),
    st.integers(0, 3),
    st.sampled_from([(40,), (5, 8), (2, 4, 5)]),
    st.sampled_from("CF"),
)
def test_arrays_keep_type_shape_and_further_columns(dtype, further, rows, order):
    extra = np.arange(40 * further).reshape(40, further)
    array = np.asarray(
        np.column_stack([POINTS, extra]).astype(dtype).reshape(*rows, 3 + further), order=order
    )
    before = array.copy()
    moved = apply_pose(array, T)
    assert moved.dtype == np.dtype(dtype).newbyteorder("=")
    assert moved.shape == array.shape
    tolerance = 20 * np.finfo(moved.dtype).eps
    np.testing.assert_allclose(moved.reshape(40, -1)[:, :3], MOVED, atol=tolerance)
    np.testing.assert_array_equal(moved[..., 3:], array[..., 3:])
    np.testing.assert_array_equal(array, before)


def test_rows_with_nan_stay():
    points = POINTS.copy()
    points[3] = np.nan
    moved = apply_pose(points, T)
    assert np.isnan(moved[3]).all()
    np.testing.assert_allclose(np.delete(moved, 3, 0), np.delete(MOVED, 3, 0))


def test_integers_lists_and_single_points():
    integers = np.arange(12).reshape(3, 4)
    expected = integers[:, :3] @ T[:3, :3].T + T[:3, 3]
    for scan in (integers, integers.tolist(), tuple(map(tuple, integers))):
        moved = apply_pose(scan, T)
        assert moved.dtype == np.float64
        np.testing.assert_allclose(moved[:, :3], expected)
        np.testing.assert_array_equal(moved[:, 3], integers[:, 3])
    np.testing.assert_allclose(apply_pose([0, 0, 0], T), T[:3, 3])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64])
def test_tensors_keep_type_and_gradients(dtype):
    tensor = torch.from_numpy(np.column_stack([100 * POINTS, np.arange(40)])).to(dtype)
    before = tensor.clone()
    moved = apply_pose(tensor, T)
    assert moved.dtype == (dtype if dtype.is_floating_point else torch.float64)
    expected = tensor[:, :3].double().numpy() @ T[:3, :3].T + T[:3, 3]
    np.testing.assert_allclose(moved[:, :3].double().numpy(), expected, atol=1e-4)
    assert torch.equal(moved[:, 3].to(dtype), tensor[:, 3])
    assert torch.equal(tensor, before)
    if dtype.is_floating_point:
        tensor.requires_grad_()
        apply_pose(tensor, T)[:, 0].sum().backward()
        np.testing.assert_allclose(tensor.grad[0, :3].double().numpy(), T[0, :3], atol=1e-6)


@pytest.mark.gpu
def test_tensors_stay_on_their_device():
    moved = apply_pose(torch.from_numpy(POINTS).cuda(), T)
    assert moved.is_cuda
    np.testing.assert_allclose(moved.cpu().numpy(), MOVED)


def test_structured_arrays_keep_their_fields():
    names = ["x", "y", "z", "nx", "ny", "nz", "label"]
    rows = np.zeros(40, [(name, "f4") for name in names[:6]] + [("label", "U2")])
    for name, column in zip(names, [*POINTS.T, *POINTS.T], strict=False):
        rows[name] = column
    rows["label"] = "ab"
    moved = apply_pose(rows, T)
    assert moved.dtype == rows.dtype
    np.testing.assert_allclose(np.stack([moved[n] for n in "xyz"], 1), MOVED, atol=1e-5)
    np.testing.assert_allclose(np.stack([moved[n] for n in names[3:6]], 1), TURNED, atol=1e-5)
    assert (moved["label"] == "ab").all()
    integers = np.zeros(4, [(name, "i4") for name in "xyz"])
    assert isinstance(apply_pose(integers, T), Cloud)
    np.testing.assert_allclose(apply_pose(np.zeros(4, [("xyz", "f4", 3)]), T).points[0], T[:3, 3])


def test_clouds_files_tables_and_laspy_become_clouds(tmp_path):
    write_points(tmp_path / "a.ply", POINTS, {"intensity": np.arange(40.0)})
    las = laspy.LasData(laspy.LasHeader(point_format=0))
    las.header.scales = [1e-6] * 3
    las.x, las.y, las.z = POINTS.T
    for scan in (Cloud(POINTS, {"intensity": np.arange(40.0)}), tmp_path / "a.ply", str(tmp_path / "a.ply"),
                 dict(zip("xyz", POINTS.T, strict=True)), las):  # fmt: skip
        moved = apply_pose(scan, T)
        assert isinstance(moved, Cloud)
        np.testing.assert_allclose(moved.points, MOVED, atol=1e-5)


def test_trimesh_objects_keep_their_kind():
    cloud = trimesh.PointCloud(POINTS)
    moved = apply_pose(cloud, T)
    assert isinstance(moved, trimesh.PointCloud)
    np.testing.assert_allclose(moved.vertices, MOVED)
    np.testing.assert_array_equal(cloud.vertices, POINTS)
    box = trimesh.creation.box()
    moved = apply_pose(box, T)
    np.testing.assert_array_equal(moved.faces, box.faces)
    np.testing.assert_allclose(moved.vertices, box.vertices @ T[:3, :3].T + T[:3, 3])


def test_open3d_objects_keep_their_kind():
    o3d = pytest.importorskip("open3d")
    cloud = o3d.geometry.PointCloud(o3d.utility.Vector3dVector(POINTS))
    cloud.normals = o3d.utility.Vector3dVector(POINTS)
    moved = apply_pose(cloud, T)
    np.testing.assert_allclose(np.asarray(moved.points), MOVED)
    np.testing.assert_allclose(np.asarray(moved.normals), TURNED)
    np.testing.assert_array_equal(np.asarray(cloud.points), POINTS)
    tensors = o3d.t.geometry.PointCloud.from_legacy(cloud)
    moved = apply_pose(tensors, T)
    np.testing.assert_allclose(moved.point["positions"].numpy(), MOVED, atol=1e-5)
    np.testing.assert_allclose(tensors.point["positions"].numpy(), POINTS, atol=1e-6)
    box = o3d.geometry.TriangleMesh.create_box()
    assert len(apply_pose(box, T).triangles) == 12


def test_pyvista_objects_keep_their_kind():
    pv = pytest.importorskip("pyvista")
    data = pv.PolyData(POINTS)
    np.testing.assert_allclose(apply_pose(data, T).points, MOVED, atol=1e-5)
    np.testing.assert_allclose(data.points, POINTS, atol=1e-6)


@pytest.mark.parametrize("scan", [None, 3, [1, 2], np.ones((3, 500)), POINTS * 1j, object(), POINTS > 0])
def test_everything_else_is_refused(scan):
    with pytest.raises(InputError):
        apply_pose(scan, T)
    with pytest.raises(InputError, match="T "):
        apply_pose(POINTS, 2 * T)
