"""Maps of synthetic rooms: built, opened, and scans located in them."""

import inspect
import json

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

import wsdesc
from wsdesc import Map, write_points
from wsdesc.core.errors import FileFormatError, InputError
from wsdesc.core.geometry import transform
from wsdesc.datasets.synthetic import room_scans
from wsdesc.mapping.options import LocateOptions, MapOptions
from wsdesc.mapping.result import Location

UTM = np.array([431_000.0, 5_411_000.0, 250.0])
RESOLUTION = 0.06
FAST = {"keypoints": 300}


def room(seed, count, offset):
    """Scans of a room, and their poses in the map."""
    for scan in room_scans(seed, count, resolution=0.05):
        T = scan.T_world_scan.copy()
        T[:3, 3] += UTM + offset
        yield scan.points, T


@pytest.fixture(scope="module")
def survey(tmp_path_factory):
    """Two rooms in geographic coordinates: files of a map, and a further scan of each with its pose."""
    folder = tmp_path_factory.mktemp("survey")
    queries = []
    for seed, offset in ((3, [0, 0, 0]), (11, [40.0, 15.0, 3.0])):
        *mapped, query = room(seed, 4, np.array(offset))
        for number, (points, T) in enumerate(mapped):
            write_points(folder / f"room_{seed}_{number}.ply", transform(points.astype(np.float64), T))
        queries.append(query)
    return folder, queries


@pytest.fixture(scope="module")
def site(survey, tmp_path_factory):
    return Map.build(survey[0], tmp_path_factory.mktemp("maps") / "site.map", resolution=RESOLUTION)


def error(result, points, T):
    return np.linalg.norm(transform(points, result.T_map_scan) - transform(points, T), axis=1).max()


def test_scans_are_located_where_they_were_taken(site, survey):
    R = Rotation.random(random_state=5)
    for points, T in survey[1][:1]:
        moved = R.apply(points)  # any frame of the scan
        T = T @ np.block([[R.inv().as_matrix(), np.zeros((3, 1))], [np.zeros((1, 3)), np.ones((1, 1))]])
        result = site.locate(moved)
        assert isinstance(result, Location)
        assert result.success
        assert str(result).startswith("Location: success")
        assert error(result, moved, T) < RESOLUTION  # also in geographic coordinates
        assert np.array_equal(result.T_map_scan, result.T_target_source)


@pytest.mark.slow
def test_a_scan_of_another_place_is_not_located(site):
    for seed in (77, 78):
        result = site.locate(room_scans(seed, 1, resolution=0.05)[0].points)
        assert not result.success
        assert result.warnings


@pytest.mark.slow
def test_the_same_scan_gives_the_same_bits(site, survey):
    points, _ = survey[1][0]
    first, second = (Map.open(site.path).locate(points, **FAST) for _ in range(2))
    assert np.array_equal(first.T_map_scan, second.T_map_scan)
    assert first.confidence == second.confidence


def test_points_that_are_not_finite_are_counted(site, survey):
    points = survey[1][0][0].copy()
    points[:3] = np.nan
    assert site.locate(points, **FAST).warnings[-1] == "the scan: 3 points that are not finite were ignored."


@pytest.mark.slow
def test_a_place_that_exists_twice_is_ambiguous(survey, tmp_path):
    scans = [points for points, _ in room(3, 3, np.zeros(3))]
    poses = [T for _, T in room(3, 3, np.zeros(3))] + [T for _, T in room(3, 3, np.array([60.0, 0, 0]))]
    twice = Map.build(scans + scans, tmp_path / "twice.map", poses=poses, resolution=RESOLUTION)
    result = twice.locate(survey[1][0][0], **FAST)
    assert not result.success
    assert result.confidence < 0.6


@pytest.mark.slow
def test_one_large_cloud_is_cut_into_tiles(survey, tmp_path):
    folder, queries = survey
    cloud = np.concatenate([wsdesc.read_points(path) for path in sorted(folder.iterdir())])
    write_points(tmp_path / "cloud.laz", cloud)
    site = Map.build(tmp_path / "cloud.laz", tmp_path / "cloud.map", resolution=RESOLUTION)
    assert site.tiles > 1
    locations = [site.locate(points) for points, _ in queries]
    assert sum(result.success for result in locations) >= 1  # a merged cloud is harder than its scans
    for result, (points, T) in zip(locations, queries, strict=True):
        if result.success:
            assert error(result, points, T) < RESOLUTION


