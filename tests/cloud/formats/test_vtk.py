"""Legacy VTK files and VTK polydata in XML."""

import numpy as np
import pytest
from benchmarks.fuzz.seeds_exchange import vtk, vtp_file

from wsdesc.cloud.files import read_cloud, read_points
from wsdesc.core.errors import FileFormatError

KINDS = {"text": 0, "binary": 1, "offsets": 2}
XML = ("ascii", "binary", "zlib", "raw")


@pytest.fixture
def expected() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(5, 3)).round(2).astype(np.float32)


@pytest.mark.parametrize("kind", KINDS)
def test_legacy_files(tmp_path, kind, expected):
    (tmp_path / "a.vtk").write_bytes(vtk(tmp_path)[KINDS[kind]])
    np.testing.assert_array_equal(read_points(tmp_path / "a.vtk"), expected)
    sample = read_points(tmp_path / "a.vtk", sample=100)
    assert (sample >= expected[:4].min(axis=0) - 1e-6).all()
    assert (sample <= expected[:4].max(axis=0) + 1e-6).all()


def test_point_data_of_a_legacy_file(tmp_path):
    (tmp_path / "a.vtk").write_bytes(vtk(tmp_path)[0])
    attributes = read_cloud(tmp_path / "a.vtk").attributes
    assert attributes["intensity"].tolist() == [1, 2, 3, 4, 5]
    assert attributes["intensity"].dtype == np.float32
    assert attributes["ring number"].dtype == np.int32
    assert attributes["normals"].tolist() == [[0, 0, 1]] * 5
    assert attributes["colors"].tolist() == [[0, 128, 255]] * 5


def test_cells_of_an_unstructured_grid(tmp_path):
    (tmp_path / "a.vtk").write_text(
        "# vtk DataFile Version 2.0\ngrid\nASCII\nDATASET UNSTRUCTURED_GRID\nPOINTS 5 double\n"
        "0 0 0 1 0 0\n0 1 0 1 1 0\nnan 9 9\nCELLS 3 13\n4 0 1 2 3\n3 0 1 3\n3 4 4 4\nCELL_TYPES 3\n8\n5\n1\n"
    )
    cloud = read_cloud(tmp_path / "a.vtk", sample=50, nonfinite="drop")
    assert cloud.dropped == 1
    assert (np.abs(cloud.points - 0.5) <= 0.5 + 1e-9)[:, :2].all()


def test_images_have_no_points(tmp_path):
    (tmp_path / "a.vtk").write_text(
        "# vtk DataFile Version 2.0\nimage\nASCII\nDATASET STRUCTURED_POINTS\nDIMENSIONS 2 2 2\n"
    )
    with pytest.raises(FileFormatError, match="STRUCTURED_POINTS has no explicit points"):
        read_points(tmp_path / "a.vtk")


@pytest.mark.parametrize("kind", XML)
def test_xml_files(tmp_path, kind, expected):
    (tmp_path / "a.vtp").write_bytes(vtp_file(kind))
    cloud = read_cloud(tmp_path / "a.vtp")
    np.testing.assert_array_equal(cloud.points, expected)
    np.testing.assert_array_equal(cloud.attributes["normals"], expected)
    assert cloud.attributes["a"].tolist() == [0, 1, 2, 3, 4]
    assert read_points(tmp_path / "a.vtp", sample=30).shape == (30, 3)


def test_pieces_are_joined(tmp_path, expected):
    content = vtp_file("ascii")
    piece = content[content.index(b"<Piece") : content.index(b"</PolyData>")]
    (tmp_path / "a.vtp").write_bytes(content.replace(piece, piece + piece.replace(b'Name="a"', b'Name="b"')))
    cloud = read_cloud(tmp_path / "a.vtp")
    np.testing.assert_array_equal(cloud.points, np.concatenate([expected, expected]))
    assert list(cloud.attributes) == ["normals"]
    assert read_points(tmp_path / "a.vtp", sample=30).shape == (30, 3)


def test_cut_files_are_rejected(tmp_path):
    for name, content, step in [
        *((f"{k}.vtk", vtk(tmp_path)[i], 3) for k, i in KINDS.items()),
        *((f"{kind}.vtp", vtp_file(kind), 31) for kind in XML),
    ]:
        points = content.index(b"Points" if name.endswith("vtp") else b"POINTS")
        for end in range(1, points + 60, step):
            (tmp_path / name).write_bytes(content[:end])
            with pytest.raises(FileFormatError, match=name):
                read_points(tmp_path / name)


def test_a_room_of_libpointmatcher(data_folder):
    cloud = read_cloud(data_folder / "wild" / "car_vtk" / "cloud_0.vtk")
    assert len(cloud) == 36674
