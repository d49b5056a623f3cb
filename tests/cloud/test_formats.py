"""Files as other programs write them: byte orders, headers, unusual columns, faces."""

import io
import zipfile

import numpy as np
import pytest

from wsdesc.cloud.files import read_cloud, read_points, write_points
from wsdesc.core.errors import FileFormatError

XYZ = np.array([[0.1, 500000.123456789, 0.30000000000000004], [1, 2, 3], [4, 5, 6], [7, 8, 9]])
QUAD_AND_TRIANGLE = [[0, 1, 2, 3], [0, 1, 4]]
ROOM = np.array([[0.0, 0, 0], [2, 0, 0], [2, 1, 0], [0, 1, 0], [0, 0, 2]])  # areas 2 and 2


def ply(order: str, vertices: np.ndarray, faces=(), kind="double", lists=False, faces_first=False) -> bytes:
    """Return a PLY file; each vertex has its row number as label and, if wanted, a list of that length."""
    number = {"double": "f8", "float": "f4"}[kind]
    name = {"": "ascii", "<": "binary_little_endian", ">": "binary_big_endian"}[order]
    head = [f"element vertex {len(vertices)}", *(f"property {kind} {axis}" for axis in "xyz")]
    head += ["property uchar label", *(["property list uchar short extra"] if lists else [])]
    face_head = [f"element face {len(faces)}", "property list uchar int vertex_indices"] if faces else []
    rows = []
    for i, vertex in enumerate(vertices):
        fields = [(vertex, number), ([i], "u1"), *([([i], "u1"), ([7] * i, "i2")] if lists else [])]
        rows.append(row(fields, order))
    face_rows = [row([([len(face)], "u1"), (face, "i4")], order) for face in faces]
    parts = [(face_head, face_rows), (head, rows)] if faces_first else [(head, rows), (face_head, face_rows)]
    header = [
        "ply",
        f"format {name} 1.0",
        "comment made by a test",
        *parts[0][0],
        *parts[1][0],
        "end_header\n",
    ]
    return "\n".join(header).encode() + b"".join(parts[0][1] + parts[1][1])


def row(fields: list, order: str) -> bytes:
    if order:
        return b"".join(np.array(values, order + kind).tobytes() for values, kind in fields)
    return (
        " ".join(repr(v) for values, kind in fields for v in np.array(values, kind).tolist()).encode() + b"\n"
    )


@pytest.mark.parametrize("kind", ["float", "double"])
@pytest.mark.parametrize("order", ["", "<", ">"])
@pytest.mark.parametrize("faces", [(), [[0, 1, 2], [1, 2, 3]], [[0, 1, 2], [0, 1, 2, 3]]])
@pytest.mark.parametrize("shape", ["plain", "lists", "faces first"])
def test_ply_of_every_kind(tmp_path, kind, order, faces, shape):
    path = tmp_path / "scan.ply"
    path.write_bytes(ply(order, XYZ, faces, kind, lists=shape == "lists", faces_first=shape == "faces first"))
    cloud = read_cloud(path)
    np.testing.assert_array_equal(cloud.points, XYZ.astype({"float": "f4", "double": "f8"}[kind]))
    assert cloud.attributes["label"].dtype == np.uint8
    assert cloud.attributes["label"].tolist() == [0, 1, 2, 3]
    if faces:
        assert read_points(path, sample=20).shape == (20, 3)


def test_ply_with_windows_line_ends(tmp_path):
    content = ply("<", XYZ)
    end = content.index(b"end_header\n") + 11
    (tmp_path / "scan.ply").write_bytes(content[:end].replace(b"\n", b"\r\n") + content[end:])
    np.testing.assert_array_equal(read_points(tmp_path / "scan.ply"), XYZ)


@pytest.mark.parametrize("order", ["", "<", ">"])
def test_a_truncated_ply_is_never_a_smaller_cloud(tmp_path, order):
    content = ply(order, XYZ)
    for end in range(1, len(content) - (3 if order else 2)):
        (tmp_path / "scan.ply").write_bytes(content[:end])
        with pytest.raises(FileFormatError):
            read_points(tmp_path / "scan.ply")


