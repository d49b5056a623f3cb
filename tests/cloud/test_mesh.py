"""Points on meshes: models are sampled, scans keep their vertices."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import trimesh
from scipy.spatial import cKDTree
from scipy.spatial.transform import Rotation

from wsdesc import as_cloud, read_cloud
from wsdesc.cloud.clean import clean_cloud
from wsdesc.cloud.mesh import sample_surface, scan_points
from wsdesc.core.errors import InputError
from wsdesc.core.geometry import make_pose, transform


@pytest.fixture(scope="module")
def scan():
    """A mesh as scanners make it: a dense grid of measured points, 43 200 vertices."""
    x, y = np.meshgrid(np.linspace(0, 2, 240), np.linspace(0, 1.5, 180))
    height = 0.3 * np.sin(5 * x) * np.cos(4 * y) + 0.5 * (x > 1.2)  # a step, bridged by long faces
    vertices = np.stack([x, y, height], axis=-1).reshape(-1, 3)
    return trimesh.Trimesh(vertices, grid_faces(180, 240), process=False)


def grid_faces(rows: int, columns: int) -> np.ndarray:
    corner = np.arange(rows * columns).reshape(rows, columns)[:-1, :-1].ravel()
    right, below = corner + 1, corner + columns
    return np.concatenate([np.stack(c, axis=1) for c in ((corner, right, below), (right, below + 1, below))])


def test_a_box_is_sampled_evenly():
    box = trimesh.creation.box((1, 2, 3))
    cloud = as_cloud(box)
    assert cloud.sampled
    points = cloud.points
    assert 50_000 < len(points) < 400_000
    on_side = np.abs(np.abs(points) - [0.5, 1, 1.5]) < 1e-9
    assert on_side.any(axis=1).all()
    shares = on_side.mean(axis=0)
    np.testing.assert_allclose(shares, np.array([12, 6, 4]) / 22, atol=0.01)
    # Every place of the surface has a point within a working resolution, 1/90 of the extent.
    elsewhere = sample_surface(box.vertices, box.faces, 2000, seed=9)
    assert cKDTree(points).query(elsewhere)[0].max() < 1.8 / 90 * 1.5
    np.testing.assert_array_equal(points, as_cloud(trimesh.creation.box((1, 2, 3))).points)


@pytest.mark.parametrize("factor", [1e-3, 1.0, 1e3])
def test_the_sample_follows_the_size_and_the_pose(factor):
    box = trimesh.creation.box((1, 2, 3))
    T = make_pose(Rotation.random(random_state=1).as_matrix(), [4e5, 5e6, 100])
    points = scan_points(box.vertices, box.faces)
    moved = scan_points(transform(factor * box.vertices, T), box.faces)
    assert abs(len(moved) / len(points) - 1) < 0.1
    count = min(len(moved), len(points))
    expected = transform(factor * points[:count], T)
    np.testing.assert_allclose(moved[:count], expected, atol=2e-8 * max(1, factor))


def test_a_model_has_no_viewpoint(monkeypatch):
    monkeypatch.setattr("wsdesc.cloud.viewpoint.detect_viewpoint", lambda *_: True)
    cloud = as_cloud(trimesh.creation.box())
    assert clean_cloud(replace(cloud, sampled=False)).viewpoint is not None
    assert clean_cloud(cloud).viewpoint is None
    given = clean_cloud(cloud, (0.0, 0.0, 0.2)).viewpoint
    np.testing.assert_array_equal(given.position, [0, 0, 0.2])


def test_a_scan_keeps_its_vertices(scan):
    np.testing.assert_array_equal(as_cloud(scan).points, scan.vertices)
    coarse = scan.vertices.reshape(180, 240, 3)[::18, ::24].reshape(-1, 3)
    assert len(as_cloud(trimesh.Trimesh(coarse, grid_faces(10, 10), process=False))) > 10_000


def test_points_beside_a_few_faces_are_kept():
    points = np.random.default_rng(0).normal(size=(100, 3))
    assert scan_points(points, np.array([[0, 1, 2], [1, 2, 3]])) is None


@pytest.mark.parametrize("extension", ["ply", "obj", "off", "stl"])
def test_files_with_faces(tmp_path, scan, extension):
    box, terrain = tmp_path / f"box.{extension}", tmp_path / f"scan.{extension}"
    trimesh.creation.box().export(box)
    scan.export(terrain)
    assert len(as_cloud(box)) > 50_000
    assert len(read_cloud(box)) == 8
    assert len(as_cloud(terrain)) == len(read_cloud(terrain)) == len(scan.vertices)


def test_faces_that_cannot_be_used_leave_the_vertices(tmp_path):
    square = np.array([[0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0.0]])
    mesh = trimesh.Trimesh(square, [[0, 1, 2], [0, 2, 3]], process=False)
    text = mesh.export(file_type="ply", encoding="ascii").decode()
    (tmp_path / "a.ply").write_text(text.replace("3 0 2 3", "3 0 2 9"))  # a vertex that does not exist
    assert len(as_cloud(tmp_path / "a.ply")) == 4
    assert scan_points(square, np.array([[0, 0, 1], [1, 1, 2]])) is None  # no area
    assert scan_points(square, np.empty((0, 3), int)) is None
    assert scan_points(1e200 * square, np.array([[0, 1, 2], [0, 2, 3]])) is None  # no finite area


def test_other_libraries():
    """Stand-ins with the attributes of Open3D (legacy and tensor) and PyVista."""
    box = trimesh.creation.box()
    expected = as_cloud(box).points

    def tensor(array):
        return SimpleNamespace(cpu=lambda: SimpleNamespace(numpy=lambda: array))

    legacy = SimpleNamespace(vertices=box.vertices, triangles=box.faces, vertex_normals=box.vertex_normals)
    tensors = SimpleNamespace(
        vertex={"positions": tensor(box.vertices)}, triangle={"indices": tensor(box.faces)}
    )
    padded = np.column_stack([np.full(12, 3), box.faces]).ravel()
    surface = SimpleNamespace(points=box.vertices, point_data={}, faces=padded, is_all_triangles=True)
    quads = SimpleNamespace(points=box.vertices, point_data={}, faces=[4, 0, 1, 2, 3], is_all_triangles=False)
    quads.triangulate = lambda: surface
    for mesh in (legacy, tensors, surface, quads):
        np.testing.assert_array_equal(as_cloud(mesh).points, expected)


def test_open3d_meshes():
    o3d = pytest.importorskip("open3d")
    box = o3d.geometry.TriangleMesh.create_box()
    assert len(as_cloud(box)) == len(as_cloud(o3d.t.geometry.TriangleMesh.from_legacy(box))) > 50_000


def test_vertices_with_nan_and_wrong_faces():
    box = trimesh.creation.box()
    vertices = box.vertices.copy()
    vertices[0] = np.nan
    cloud = as_cloud(SimpleNamespace(vertices=vertices, faces=box.faces))
    assert cloud.dropped == 1
    assert np.isfinite(cloud.points).all()
    with pytest.raises(InputError, match="vertex index"):
        as_cloud(SimpleNamespace(vertices=vertices, faces=box.faces + 1))
    for faces in (np.arange(12), box.faces[:, :2], box.faces + 0.5):
        with pytest.raises(InputError, match="faces must be vertex indices"):
            as_cloud(SimpleNamespace(vertices=vertices, faces=faces))


def test_polygons_and_meshes_without_faces():
    square = np.array([[0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0.0]])
    points = as_cloud(SimpleNamespace(vertices=square, faces=np.array([[0, 1, 2, 3]]))).points
    np.testing.assert_allclose(points.mean(axis=0), [0.5, 0.5, 0], atol=0.01)
    for none in (np.empty((0, 3), int), np.empty(0, int), None):
        assert len(as_cloud(SimpleNamespace(vertices=square, faces=none))) == 4
