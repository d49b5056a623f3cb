"""glTF files: scenes of meshes, buffers inside and beside the file."""

import base64
import json

import numpy as np
import pytest
from benchmarks.fuzz.seeds_exchange import glb_file, gltf_document

from wsdesc.cloud.files import read_cloud, read_points
from wsdesc.core.errors import FileFormatError


@pytest.fixture
def expected() -> np.ndarray:
    """Vertices of the seed, scaled, turned and moved by its nodes, for each of three primitives."""
    vertices = np.random.default_rng(0).normal(size=(5, 3)).round(2)
    angle = 2 * np.arctan2(0.6, 0.8)
    R = np.array([[1, 0, 0], [0, np.cos(angle), -np.sin(angle)], [0, np.sin(angle), np.cos(angle)]])
    return np.tile(2 * vertices @ R.T + [1, 2, 3], (3, 1))


def test_binary_file(tmp_path, expected):
    (tmp_path / "a.glb").write_bytes(glb_file(*gltf_document()))
    cloud = read_cloud(tmp_path / "a.glb")
    np.testing.assert_allclose(cloud.points, expected, atol=1e-6)
    assert cloud.attributes["colors"][1].tolist() == [4, 5, 6]
    centred = (expected - [1, 2, 3]) / np.linalg.norm(expected - [1, 2, 3], axis=1, keepdims=True)
    np.testing.assert_allclose(cloud.attributes["normals"], centred, atol=1e-6)
    assert read_points(tmp_path / "a.glb", sample=40).shape == (40, 3)


@pytest.mark.parametrize("where", ["data", "file", "missing", "above"])
def test_buffers(tmp_path, expected, where):
    document, content = gltf_document()
    uri = {
        "data": "data:application/octet-stream;base64," + base64.b64encode(content).decode(),
        "file": "the%20mesh.bin",
        "missing": "other.bin",
        "above": "../a/the mesh.bin",
    }[where]
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "the mesh.bin").write_bytes(content)
    document["buffers"] = [{"byteLength": len(content), "uri": uri}]
    path = tmp_path / "a" / "a.gltf"
    path.write_text(json.dumps(document))
    if where in ("data", "file"):
        np.testing.assert_allclose(read_points(path), expected, atol=1e-6)
    else:
        with pytest.raises(FileFormatError, match=r"missing beside|not in the folder"):
            read_points(path)


def test_trimesh_scene(tmp_path):
    """A scene that trimesh writes is read with the same vertices and area."""
    trimesh = pytest.importorskip("trimesh")
    scene = trimesh.Scene()
    for k, size in enumerate((1.0, 2.0)):
        T = trimesh.transformations.rotation_matrix(0.3 + k, [1, 2, 3], [k, 1, 0])
        scene.add_geometry(trimesh.creation.box([size, 1, 1]), transform=T)
    for name in ("a.glb", "a.gltf"):
        scene.export(str(tmp_path / name))
        points = read_points(tmp_path / name)
        vertices = np.unique(scene.to_geometry().vertices.round(4), axis=0)
        np.testing.assert_allclose(np.unique(points.round(4), axis=0), vertices, atol=2e-4)
        sample = read_points(tmp_path / name, sample=3000)
        np.testing.assert_allclose(sample.mean(axis=0), scene.to_geometry().centroid, atol=0.1)


def test_unsupported_files_say_why(tmp_path):
    document, content = gltf_document()
    for changes, reason in (
        ({"extensionsRequired": ["KHR_draco_mesh_compression"]}, "draco.*export without compression"),
        ({"asset": {"version": "1.0"}}, r"glTF 2\.0"),
        ({"accessors": [{"componentType": 5126, "type": "VEC3", "count": 5}]}, "sparse"),
        ({"nodes": [{"children": [0]}]}, "contains itself"),
    ):
        (tmp_path / "a.glb").write_bytes(glb_file(document | changes, content))
        with pytest.raises(FileFormatError, match=reason):
            read_points(tmp_path / "a.glb")


def test_cut_files_are_rejected(tmp_path):
    content = glb_file(*gltf_document())
    for end in range(1, len(content), 5):
        (tmp_path / "a.glb").write_bytes(content[:end])
        with pytest.raises(FileFormatError, match=r"a\.glb"):
            read_points(tmp_path / "a.glb")
