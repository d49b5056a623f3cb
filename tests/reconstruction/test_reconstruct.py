"""Reconstruction from files to poses: results, resumed runs and bad input."""

import inspect
import shutil

import numpy as np
import pytest

import wsdesc
from poses import random_pose
from wsdesc import read_points, write_points
from wsdesc.cloud.units import measure
from wsdesc.core.errors import FileFormatError, InputError
from wsdesc.core.executors import Serial
from wsdesc.core.folders import locked
from wsdesc.core.geometry import inverse, transform
from wsdesc.datasets.synthetic import room_scans
from wsdesc.descriptor.preparation import clean_scan
from wsdesc.reconstruction.control import ControlPoint
from wsdesc.reconstruction.inputs import as_files, find_scans
from wsdesc.reconstruction.options import KnownOptions, ReconstructOptions
from wsdesc.reconstruction.pipeline import reconstruct

FAST = {"keypoints": 300, "more_keypoints": 0}
ROOM = ["room_1.ply", "room_2.ply", "room_3.ply"]


class Counting(Serial):
    """Count the jobs of each task, and stop after some pairs."""

    def __init__(self, limit=10**9):
        self.done, self.limit = {}, limit

    def run(self, task, jobs):
        for number, result in super().run(task, jobs):
            self.done[task.__name__] = self.done.get(task.__name__, 0) + 1
            if self.done.get("register_pair", 0) > self.limit:
                raise KeyboardInterrupt
            yield number, result


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Three scans of a room in random frames and one of another room; with the true poses."""
    folder = tmp_path_factory.mktemp("scans")
    rng = np.random.default_rng(0)
    T_room_scan = {}
    for name, fragment in zip(ROOM, room_scans(3, 3, resolution=0.05), strict=True):
        T_scan_fragment = random_pose(rng)
        points = fragment.points @ T_scan_fragment[:3, :3].T + T_scan_fragment[:3, 3]
        write_points(folder / name, points)
        T_room_scan[name] = fragment.T_world_scan @ inverse(T_scan_fragment)
    write_points(folder / "foreign.ply", room_scans(77, 1, resolution=0.05)[0].points)
    return folder, T_room_scan


@pytest.fixture(scope="module")
def paths(files):
    return [files[0] / name for name in ("room_1.ply", "room_2.ply", "foreign.ply", *ROOM[2:])]


@pytest.fixture(scope="module")
def done(paths, tmp_path_factory):
    """The result of a complete run, and its folder."""
    folder = tmp_path_factory.mktemp("model")
    return reconstruct(paths, folder, **FAST), folder


@pytest.fixture
def folder(done, tmp_path):
    """A copy of that folder."""
    return shutil.copytree(done[1], tmp_path / "model")


def assert_equal(a, b):
    """Compare two results bit for bit."""
    assert a.to_dict() == b.to_dict()
    assert [edge.to_dict() for edge in a.edges] == [edge.to_dict() for edge in b.edges]


def test_scans_of_a_room_are_placed(done, files):
    result, T_room_scan = done[0], files[1]
    assert result.components == [ROOM]
    np.testing.assert_allclose(result.T_world_scan[ROOM[0]], np.eye(4), atol=1e-9)
    for name in ROOM:
        T_true = inverse(T_room_scan[ROOM[0]]) @ T_room_scan[name]
        points = read_points(files[0] / name)
        error = np.linalg.norm(
            transform(points, result.T_world_scan[name]) - transform(points, T_true), axis=1
        )
        assert error.max() < 0.15
        assert np.median(error) < 0.06


def test_scan_of_another_room_is_not_placed(done):
    assert list(done[0].not_placed) == ["foreign.ply"]
    assert "overlap" in done[0].not_placed["foreign.ply"]
    assert not done[0].complete
    assert len(done[0].edges) == 6
    assert all(e.rejection for e in done[0].edges if "foreign.ply" in (e.source, e.target))
    assert sum(edge.accepted for edge in done[0].edges) >= 2


def test_control_points_move_a_finished_model_into_the_world(folder, paths, files):
    """No pair is registered again; a wrong control point and a wrong prior are named."""
    T_room_scan, utm = files[1], np.array([448_123.0, 5_411_987.0, 312.0])
    rng, control = np.random.default_rng(0), []
    for name in ROOM:
        points = read_points(files[0] / name)
        for point in points[rng.integers(len(points), size=3)]:
            world = transform(point[None], T_room_scan[name])[0] + utm
            control.append(ControlPoint(name, tuple(point), tuple(world), 0.05))
    control[4] = control[4]._replace(world=tuple(np.array(control[4].world) + 3.0), name="moved by 3 m")
    counting = Counting()
    result = reconstruct(paths, folder, control=control, executor=counting, **FAST)
    assert counting.done == {}
    assert result.in_world
    assert [item.name for item in result.known if not item.accepted] == ["moved by 3 m"]
    for name in ROOM:
        points = read_points(files[0] / name)
        error = transform(points, result.T_world_scan[name]) - transform(points, T_room_scan[name]) - utm
        assert np.median(np.linalg.norm(error, axis=1)) < 0.06
    poses = {name: T_room_scan[name] for name in ROOM}
    poses[ROOM[1]] = poses[ROOM[1]].copy()
    poses[ROOM[1]][:3, 3] += [6.0, 0.0, 0.0]
    result = reconstruct(paths, folder, priors=poses, prior_sigma=0.1, executor=counting, **FAST)
    assert counting.done == {}
    assert [item.scan for item in result.known if not item.accepted] == [ROOM[1]]
    assert 5 < next(item.distance for item in result.known if not item.accepted) < 7
    with pytest.raises(InputError, match="no scan has this name"):
        reconstruct(paths, folder, priors={"other.ply": np.eye(4)}, **FAST)


def test_resolution_is_that_of_all_scans(done, paths):
    assert done[0].resolution == measure(*(clean_scan(path).points for path in paths)).resolution


@pytest.mark.slow
def test_processes_give_the_same_bits(done, paths, tmp_path):
    assert_equal(reconstruct(paths, tmp_path / "two", jobs=2, **FAST), done[0])


def test_wrong_numbers_of_processes_are_refused(paths, tmp_path):
    with pytest.raises(InputError, match="jobs: at least 1"):
        reconstruct(paths, tmp_path / "model", jobs=0, **FAST)
    with pytest.raises(InputError, match="jobs and executor"):
        reconstruct(paths, tmp_path / "model", jobs=2, executor=Serial(), **FAST)
    assert not (tmp_path / "model").exists()


@pytest.mark.slow
def test_resumed_run_gives_the_same_bits(done, paths, tmp_path, folder):
    shutil.copytree(folder / "cache", tmp_path / "again" / "cache")  # this test is about pairs
    with pytest.raises(KeyboardInterrupt):
        reconstruct(paths, tmp_path / "again", executor=Counting(limit=2), **FAST)
    counting = Counting()
    assert_equal(reconstruct(paths, tmp_path / "again", executor=counting, **FAST), done[0])
    assert counting.done == {"register_pair": 4, "check_poses": 9}


def test_second_run_computes_nothing(done, paths, folder):
    counting = Counting()
    assert_equal(reconstruct(paths, folder, executor=counting, **FAST), done[0])
    assert counting.done == {}


@pytest.mark.slow
def test_order_and_names_of_files_do_not_matter(done, paths, folder, tmp_path):
    renamed = [shutil.copy(path, tmp_path / f"{k}.ply") for k, path in enumerate(reversed(paths))]
    counting = Counting()
    result = reconstruct(renamed, folder, executor=counting, **FAST)
    assert counting.done.keys() <= {"check_poses"}  # poses in the other direction
    T_new_old = result.T_world_scan["3.ply"]  # room_1, the frame of the first run
    for name, old in (("0.ply", ROOM[2]), ("2.ply", ROOM[1])):
        T = T_new_old @ done[0].T_world_scan[old]
        np.testing.assert_allclose(result.T_world_scan[name], T, atol=1e-5)


@pytest.mark.slow
def test_damaged_cache_entry_is_made_again(done, paths, folder):
    (folder / "journal.jsonl").unlink()
    entry = sorted(folder.glob("cache/*.npz"))[0]
    whole = entry.read_bytes()
    entry.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(KeyboardInterrupt):
        reconstruct(paths, folder, executor=Counting(limit=0), **FAST)
    assert len(entry.read_bytes()) == len(whole)


@pytest.mark.slow
def test_unreadable_scans_are_left_out_and_named(done, paths, folder, tmp_path):
    bad = tmp_path / "bad.ply"
    bad.write_bytes(paths[0].read_bytes()[:300])
    few = tmp_path / "few.xyz"
    few.write_text("0 0 0\n1 0 0\n0 1 0\n")
    given = [*paths[:2], bad, tmp_path / "missing.ply", few, *paths[2:]]
    result = reconstruct(given, folder, resolution=done[0].resolution, **FAST)
    assert result.components == [ROOM]
    assert set(result.not_placed) == {"bad.ply", "missing.ply", "few.xyz", "foreign.ply"}
    assert result.not_placed["bad.ply"].startswith("cannot be read as ply: ")
    assert "no such file" in result.not_placed["missing.ply"]
    assert "points are left" in result.not_placed["few.xyz"]


@pytest.mark.parametrize(
    ("scans", "says"),
    [
        ([], "two readable scans are required, found 0"),
        ([np.random.default_rng(0).normal(size=(500, 3))], "found 1"),
        ([np.zeros((0, 3)), np.full((4, 3), np.nan)], "found 0; scan 0 was left out"),
        ("no-such-folder", "found 0; no-such-folder was left out"),
    ],
)
def test_too_few_scans_are_an_error(scans, says):
    with pytest.raises(InputError, match=says):
        reconstruct(scans, **FAST)


def test_the_error_names_an_unreadable_scan_once(tmp_path):
    (tmp_path / "empty.ply").touch()
    with pytest.raises(InputError) as error:
        reconstruct([tmp_path], **FAST)
    assert str(error.value).endswith("found 0; empty.ply was left out: is empty; export the scan again")


def test_duplicates_are_named_and_left_out(done, paths, folder, tmp_path):
    copy = shutil.copy(paths[0], tmp_path / "copy.ply")
    jobs = Counting()
    result = reconstruct([*paths, copy], folder, executor=jobs, **FAST)
    assert jobs.done == {}
    assert result.duplicates == {"copy.ply": "room_1.ply"}
    assert result.components == done[0].components
    assert "copy.ply" not in result.not_placed
    assert "copy.ply equals room_1.ply" in str(result)


def test_copies_of_one_scan_are_too_few(paths):
    points = read_points(paths[0])
    with pytest.raises(InputError, match="found 1; scan 1 was left out: a duplicate of scan 0"):
        wsdesc.reconstruct([points, points, points], **FAST)


def test_only_similar_scans_of_many_are_registered(done, paths, folder, monkeypatch):
    monkeypatch.setattr("wsdesc.reconstruction.pair_selection.ALL_PAIRS", 3)
    counting = Counting()
    result = reconstruct(paths, folder, executor=counting, neighbours=1, **FAST)
    assert counting.done.keys() <= {"check_poses"}
    assert len(result.edges) < 6
    assert set(result.components[0]) <= set(ROOM)


def test_second_run_in_a_folder_is_refused(paths, folder):
    with locked(folder), pytest.raises(InputError, match="uses this folder"):
        reconstruct(paths, folder, **FAST)


@pytest.mark.slow
def test_full_disk_is_reported_and_the_run_resumes(done, paths, folder, monkeypatch):
    journal = folder / "journal.jsonl"
    journal.write_text("".join(journal.read_text().splitlines(keepends=True)[:-1]))  # one pair is left
    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", lambda descriptor: (_ for _ in ()).throw(OSError(28, "No space left")))
        with pytest.raises(FileFormatError, match="No space left"):
            reconstruct(paths, folder, **FAST)
    assert_equal(reconstruct(paths, folder, **FAST), done[0])


@pytest.mark.slow
def test_full_disk_is_not_reported_as_a_bad_scan(paths, tmp_path, monkeypatch):
    def full(self, path):
        raise FileFormatError(f"{path}: cannot be written: No space left on device")

    monkeypatch.setattr("wsdesc.descriptor.description.Description.save", full)
    with pytest.raises(FileFormatError, match="No space left"):
        reconstruct(paths[:2], tmp_path, **FAST)


def test_invalid_options_are_refused(paths):
    with pytest.raises(InputError, match="did you mean 'keypoints'"):
        reconstruct(paths, keypoint=3)
    with pytest.raises(FileFormatError, match="unknown model"):
        reconstruct(paths[:2], model="nonsense", **FAST)


def test_folder_of_scans_without_results_of_runs(files, tmp_path):
    scans = shutil.copytree(files[0], tmp_path / "scans")
    for out in (scans / "model", scans / "older"):
        out.mkdir()
        write_points(out / "merged.ply", np.zeros((1, 3)))
    (scans / "older" / "journal.jsonl").touch()
    listed = find_scans([scans], scans / "model")
    assert [path.name for path in listed] == ["foreign.ply", *ROOM]
    with pytest.raises(InputError, match="choose another folder"):
        find_scans([scans], scans)
    paths, failed = as_files(scans, tmp_path, scans / "model")
    assert list(paths) == ["foreign.ply", *ROOM]
    assert failed == {}


def test_signature_names_and_documents_every_option():
    parameters = inspect.signature(reconstruct).parameters
    fields = ReconstructOptions.model_fields | KnownOptions.model_fields
    options = {name: field.default for name, field in fields.items()}
    others = {
        "scans",
        "out",
        "fixed",
        "executor",
        "jobs",
        "progress",
        "unknown",
        "priors",
        "control",
        "reference",
        "up",
    }
    assert {name: p.default for name, p in parameters.items() if name not in others} == options
    assert all(f"        {name}: " in reconstruct.__doc__ for name in parameters)


@pytest.mark.slow
def test_stations_of_a_file_are_reconstructed_and_merged(files, tmp_path):
    """A PTX file with three stations gives the poses of its stations, and a merged cloud with intensity."""
    folder, T_room_scan = files
    text = ""
    for name in ROOM:
        points = read_points(folder / name)
        text += f"{len(points)}\n1\n0 0 0\n1 0 0\n0 1 0\n0 0 1\n1 0 0 0\n0 1 0 0\n0 0 1 0\n0 0 0 1\n"
        text += "".join(f"{x} {y} {z} 0.5\n" for x, y, z in points.tolist())
    (tmp_path / "room.ptx").write_text(text)
    result = reconstruct(tmp_path / "room.ptx", tmp_path / "model", **FAST)
    assert result.complete
    assert list(result.T_world_scan) == ["room.ptx#1", "room.ptx#2", "room.ptx#3"]
    first = result.T_world_scan["room.ptx#1"]
    for number, name in enumerate(ROOM[1:], start=2):
        T = inverse(first) @ result.T_world_scan[f"room.ptx#{number}"]
        expected = inverse(T_room_scan[ROOM[0]]) @ T_room_scan[name]
        np.testing.assert_allclose(T, expected, atol=0.1)
    result.save(tmp_path / "model")
    merged = wsdesc.read_cloud(tmp_path / "model" / "merged.ply")
    assert set(merged.attributes["intensity"].tolist()) == {0.5}