@pytest.mark.parametrize("order", ["ascii", "binary_little_endian"])
@pytest.mark.parametrize("element", ["vertex", "face"])
def test_a_ply_header_with_wrong_counts(tmp_path, order, element):
    counts = {"vertex": 1, "face": 1} | {element: 10**12}
    (tmp_path / "scan.ply").write_text(
        f"ply\nformat {order} 1.0\nelement vertex {counts['vertex']}\nproperty float x\nproperty float y\n"
        f"property float z\nelement face {counts['face']}\nproperty list uchar int vertex_indices\n"
        "end_header\n1 2 3\n3 0 0 0\n"
    )
    with pytest.raises(FileFormatError, match=r"truncated.*1000000000000"):
        read_points(tmp_path / "scan.ply")


def test_a_ply_list_with_a_wrong_length(tmp_path):
    header = ply("<", XYZ, [[0, 1, 2]]).replace(b"list uchar", b"list uint")
    body_end = len(header) - 13
    (tmp_path / "scan.ply").write_bytes(header[:body_end] + b"\xff" * 16)
    with pytest.raises(FileFormatError, match="does not fit"):
        read_points(tmp_path / "scan.ply", sample=5)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        (
            "a.ply",
            "ply\nformat ascii 1.0\nelement vertex 1\nproperty float x\nproperty float y\nend_header\n1 2\n",
        ),
        ("a.ply", "ply\nformat ascii 1.0\nelement point 1\nproperty float x\nend_header\n1\n"),
        ("a.csv", "x,y,label\n1,2,3\n"),
        ("a.xyz", "1 2\n3 4\n"),
        ("a.csv", "x,y,z\n1,2,three\n"),
        ("a.txt", "x y z\n"),
        ("a.pts", "3\n1 2 3\n4 5 6\n"),
        ("a.xyz", "1 2 3\n4 5\n"),
        ("a.off", "OFF\n1000000000000 0 0\n1 2 3\n"),
        ("a.off", "OFF\n3 2 0\n0 0 0\n1 0 0\n1 1 0\n3 0 1 2\n"),
        ("a.stl", "solid a\nfacet normal 0 0 1\nouter loop\nvertex 0 0 0\nvertex 1 0 0\nvertex 1 1 0\n"),
        ("a.obj", "v 1 2\nv 3 4\n"),
        ("a.obj", "# nothing\n"),
        ("a.stl", "solid nothing\nendsolid nothing\n"),
        (
            "a.pcd",
            "VERSION 0.7\nFIELDS x y\nSIZE 4 4\nTYPE F F\nCOUNT 1 1\nWIDTH 1\nHEIGHT 1\nPOINTS 1\n"
            "DATA ascii\n1 2\n",
        ),
    ],
)
def test_files_without_usable_points(tmp_path, name, content):
    (tmp_path / name).write_text(content)
    with pytest.raises(FileFormatError, match=name) as caught:
        read_points(tmp_path / name)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.xyz", "1 2 3 9\n4 5 6 8\n"),
        ("a.xyz", "# a scan\n\n1\t2   3 9\n// comment\n4 5 6 8 \n"),
        ("a.txt", "1;2;3;9\n4; 5; 6; 8\n"),
        ("a.csv", "\ufeffname_not_known,Z,Y,X\r\n9,3,2,1\r\n8,6,5,4\r\n"),
        ("a.csv", '"x" , "y","z","t"\n1,2,3,9\n4,5,6,8\n'),
        ("a.txt", "//X Y Z Intensity\n2\n1 2 3 9\n4 5 6 8\n"),
        ("a.pts", "2\n1 2 3 9\n4 5 6 8\n"),
        ("a.txt", "# time z y x\n9 3 2 1\n8 6 5 4"),
    ],
)
def test_texts_of_every_kind(tmp_path, name, content):
    (tmp_path / name).write_text(content, encoding="utf-8", newline="")
    cloud = read_cloud(tmp_path / name)
    assert cloud.points.tolist() == [[1, 2, 3], [4, 5, 6]]
    assert [values.tolist() for values in cloud.attributes.values()] == [[9, 8]]


def test_pcd_of_every_encoding(tmp_path):
    from pypcd4 import Encoding, PointCloud

    columns = [*XYZ.T, np.arange(4, dtype=np.uint8)]
    cloud = PointCloud.from_points(columns, ("x", "y", "z", "ring"), (*[np.float64] * 3, np.uint8))
    for encoding in (Encoding.ASCII, Encoding.BINARY, Encoding.BINARY_COMPRESSED):
        path = tmp_path / f"{encoding.value}.pcd"
        cloud.save(path, encoding)
        back = read_cloud(path)
        np.testing.assert_allclose(back.points, XYZ, rtol=1e-8 if encoding is Encoding.ASCII else 0)
        assert back.attributes["ring"].tolist() == [0, 1, 2, 3]
        content = path.read_bytes()
        for end in range(len(content) - 60, len(content) - 2):
            path.write_bytes(content[:end])
            with pytest.raises(FileFormatError):
                read_points(path)
        path.write_bytes(content.replace(b"POINTS 4", b"POINTS 1000000000000"))
        with pytest.raises(FileFormatError, match="1000000000000 points need"):
            read_points(path)


