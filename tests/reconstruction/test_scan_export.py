"""Moved scans, E57 files with poses, and coordinate systems, read again by other libraries."""

import struct

import laspy
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from wsdesc import read_cloud, write_points
from wsdesc.cloud.crs import read_crs_option
from wsdesc.cloud.stations import read_station_poses
from wsdesc.core.errors import FileFormatError, InputError
from wsdesc.core.geometry import make_pose, transform
from wsdesc.reconstruction.result import Reconstruction

UTM = np.array([448_123.0, 5_411_987.0, 312.0])


def pose(seed, shift=(0.0, 0.0, 0.0)):
    return make_pose(
        Rotation.random(random_state=seed).as_matrix(), np.array(shift) + np.array([1 / 3, seed, -7.25])
    )


@pytest.fixture
def result(tmp_path):
    """A LAZ scan in map coordinates with a coordinate system, a PCD, a PLY and a PTX scan, and a fifth."""
    rng = np.random.default_rng(0)
    folder = tmp_path / "scans"
    folder.mkdir()
    points = rng.uniform(-5, 5, (400, 3))
    header = laspy.LasHeader(point_format=3, version="1.2")
    header.scales, header.offsets = np.full(3, 1e-3), UTM
    record = read_crs_option("EPSG:32632")[0]
    header.vlrs.append(laspy.VLR("LASF_Projection", record.number, "", record.data))
    las = laspy.LasData(header)
    las.x, las.y, las.z = (points + UTM).T
    las.intensity = rng.integers(0, 65_535, 400).astype(np.uint16)
    las.classification = rng.integers(0, 9, 400).astype(np.uint8)
    las.red = las.green = las.blue = rng.integers(0, 65_535, 400).astype(np.uint16)
    las.write(folder / "a.laz")
    intensity = rng.uniform(0, 1, 400).astype(np.float32)
    write_points(folder / "b.pcd", points.astype(np.float32), {"intensity": intensity})
    colors = rng.integers(0, 255, (400, 3)).astype(np.uint8)
    normals = np.tile(np.float32([0, 0, 1]), (400, 1))
    write_points(folder / "c.ply", points, {"colors": colors, "normals": normals, "intensity": intensity})
    rows = "\n".join(f"{x} {y} {z} 0.5" for x, y, z in points.tolist())
    head = "400\n1\n0 0 0\n1 0 0\n0 1 0\n0 0 1\n1 0 0 0\n0 1 0 0\n0 0 1 0\n0 0 0 1\n"
    (folder / "d.ptx").write_text((head + rows + "\n") * 2)
    write_points(folder / "e.npy", points)
    names = ["a.laz", "b.pcd", "c.ply", "d.ptx#2", "e.npy"]
    poses = dict(zip(names, [np.eye(4), *(pose(k, UTM) for k in (1, 2, 3)), pose(4)], strict=True))
    paths = {name: folder / name for name in names}
    return Reconstruction(poses, [names[:4], names[4:]], {}, [], 0.025, paths)


def test_scans_are_moved_and_keep_what_they_have(result, tmp_path):
    files, notes = result.write_scans(tmp_path / "out")
    expected = ["a.laz", "b.pcd", "c.ply", "d_2.ply", "frame_2/e.npy"]
    assert [file.relative_to(tmp_path / "out").as_posix() for file in files] == expected
    for (name, T), file in zip(result.T_world_scan.items(), files, strict=True):
        before, after = read_cloud(result.paths[name]), read_cloud(file)
        np.testing.assert_allclose(after.points, transform(before.points, T), atol=2e-3)
        assert after.attributes.keys() == before.attributes.keys()
        for attribute, values in before.attributes.items():
            assert after.attributes[attribute].dtype == values.dtype
            if attribute not in ("nx", "ny", "nz"):
                np.testing.assert_array_equal(after.attributes[attribute], values)
    np.testing.assert_allclose(
        np.stack([read_cloud(files[2]).attributes[n] for n in ("nx", "ny", "nz")], axis=1)[0],
        result.T_world_scan["c.ply"][:3, 2], atol=1e-6,
    )  # fmt: skip
    assert any("float64" in note for note in notes)  # float32 cannot store map coordinates