@pytest.mark.slow
def test_a_reconstruction_is_mapped_by_its_poses(tmp_path):
    scans, poses = zip(*room(3, 3, -UTM), strict=True)
    for number, points in enumerate(scans):
        write_points(tmp_path / f"scan_{number}.ply", points)
    names = [f"scan_{number}.ply" for number in range(3)]
    model = wsdesc.Reconstruction(
        T_world_scan=dict(zip(names, poses, strict=True)),
        components=[names],
        not_placed={},
        edges=[],
        resolution=RESOLUTION,
        paths={name: tmp_path / name for name in names},
    )
    model.save(tmp_path / "model")
    site = Map.build(tmp_path / "model", tmp_path / "site.map", resolution=RESOLUTION)
    assert len(site.sources) == 3
    by_poses = Map.build(list(scans), tmp_path / "other.map", poses=poses, resolution=RESOLUTION)
    assert site.points == by_poses.points
    (tmp_path / "scan_1.ply").unlink()
    with pytest.raises(InputError, match=r"scan_1\.ply.*moved or deleted"):
        Map.build(tmp_path / "model", tmp_path / "site.map", resolution=0.06)


@pytest.mark.slow
def test_scans_may_move_after_the_map_was_built(survey, tmp_path):
    points, T = next(room(3, 1, np.zeros(3)))
    path = tmp_path / "a.ply"
    write_points(path, transform(points.astype(np.float64), T))
    other = tmp_path / "b.ply"
    write_points(other, transform(points.astype(np.float64), T))
    site = Map.build([path, other], tmp_path / "site.map", resolution=RESOLUTION)
    assert site.changes == []
    path.rename(tmp_path / "moved.ply")
    write_points(other, points)
    gone, changed = Map.open(site.path).changes
    assert "a.ply" in gone
    assert "no longer there" in gone
    assert "b.ply: was changed" in changed
    assert site.locate(points, **FAST).success


@pytest.mark.slow
def test_a_stopped_build_continues(survey, tmp_path, monkeypatch):
    from wsdesc.mapping.pieces import Describer

    described = []
    describe_scan = Describer.describe_scan

    def stop_after_two(self, scan):
        if len(described) == 2:
            raise KeyboardInterrupt
        described.append(scan)
        return describe_scan(self, scan)

    monkeypatch.setattr(Describer, "describe_scan", stop_after_two)
    out = tmp_path / "site.map"
    with pytest.raises(KeyboardInterrupt):
        Map.build(survey[0], out, resolution=RESOLUTION)
    with pytest.raises(FileFormatError, match="not finished"):
        Map.open(out)
    monkeypatch.setattr(
        Describer, "describe_scan", lambda self, scan: described.append(scan) or describe_scan(self, scan)
    )
    Map.build(survey[0], out, resolution=RESOLUTION)
    assert len(described) == len(list(survey[0].iterdir()))
    assert sorted(path.name for path in out.iterdir() if path.is_dir()) == [
        json.loads((out / "map.json").read_text())["data"]
    ]


def test_a_map_of_a_broken_file_leaves_no_folder(tmp_path):
    broken = tmp_path / "broken.ply"
    broken.write_bytes(b"no scan")
    with pytest.raises(FileFormatError):
        Map.build(broken, tmp_path / "site.map")
    assert not (tmp_path / "site.map").exists()


def test_a_broken_scan_is_left_out(survey, tmp_path):
    folder = tmp_path / "scans"
    folder.mkdir()
    for path in sorted(survey[0].iterdir())[:2]:
        (folder / path.name).write_bytes(path.read_bytes())
    (folder / "broken.ply").write_bytes(b"ply\nformat")
    site = Map.build(folder, tmp_path / "site.map", resolution=RESOLUTION)
    assert len(site.warnings) == 1
    assert "broken.ply" in site.warnings[0]


def test_defaults_of_the_signatures_are_those_of_the_options():
    for function, options in ((Map.build, MapOptions()), (Map.locate, LocateOptions())):
        for name, parameter in inspect.signature(function).parameters.items():
            if name in type(options).model_fields:
                assert parameter.default == getattr(options, name), name


def test_an_unknown_option_is_refused(site):
    with pytest.raises(InputError, match="did you mean 'neighbours'"):
        site.locate(np.zeros((100, 3)), neighbour=3)