def test_pcd_fields_of_several_values_and_padding(tmp_path):
    (tmp_path / "a.pcd").write_text(
        "# .PCD v.7\nVERSION .7\nFIELDS x y z _ hist\nSIZE 4 4 4 1 4\nTYPE F F F U F\nCOUNT 1 1 1 2 3\n"
        "WIDTH 2\nHEIGHT 1\nVIEWPOINT 0 0 0 1 0 0 0\nPOINTS 2\nDATA ascii\n"
        "1 2 3  0 0  10 11 12\n4 5 6 0 0 20 21 nan\n"
    )
    cloud = read_cloud(tmp_path / "a.pcd")
    assert cloud.points.tolist() == [[1, 2, 3], [4, 5, 6]]
    assert list(cloud.attributes) == ["hist"]
    np.testing.assert_array_equal(cloud.attributes["hist"], [[10, 11, 12], [20, 21, np.nan]])


def test_compressed_pcd_with_several_values_per_field(tmp_path):
    """The Point Cloud Library stores field by field, and within a field point by point."""
    import lzf

    hist = np.arange(60, dtype="<f4").reshape(20, 3)
    body = np.ones((3, 20), "<f4").tobytes() + hist.tobytes()
    compressed = lzf.compress(body)
    header = (
        "VERSION .7\nFIELDS x y z hist\nSIZE 4 4 4 4\nTYPE F F F F\nCOUNT 1 1 1 3\nWIDTH 20\nHEIGHT 1\n"
        "VIEWPOINT 0 0 0 1 0 0 0\nPOINTS 20\nDATA binary_compressed\n"
    )
    sizes = np.array([len(compressed), len(body)], "<u4").tobytes()
    (tmp_path / "a.pcd").write_bytes(header.encode() + sizes + compressed)
    np.testing.assert_array_equal(read_cloud(tmp_path / "a.pcd").attributes["hist"], hist)


def test_npz_names(tmp_path):
    path = tmp_path / "a.npz"
    for arrays in (
        {"xyz": XYZ, "pose": np.eye(4)[:3]},
        dict(zip("xyz", XYZ.T, strict=True)),
        {"anything": XYZ},
    ):
        np.savez_compressed(path, **arrays)
        np.testing.assert_array_equal(read_points(path), XYZ)
    np.savez(path, a=XYZ, b=XYZ)
    with pytest.raises(FileFormatError, match="a, b"):
        read_points(path)


def test_a_transposed_array_in_a_file_is_refused(tmp_path):
    np.save(tmp_path / "a.npy", np.ones((3, 500)))
    np.savez(tmp_path / "a.npz", points=np.ones((3, 500)))
    for name in ("a.npy", "a.npz"):
        with pytest.raises(FileFormatError, match=r"\(3, 500\), not \(N, 3 or more\): transpose it"):
            read_points(tmp_path / name)
    np.save(tmp_path / "a.npy", np.ones((60, 131)))  # points with a descriptor each
    assert read_points(tmp_path / "a.npy").shape == (60, 3)


def test_invalid_arrays(tmp_path):
    for bad in (
        np.zeros(3),
        np.zeros((4, 2)),
        np.zeros((0, 3)),
        np.zeros((2, 3), complex),
        np.array([["a"] * 3]),
    ):
        np.save(tmp_path / "a.npy", bad)
        with pytest.raises(FileFormatError):
            read_points(tmp_path / "a.npy")
    np.save(tmp_path / "a.npy", np.array([[{}] * 3]), allow_pickle=True)
    with pytest.raises(FileFormatError):
        read_points(tmp_path / "a.npy")
    header = io.BytesIO()
    shape = {"descr": "<f8", "fortran_order": False, "shape": (10**12, 3)}
    np.lib.format.write_array_header_1_0(header, shape)
    (tmp_path / "a.npy").write_bytes(header.getvalue() + bytes(48))
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("points.npy", header.getvalue() + bytes(48))
    for name in ("a.npy", "a.npz"):
        with pytest.raises(FileFormatError, match=name):
            read_points(tmp_path / name)