def test_laz_files_keep_point_format_scale_and_coordinate_system(result, tmp_path):
    (file, *_), _ = result.write_scans(tmp_path / "out")
    with laspy.open(file) as las:
        assert las.header.point_format.id == 3
        np.testing.assert_allclose(las.header.scales, 1e-3)
        keys = next(vlr for vlr in las.header.vlrs if vlr.record_id == 34735)
    assert keys.record_data_bytes() == read_crs_option("EPSG:32632")[0].data


def test_a_coordinate_system_can_be_given(result, tmp_path):
    (file, *_), _ = result.write_scans(tmp_path / "out", crs="EPSG:25832")
    data = next(v for v in laspy.read(file).header.vlrs if v.record_id == 34735).record_data_bytes()
    assert 25832 in struct.unpack(f"<{len(data) // 2}H", data)


def test_scans_are_never_replaced(result):
    before = result.paths["a.laz"].read_bytes()
    with pytest.raises(InputError, match="would replace a scan"):
        result.write_scans(result.paths["a.laz"].parent)
    assert result.paths["a.laz"].read_bytes() == before


def test_e57_has_a_named_scan_with_its_pose_for_each_scan(result, tmp_path):
    pye57 = pytest.importorskip("pye57", reason="the extra e57 is not installed")
    notes = result.write_e57(tmp_path / "all.e57")
    assert "classification" in notes[0]
    with pye57.E57(str(tmp_path / "all.e57")) as file:
        assert file.scan_count == 4
        for index, (name, T) in enumerate(list(result.T_world_scan.items())[:4]):
            header = file.get_header(index)
            assert header["name"].value() == name
            np.testing.assert_allclose(header.rotation_matrix, T[:3, :3], atol=1e-9)
            data = file.read_scan(index, ignore_missing_fields=True, intensity=True)
            points = np.stack([data[f"cartesian{axis}"] for axis in "XYZ"], axis=1)
            cloud = read_cloud(result.paths[name])
            np.testing.assert_allclose(points, transform(cloud.points, T), atol=1e-5)
            np.testing.assert_allclose(data["intensity"], cloud.attributes["intensity"], atol=1e-6)
    for T, stored in zip(
        result.T_world_scan.values(), read_station_poses(tmp_path / "all.e57"), strict=False
    ):
        np.testing.assert_allclose(stored[:3, :3], T[:3, :3], atol=1e-9)
    merged = read_cloud(tmp_path / "all.e57")  # by the poses
    assert len(merged) == 1600
    station = read_cloud(tmp_path / "all.e57#2")
    np.testing.assert_allclose(
        station.points, transform(read_cloud(result.paths["b.pcd"]).points, result.T_world_scan["b.pcd"]),
        atol=1e-5,
    )  # fmt: skip


def test_e57_needs_its_extension_and_placed_scans(result, tmp_path):
    with pytest.raises(InputError, match=r"must end in \.e57"):
        result.write_e57(tmp_path / "all.ply")
    with pytest.raises(InputError, match="no scan was placed"):
        Reconstruction({}, [], {}, [], 0.1, {}).write_e57(tmp_path / "all.e57")


def test_coordinate_systems_as_text(tmp_path):
    (tmp_path / "a.prj").write_text('PROJCS["ETRS89 / UTM zone 32N"]')
    assert read_crs_option(str(tmp_path / "a.prj"))[0].data.startswith(b"PROJCS")
    assert read_crs_option("4326")[0].description == "EPSG:4326"
    with pytest.raises(InputError, match="not a coordinate system"):
        read_crs_option("UTM 32")
    with pytest.raises(FileFormatError, match="cannot be read"):
        read_crs_option(str(tmp_path / "absent.wkt"))
