"""Merging into tiles equals merging in memory, continues where it stopped, and survives a full disk."""

import errno
import json
import subprocess
import sys

import laspy
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from wsdesc import read_cloud, write_points
from wsdesc.cloud import tile_parts
from wsdesc.cloud import tiles as module
from wsdesc.cloud.crs import read_crs_option
from wsdesc.cloud.merge import VoxelMerge
from wsdesc.cloud.tiles import PlacedScan, merge_into_tiles
from wsdesc.core.errors import FileFormatError, InputError
from wsdesc.core.geometry import make_pose

VOXEL = 0.25


@pytest.fixture
def scans(tmp_path):
    """Three scans in map coordinates: two PLY files with other attributes, and a LAZ file."""
    rng = np.random.default_rng(0)
    placed = []
    for k, extension in enumerate((".ply", ".ply", ".laz")):
        points = rng.uniform(0, 1, (3000, 3)) * [20, 20, 3]
        attributes = {
            "intensity": rng.integers(0, 1000, 3000).astype(np.uint16),
            "red": rng.integers(0, 255, 3000).astype(np.uint8),
            "green": rng.integers(0, 255, 3000).astype(np.uint8),
            "blue": rng.integers(0, 255, 3000).astype(np.uint8),
        }
        if k == 1:
            attributes["time"] = np.arange(3000.0)
        T = make_pose(Rotation.from_rotvec([0, 0, k]).as_matrix(), [448_100, 5_411_900, 300])
        write_points(tmp_path / f"s{k}{extension}", points, attributes)
        placed.append(PlacedScan(tmp_path / f"s{k}{extension}", T))
    return placed


def merge_in_memory(scans):
    merged = VoxelMerge(VOXEL)
    for scan in scans:
        merged.add_cloud(read_cloud(scan.path), scan.T_world_scan)
    return merged.cloud


def read_tiles(files):
    clouds = [read_cloud(file) for file in files]
    names = clouds[0].attributes
    points = np.concatenate([cloud.points for cloud in clouds])
    order = np.lexsort(np.round(points / 1e-4).T)
    attributes = {n: np.concatenate([cloud.attributes[n] for cloud in clouds])[order] for n in names}
    return points[order], attributes


@pytest.mark.parametrize("extension", [".ply", ".laz"])
def test_tiles_equal_the_cloud_merged_in_memory(scans, tmp_path, extension):
    result = merge_into_tiles(scans, tmp_path / "tiles", voxel=VOXEL, tile=8.0, extension=extension)
    expected = merge_in_memory(scans)
    points, attributes = read_tiles(result.files)
    assert result.points == len(points) == len(expected)
    assert result.merged == 9000
    assert len(result.files) > 10
    order = np.lexsort(np.round(expected.points / 1e-4).T)
    if extension == ".ply":
        np.testing.assert_allclose(points, expected.points[order], atol=1e-8)
        for name in ("intensity", "red", "green", "blue"):
            assert np.abs(attributes[name] - expected.attributes[name][order].astype(float)).max() <= 1
        assert "time" not in attributes
    assert {"intensity", "red", "green", "blue"} <= attributes.keys()
    for file in result.files:
        extent = np.ptp(read_cloud(file).points[:, :2], axis=0)
        assert extent.max() <= 8.0
    assert not (tmp_path / "tiles" / "parts").exists()
    index = json.loads((tmp_path / "tiles" / "tiles.json").read_text())
    assert sum(tile["points"] for tile in index["tiles"]) == result.points
    assert index["tile"] == 8.0


def test_an_attribute_may_have_a_name_like_the_coordinates(tmp_path):
    points = np.random.default_rng(0).uniform(0, 4, (500, 3))
    write_points(tmp_path / "a.npz", points, {"xy": np.full(500, 7.0)})
    scan = PlacedScan(tmp_path / "a.npz", np.eye(4))
    result = merge_into_tiles([scan], tmp_path / "tiles", voxel=VOXEL, tile=8.0, extension=".ply")
    assert (read_tiles(result.files)[1]["xy"] == 7.0).all()


def test_laz_tiles_have_the_coordinate_system(scans, tmp_path):
    crs = read_crs_option("EPSG:32632")
    result = merge_into_tiles(scans, tmp_path / "tiles", voxel=VOXEL, tile=10.0, crs=crs)
    for file in result.files:
        assert any(vlr.record_id == 34735 for vlr in laspy.read(file).header.vlrs)


def test_crowded_tiles_are_divided(scans, tmp_path, monkeypatch):
    whole = merge_into_tiles(scans, tmp_path / "a", voxel=VOXEL, tile=16.0, extension=".ply")
    monkeypatch.setattr(module, "_MAX_VOXELS", 600)
    divided = merge_into_tiles(scans, tmp_path / "b", voxel=VOXEL, tile=16.0, extension=".ply")
    assert len(divided.files) > len(whole.files)
    np.testing.assert_allclose(read_tiles(divided.files)[0], read_tiles(whole.files)[0], atol=1e-8)