def write_mesh(path) -> None:
    if path.suffix == ".ply":
        path.write_bytes(ply("<", ROOM, QUAD_AND_TRIANGLE))
    elif path.suffix == ".obj":
        faces = ["f " + " ".join(str(i + 1) for i in face) for face in QUAD_AND_TRIANGLE]
        lines = [f"v {x} {y} {z}" for x, y, z in ROOM.tolist()]
        path.write_text("\n".join(["mtllib none.mtl", "g one", *lines, faces[0], "g two", faces[1]]))
    elif path.suffix == ".off":
        rows = [" ".join(map(str, r)) for r in [*ROOM.tolist(), *([len(f), *f] for f in QUAD_AND_TRIANGLE)]]
        path.write_text("\n".join(["OFF5 2 0", *rows]))  # no space before the counts, as in ModelNet40
    else:
        triangles = ROOM[[[0, 1, 2], [0, 2, 3], [0, 1, 4]]].astype("<f4")
        records = np.zeros(3, [("normal", "<f4", 3), ("corners", "<f4", (3, 3)), ("more", "<u2")])
        records["corners"] = triangles
        path.write_bytes(bytes(80) + np.uint32(3).tobytes() + records.tobytes())


@pytest.mark.parametrize("extension", ["ply", "obj", "off", "stl"])
def test_meshes_give_vertices_or_a_uniform_sample(tmp_path, extension):
    path = tmp_path / f"room.{extension}"
    write_mesh(path)
    np.testing.assert_array_equal(read_points(path), ROOM)
    sample = read_points(path, sample=4000, seed=3)
    np.testing.assert_array_equal(sample, read_points(path, sample=4000, seed=3))
    assert not np.array_equal(sample, read_points(path, sample=4000, seed=4))
    floor, wall = sample[sample[:, 2] < 1e-12], sample[sample[:, 2] >= 1e-12]
    assert abs(len(floor) - 2000) < 150  # half the area, within five standard deviations
    np.testing.assert_allclose(floor.mean(axis=0), [1, 0.5, 0], atol=0.06)
    np.testing.assert_allclose(wall.mean(axis=0), [2 / 3, 0, 2 / 3], atol=0.06)
    assert (wall[:, 0] + wall[:, 2] <= 2 + 1e-9).all()


def test_faces_with_an_invalid_vertex_are_not_sampled(tmp_path):
    vertices = ROOM.copy()
    vertices[3] = np.nan
    (tmp_path / "room.ply").write_bytes(ply(">", vertices, QUAD_AND_TRIANGLE))
    cloud = read_cloud(tmp_path / "room.ply", sample=100, nonfinite="drop")
    assert cloud.dropped == 1
    assert np.isfinite(cloud.points).all()
    assert set(cloud.points[:, 1] == 0) == {False, True}


def test_faces_without_area_or_with_wrong_corners(tmp_path):
    for faces, reason in (
        ([[0, 1, 1]], "no area"),
        ([[0, 1, 9]], "vertex index outside"),
        ([[0, 1, -1]], "vertex index outside"),
    ):
        (tmp_path / "room.ply").write_bytes(ply("<", ROOM, faces))
        with pytest.raises(FileFormatError, match=reason):
            read_points(tmp_path / "room.ply", sample=10)


def test_a_truncated_stl_is_rejected(tmp_path):
    write_mesh(tmp_path / "room.stl")
    content = (tmp_path / "room.stl").read_bytes()
    for end in (20, 83, 84, 100, len(content) - 1):
        (tmp_path / "room.stl").write_bytes(content[:end])
        with pytest.raises(FileFormatError, match="should have"):
            read_points(tmp_path / "room.stl")


def test_trimesh_reads_the_written_ply(tmp_path):
    import trimesh

    colors = np.arange(12, dtype=np.uint8).reshape(4, 3)
    write_points(tmp_path / "a.ply", XYZ, {"colors": colors})
    cloud = trimesh.load(tmp_path / "a.ply")
    np.testing.assert_array_equal(cloud.vertices, XYZ)
    np.testing.assert_array_equal(np.asarray(cloud.colors)[:, :3], colors)


def test_description_file_is_refused_as_a_scan(tmp_path):
    path = tmp_path / "a.npz"
    np.savez(path, points=np.zeros((9, 3)), descriptors=np.zeros((4, 32)), frames=np.zeros((4, 3, 3)))
    with pytest.raises(FileFormatError, match="description"):
        read_cloud(path)
