"""`write_cloud`: clouds are written as they were read, and other programs read them."""

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from wsdesc.cloud.cloud import Cloud
from wsdesc.cloud.files import read_cloud, write_points
from wsdesc.cloud.write import write_cloud
from wsdesc.core.geometry import make_pose

COUNT = 60
UTM = np.array([5e5, 5e6, 300.0])


def pose(shift=(1.0, 2.0, 3.0)) -> np.ndarray:
    return make_pose(Rotation.from_euler("zyx", [30, 20, 10], degrees=True).as_matrix(), shift)


@pytest.fixture
def points() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(COUNT, 3)).astype(np.float32)


@pytest.fixture
def attributes() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    normals = rng.normal(size=(COUNT, 3))
    return {
        "colors": rng.integers(0, 256, (COUNT, 3), np.uint8),
        "normals": (normals / np.linalg.norm(normals, axis=1, keepdims=True)).astype(np.float32),
        "intensity": rng.random(COUNT).astype(np.float32),
        "label": rng.integers(0, 9, COUNT, np.int32),
    }


def pcd_header(path: Path) -> dict[str, list[str]]:
    head = path.read_bytes().split(b"DATA")[0].decode()
    return {line.split()[0]: line.split()[1:] for line in head.splitlines() if not line.startswith("#")}


@pytest.mark.parametrize("extension", ["ply", "pcd", "npz"])
def test_types_of_coordinates_and_attributes_stay(tmp_path, points, attributes, extension):
    write_points(tmp_path / f"a.{extension}", points, attributes)
    cloud = read_cloud(tmp_path / f"a.{extension}")
    moved = cloud.transformed(pose())
    assert write_cloud(tmp_path / f"b.{extension}", moved) == []
    back = read_cloud(tmp_path / f"b.{extension}")
    assert back.storage.single
    np.testing.assert_allclose(back.points, moved.points, atol=1e-6)
    assert back.attributes.keys() == cloud.attributes.keys()
    for name, values in cloud.attributes.items():
        assert back.attributes[name].dtype == values.dtype, name
        np.testing.assert_array_equal(back.attributes[name], moved.attributes[name])


def test_double_coordinates_stay_double(tmp_path, points):
    write_points(tmp_path / "a.ply", points.astype(np.float64) + UTM)
    cloud = read_cloud(tmp_path / "a.ply")
    write_cloud(tmp_path / "b.ply", cloud)
    np.testing.assert_array_equal(read_cloud(tmp_path / "b.ply").points, cloud.points)


def test_coordinates_that_are_too_large_for_float32(tmp_path, points):
    for extension, more in (("ply", ""), ("pcd", "Point Cloud Library reads float32 only")):
        write_points(tmp_path / f"a.{extension}", points)
        moved = read_cloud(tmp_path / f"a.{extension}").transformed(pose(UTM))
        (note,) = write_cloud(tmp_path / f"b.{extension}", moved)
        assert "float64" in note
        assert more in note
        np.testing.assert_array_equal(read_cloud(tmp_path / f"b.{extension}").points, moved.points)
        far = points + UTM.astype(np.float32)  # rounded before
        write_points(tmp_path / f"far.{extension}", far)
        same = read_cloud(tmp_path / f"far.{extension}").transformed(np.eye(4))
        assert write_cloud(tmp_path / f"same.{extension}", same) == []
        assert read_cloud(tmp_path / f"same.{extension}").storage.single


def test_pcd_has_the_structure_of_the_point_cloud_library(tmp_path, points, attributes):
    write_points(tmp_path / "a.pcd", points, attributes)
    write_points(tmp_path / "a.ply", points.astype(np.float64), attributes)
    for name in ("a.pcd", "a.ply"):
        write_cloud(tmp_path / "b.pcd", read_cloud(tmp_path / name).transformed(pose()))
        header = pcd_header(tmp_path / "b.pcd")
        assert header["FIELDS"][:3] == ["x", "y", "z"]
        for field, size, kind in zip(header["FIELDS"], header["SIZE"], header["TYPE"], strict=True):
            if field in ("x", "y", "z", "rgb", "intensity", "normal_x", "normal_y", "normal_z"):
                assert (size, kind) == ("4", "F"), field
        assert {"rgb", "normal_x"} <= set(header["FIELDS"])
        assert header["POINTS"] == header["WIDTH"] == [str(COUNT)]