def test_a_full_disk_is_a_clear_error_and_the_run_continues(scans, tmp_path, monkeypatch):
    expected = merge_into_tiles(scans, tmp_path / "whole", voxel=VOXEL, tile=8.0, extension=".ply")
    real, written = module.write_cloud, []

    def full_after_five(path, cloud):
        if len(written) == 5:
            raise OSError(errno.ENOSPC, "No space left on device")
        written.append(path.name)
        return real(path, cloud)

    monkeypatch.setattr(module, "write_cloud", full_after_five)
    with pytest.raises(FileFormatError, match=r"the disk is full .* run the same command again"):
        merge_into_tiles(scans, tmp_path / "tiles", voxel=VOXEL, tile=8.0, extension=".ply")
    first = written.copy()
    assert len(first) == 5
    written.clear()
    written.append("no longer full")
    monkeypatch.setattr(
        module, "write_cloud", lambda path, cloud: written.append(path.name) or real(path, cloud)
    )
    monkeypatch.setattr(tile_parts, "read_cloud_chunks", None)  # the scans are not read again
    result = merge_into_tiles(scans, tmp_path / "tiles", voxel=VOXEL, tile=8.0, extension=".ply")
    assert not set(first) & set(written)
    assert [file.name for file in result.files] == [file.name for file in expected.files]
    np.testing.assert_array_equal(read_tiles(result.files)[0], read_tiles(expected.files)[0])


def test_a_full_disk_while_scans_are_sorted_keeps_the_old_tiles(scans, tmp_path, monkeypatch):
    folder = tmp_path / "tiles"
    old = merge_into_tiles(scans[:1], folder, voxel=VOXEL, tile=8.0, extension=".ply")
    before = {file: file.read_bytes() for file in old.files}

    def full(records, voxel, side):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tile_parts, "_group", full)
    with pytest.raises(FileFormatError, match="the disk is full"):
        merge_into_tiles(scans, folder, voxel=VOXEL, tile=8.0, extension=".ply")
    assert {file: file.read_bytes() for file in old.files} == before


def test_a_changed_pose_is_not_taken_from_an_earlier_run(scans, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(module, "_finish", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            merge_into_tiles(scans, tmp_path / "tiles", voxel=VOXEL, tile=8.0, extension=".ply")
    moved = [scan._replace(T_world_scan=scan.T_world_scan.copy()) for scan in scans]
    moved[0].T_world_scan[2, 3] += 50.0
    result = merge_into_tiles(moved, tmp_path / "tiles", voxel=VOXEL, tile=8.0, extension=".ply")
    assert read_tiles(result.files)[0][:, 2].max() > 350


def test_damaged_parts_are_made_again(scans, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(module, "_merge_parts", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            merge_into_tiles(scans, tmp_path / "tiles", voxel=VOXEL, tile=8.0, extension=".ply")
    parts = sorted((tmp_path / "tiles" / "parts").glob("*.bin"))
    assert len(parts) == 3
    parts[0].write_bytes(b"cut off")
    next(iter((tmp_path / "tiles" / "parts").glob("*.json"))).write_text("{")
    result = merge_into_tiles(scans, tmp_path / "tiles", voxel=VOXEL, tile=8.0, extension=".ply")
    assert result.points == len(merge_in_memory(scans))


def test_tiles_of_an_earlier_result_are_removed_and_others_stay(scans, tmp_path):
    folder = tmp_path / "tiles"
    old = merge_into_tiles(scans, folder, voxel=VOXEL, tile=8.0, extension=".ply")
    (folder / "tile_mine.ply").write_text("of the user")
    new = merge_into_tiles(scans, folder, voxel=VOXEL, tile=40.0, extension=".ply")
    assert len(new.files) < len(old.files)
    names = {path.name for path in folder.iterdir()} - {".lock"}
    assert names == {"tiles.json", "tile_mine.ply", *(file.name for file in new.files)}


def test_invalid_arguments(scans, tmp_path):
    with pytest.raises(InputError, match="voxel"):
        merge_into_tiles(scans, tmp_path / "tiles", voxel=0.0)
    with pytest.raises(InputError, match="cannot be written in this format"):
        merge_into_tiles(scans, tmp_path / "tiles", voxel=1.0, extension=".doc")
    with pytest.raises(InputError, match="at least one placed scan"):
        merge_into_tiles([], tmp_path / "tiles", voxel=1.0)


@pytest.mark.slow
def test_a_run_that_is_killed_again_and_again_ends_with_the_same_tiles(scans, tmp_path):
    expected = merge_into_tiles(scans, tmp_path / "whole", voxel=VOXEL, tile=2.0, extension=".ply")
    code = (
        "import sys, numpy as np\nfrom pathlib import Path\n"
        "from wsdesc.cloud.tiles import PlacedScan, merge_into_tiles\n"
        "poses = np.load(sys.argv[2])\n"
        "scans = [PlacedScan(Path(p), T) for p, T in zip(sys.argv[3:], poses)]\n"
        "print('ready', flush=True)\n"
        "merge_into_tiles(scans, sys.argv[1], voxel=0.25, tile=2.0, extension='.ply')\n"
    )
    np.save(tmp_path / "poses.npy", np.stack([scan.T_world_scan for scan in scans]))
    arguments = [str(tmp_path / "tiles"), str(tmp_path / "poses.npy"), *(str(scan.path) for scan in scans)]
    kills = 0
    for pause in (0.02, 0.1, 0.2, 0.3, 0.45, 60):
        run = subprocess.Popen([sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE)
        run.stdout.readline()
        try:
            assert run.wait(pause) == 0
            break
        except subprocess.TimeoutExpired:
            run.kill()
            run.wait()
            kills += 1
    assert kills > 0
    names = sorted(path.name for path in (tmp_path / "tiles").glob("tile_*"))
    assert names == sorted(file.name for file in expected.files)
    for file in expected.files:
        assert (tmp_path / "tiles" / file.name).read_bytes() == file.read_bytes()