@pytest.mark.skipif(not shutil.which("pcl_convert_pcd_ascii_binary"), reason="needs pcl-tools")
def test_pcl_reads_the_written_pcd(tmp_path, points, attributes):
    write_points(tmp_path / "a.pcd", points, attributes)
    moved = read_cloud(tmp_path / "a.pcd").transformed(pose())
    write_cloud(tmp_path / "b.pcd", moved)
    command = ["pcl_convert_pcd_ascii_binary", str(tmp_path / "b.pcd"), str(tmp_path / "text.pcd"), "0"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "rror" not in done.stderr
    text = (tmp_path / "text.pcd").read_text().split("DATA ascii\n")[1]
    rows = np.array([[float(word) for word in line.split()] for line in text.splitlines()])
    np.testing.assert_allclose(rows[:, :3], moved.points, atol=1e-5)


@pytest.mark.parametrize("extension", ["ply", "pcd"])
def test_open3d_reads_the_written_file(tmp_path, points, attributes, extension):
    o3d = pytest.importorskip("open3d")
    write_points(tmp_path / "a.ply", points, attributes)
    moved = read_cloud(tmp_path / "a.ply").transformed(pose())
    write_cloud(tmp_path / f"b.{extension}", moved)
    cloud = o3d.io.read_point_cloud(str(tmp_path / f"b.{extension}"))
    np.testing.assert_allclose(np.asarray(cloud.points), moved.points, atol=1e-6)
    np.testing.assert_allclose(np.asarray(cloud.colors) * 255, attributes["colors"], atol=0.01)
    rotated = attributes["normals"] @ pose()[:3, :3].T
    np.testing.assert_allclose(np.asarray(cloud.normals), rotated, atol=1e-5)


def test_trimesh_reads_the_written_ply(tmp_path, points, attributes):
    trimesh = pytest.importorskip("trimesh")
    write_points(tmp_path / "a.pcd", points, attributes)
    write_cloud(tmp_path / "b.ply", read_cloud(tmp_path / "a.pcd"))
    cloud = trimesh.load(tmp_path / "b.ply")
    np.testing.assert_array_equal(cloud.vertices, points)
    np.testing.assert_array_equal(np.asarray(cloud.colors)[:, :3], attributes["colors"])


def las_file(path: Path, points: np.ndarray, point_format: int = 7) -> None:
    """Write a file with a coordinate system, classification, a scaled and a plain extra dimension."""
    import laspy

    header = laspy.LasHeader(point_format=point_format, version="1.4" if point_format > 5 else "1.2")
    header.scales, header.offsets = [0.001] * 3, UTM
    header.global_encoding.gps_time_type = laspy.header.GpsTimeType.STANDARD
    header.add_extra_dim(laspy.ExtraBytesParams("height", np.int16, "above ground", [0.0], [0.01]))
    header.add_extra_dim(laspy.ExtraBytesParams("quality", np.float32))
    if point_format > 5:
        header.global_encoding.wkt = True
        header.vlrs.append(laspy.VLR("LASF_Projection", 2112, "WKT", b'PROJCS["UTM 32N"]\0'))
    else:
        keys = np.array([1, 1, 0, 1, 3072, 0, 1, 25832], "<u2").tobytes()
        header.vlrs.append(laspy.VLR("LASF_Projection", 34735, "keys", keys))
    las = laspy.LasData(header)
    las.x, las.y, las.z = (points + UTM).T
    rng = np.random.default_rng(2)
    las.classification = rng.integers(0, 200 if point_format > 5 else 31, COUNT)
    las.intensity, las.red = rng.integers(0, 65536, (2, COUNT))
    las.height, las.quality = rng.integers(-500, 500, COUNT) / 100, rng.random(COUNT)
    las.write(str(path))


@pytest.mark.parametrize("extension", ["las", "laz"])
@pytest.mark.parametrize("point_format", [2, 3, 7])
def test_las_properties_stay(tmp_path, points, extension, point_format):
    import laspy

    las_file(tmp_path / f"a.{extension}", points, point_format)
    moved = read_cloud(tmp_path / f"a.{extension}").transformed(pose(UTM))
    assert write_cloud(tmp_path / f"b.{extension}", moved) == []
    before, after = (laspy.read(tmp_path / f"{name}.{extension}") for name in "ab")
    assert after.header.point_format.id == before.header.point_format.id
    assert list(after.header.scales) == [0.001] * 3
    assert (after.header.offsets % 1 == 0).all()
    assert after.header.global_encoding.gps_time_type == before.header.global_encoding.gps_time_type
    assert after.header.global_encoding.wkt == before.header.global_encoding.wkt
    records = [
        [v.record_data_bytes() for v in las.header.vlrs if v.user_id == "LASF_Projection"]
        for las in (before, after)
    ]
    assert records[0] == records[1] != []
    np.testing.assert_allclose(np.array(after.xyz), moved.points, atol=0.00051)
    for name in ("classification", "intensity", "red", "height", "quality"):
        np.testing.assert_array_equal(np.array(after[name]), np.array(before[name]))
    dimension = after.header.point_format.dimension_by_name("height")
    assert (dimension.num_bits, dimension.scales[0], dimension.description) == (16, 0.01, "above ground")


def test_coordinate_system_after_the_points(tmp_path, points):
    import laspy

    las_file(tmp_path / "a.las", points)
    las = laspy.read(tmp_path / "a.las")
    records = [v for v in las.header.vlrs if v.user_id == "LASF_Projection"]
    las.header.vlrs = laspy.vlrs.vlrlist.VLRList([v for v in las.header.vlrs if v not in records])
    las.evlrs = laspy.vlrs.vlrlist.VLRList(records)
    las.write(str(tmp_path / "b.las"))
    write_cloud(tmp_path / "c.las", read_cloud(tmp_path / "b.las"))
    assert laspy.read(tmp_path / "c.las").header.vlrs.get("WktCoordinateSystemVlr")


def test_the_coordinate_system_is_that_of_the_frame(tmp_path, points):
    import laspy

    las_file(tmp_path / "target.laz", points, 7)
    las_file(tmp_path / "source.laz", points, 3)
    source, target = (read_cloud(tmp_path / f"{name}.laz") for name in ("source", "target"))
    assert write_cloud(tmp_path / "a.laz", source, frame_of=target) == []
    assert laspy.read(tmp_path / "a.laz").header.vlrs.get("WktCoordinateSystemVlr")
    (note,) = write_cloud(tmp_path / "a.laz", source, frame_of=Cloud(target.points))
    assert "coordinate system is that of the moved scan" in note
    assert laspy.read(tmp_path / "a.laz").header.vlrs.get("GeoKeyDirectoryVlr")


def test_from_las_to_ply_and_back(tmp_path, points):
    las_file(tmp_path / "a.laz", points)
    cloud = read_cloud(tmp_path / "a.laz")
    write_cloud(tmp_path / "b.ply", cloud)
    ply = read_cloud(tmp_path / "b.ply")
    assert ply.attributes["red"].dtype == np.uint8
    np.testing.assert_array_equal(ply.attributes["red"], cloud.attributes["red"] >> 8)
    np.testing.assert_array_equal(ply.attributes["classification"], cloud.attributes["classification"])
    write_cloud(tmp_path / "c.laz", ply)
    back = read_cloud(tmp_path / "c.laz")
    np.testing.assert_array_equal(back.attributes["red"] >> 8, ply.attributes["red"])
    np.testing.assert_allclose(back.points, cloud.points, atol=1e-4)


@pytest.mark.parametrize("extension", ["las", "laz", "e57", "bin", "obj", "npy", "csv", "xyz", "pcd", "npz"])
def test_any_cloud_can_be_written_in_any_format(tmp_path, points, attributes, extension):
    rng = np.random.default_rng(3)
    more = {"time": rng.random(COUNT), "classification": np.full(COUNT, 300.0)}
    write_points(tmp_path / "a.ply", points, attributes | more)
    cloud = read_cloud(tmp_path / "a.ply")
    notes = write_cloud(tmp_path / f"b.{extension}", cloud)
    back = read_cloud(tmp_path / f"b.{extension}")
    np.testing.assert_allclose(back.points, points, atol=1e-4)
    missing = {"las": "classification", "laz": "classification", "e57": "label", "bin": "label"}
    missing |= {"obj": "intensity", "npy": "intensity"}
    if extension in missing:
        (note,) = notes
        assert re.search(f"cannot store .*{missing[extension]}", note)
    else:
        assert notes == []


def test_e57_colours(tmp_path, points, attributes):
    write_points(tmp_path / "a.e57", points, {n: attributes[n] for n in ("colors", "intensity")})
    cloud = read_cloud(tmp_path / "a.e57")
    write_cloud(tmp_path / "b.e57", cloud)
    write_cloud(tmp_path / "b.ply", cloud)
    names = [("e57", "colorRed"), ("ply", "red")]
    for extension, name in names:
        red = read_cloud(tmp_path / f"b.{extension}").attributes[name]
        np.testing.assert_array_equal(red, attributes["colors"][:, 0])


def test_colour_arrays_under_other_names(tmp_path, points):
    colors = np.arange(4 * COUNT, dtype=np.uint8).reshape(COUNT, 4)
    for name in ("RGB", "Colors", "rgba"):
        write_cloud(tmp_path / "a.ply", Cloud(points.astype(np.float64), {name: colors}))
        np.testing.assert_array_equal(read_cloud(tmp_path / "a.ply").attributes["green"], colors[:, 1])


def test_colours_of_a_text_become_bytes(tmp_path):
    (tmp_path / "a.csv").write_text("X,Y,Z,R,G,B\n0,0,0,255,0,7\n1,2,3,4,5,6\n")
    write_cloud(tmp_path / "b.ply", read_cloud(tmp_path / "a.csv"))
    attributes = read_cloud(tmp_path / "b.ply").attributes
    assert attributes["red"].dtype == np.uint8
    assert attributes["red"].tolist() == [255, 4]


def test_a_cloud_without_a_file(tmp_path, points):
    write_cloud(tmp_path / "a.ply", Cloud(points.astype(np.float64)))
    np.testing.assert_array_equal(read_cloud(tmp_path / "a.ply").points, points)


def test_whole_numbers_of_a_text_are_stored_in_las(tmp_path):
    (tmp_path / "a.csv").write_text(
        "X,Y,Z,R,G,B,Classification,return_number,a_very_long_name_of_a_column_with_numbers\n"
        "0,0,0,255,0,7,6,1,0.5\n1,2,3,4,5,6,2,2,0.25\n"
    )
    assert write_cloud(tmp_path / "b.las", read_cloud(tmp_path / "a.csv")) == []
    attributes = read_cloud(tmp_path / "b.las").attributes
    assert attributes["return_number"].tolist() == [1, 2]
    assert attributes["red"].tolist() == [65535, 4 * 257]
    assert attributes["classification"].tolist() == [6, 2]
    assert attributes["a_very_long_name_of_a_colu"].tolist() == [0.5, 0.25]


def test_whole_numbers_stay_whole_in_a_text(tmp_path):
    (tmp_path / "a.csv").write_text("x,y,z,label,quality\n1,2,3,7,0.5\n4,5,6,8,1\n")
    write_cloud(tmp_path / "b.csv", read_cloud(tmp_path / "a.csv"))
    lines = (tmp_path / "b.csv").read_text().splitlines()
    assert lines == ["x,y,z,label,quality", "1.0,2.0,3.0,7,0.5", "4.0,5.0,6.0,8,1.0"]


def test_names_that_would_be_equal_are_numbered(tmp_path, points):
    more = {
        "X": np.zeros(COUNT),
        "a b": np.ones(COUNT),
        "a_b": np.zeros(COUNT),
        "time": np.full(COUNT, 2**62 + 1),
    }
    cloud = Cloud(points.astype(np.float64), more)
    (note,) = write_cloud(tmp_path / "a.ply", cloud)
    assert "cannot store time" in note
    assert set(read_cloud(tmp_path / "a.ply").attributes) == {"X_2", "a_b", "a_b_2"}
    assert write_cloud(tmp_path / "a.pcd", cloud) == []
    assert read_cloud(tmp_path / "a.pcd").attributes["time"].tolist() == [2**62 + 1] * COUNT


@pytest.mark.parametrize("extension", ["pcd", "e57"])
def test_the_viewpoint_moves_along(tmp_path, points, extension):
    cloud = Cloud(points.astype(np.float64), viewpoint=np.array([0.5, 1.5, 2.5]))
    write_cloud(tmp_path / f"a.{extension}", cloud.transformed(pose()))
    expected = pose()[:3, :3] @ cloud.viewpoint + pose()[:3, 3]
    np.testing.assert_allclose(read_cloud(tmp_path / f"a.{extension}").viewpoint, expected, atol=1e-12)
