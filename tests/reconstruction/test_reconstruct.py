"""Many scans in, one frame out; whatever is missing, broken, or was interrupted."""

import json
import shutil

import numpy as np
import pytest
import typer
from scipy.spatial.transform import Rotation
from typer.testing import CliRunner

import wsdesc.reconstruction.pipeline
from wsdesc import read_points, write_points
from wsdesc.cli import reconstruct as cli_reconstruct
from wsdesc.cloud.merge import VoxelMerge
from wsdesc.cloud.units import measure
from wsdesc.core.errors import FileFormatError, InputError
from wsdesc.core.executors import Serial
from wsdesc.core.folders import locked
from wsdesc.datasets.synthetic import room_scans
from wsdesc.reconstruction.pipeline import reconstruct

FAST = {"keypoints": 400, "more_keypoints": 0}
ROOM = ["room_1.ply", "room_2.ply", "room_3.ply"]


class Counting(Serial):
    """Counts jobs by task, and stops after so many pairs."""

    def __init__(self, most=10**9):
        self.done, self.most = {}, most

    def run(self, task, jobs):
        for number, result in super().run(task, jobs):
            self.done[task.__name__] = self.done.get(task.__name__, 0) + 1
            if self.done.get("register_pair", 0) > self.most:
                raise KeyboardInterrupt
            yield number, result


def motion(rng):
    T = np.eye(4)
    T[:3, :3] = Rotation.random(random_state=rng).as_matrix()
    T[:3, 3] = rng.uniform(-3, 3, 3)
    return T


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Three scans of a room, each in a frame of its own, and one of another room; where they truly are."""
    folder = tmp_path_factory.mktemp("scans")
    rng = np.random.default_rng(0)
    T_room_scan = {}
    for name, fragment in zip(ROOM, room_scans(3, 3, resolution=0.04), strict=True):
        T_scan_fragment = motion(rng)
        points = fragment.points @ T_scan_fragment[:3, :3].T + T_scan_fragment[:3, 3]
        write_points(folder / name, points)
        T_room_scan[name] = fragment.T_world_scan @ np.linalg.inv(T_scan_fragment)
    write_points(folder / "foreign.ply", room_scans(77, 1, resolution=0.04)[0].points)
    return folder, T_room_scan


@pytest.fixture(scope="module")
def paths(files):
    return [files[0] / name for name in ("room_1.ply", "room_2.ply", "foreign.ply", *ROOM[2:])]


@pytest.fixture(scope="module")
def done(paths, tmp_path_factory):
    """A run from start to end, and the folder it worked in."""
    folder = tmp_path_factory.mktemp("model")
    return reconstruct(paths, folder, **FAST), folder


@pytest.fixture
def folder(done, tmp_path):
    """A copy of that folder, to spoil."""
    return shutil.copytree(done[1], tmp_path / "model")


def same(a, b):
    assert a.components == b.components
    for name, T in a.T_world_scan.items():
        np.testing.assert_array_equal(T, b.T_world_scan[name])
    assert [p._replace(T_target_source=None) for p in a.pairs] == [
        p._replace(T_target_source=None) for p in b.pairs
    ]


def test_places_the_scans_of_the_room(done, files):
    found, T_room_scan = done[0], files[1]
    assert found.components == [ROOM]
    np.testing.assert_allclose(found.T_world_scan[ROOM[0]], np.eye(4), atol=1e-9)
    for name in ROOM:
        T_true = np.linalg.inv(T_room_scan[ROOM[0]]) @ T_room_scan[name]
        points = read_points(files[0] / name)
        apart = points @ (found.T_world_scan[name] - T_true)[:3, :3].T
        apart = np.linalg.norm(apart + (found.T_world_scan[name] - T_true)[:3, 3], axis=1)
        assert apart.max() < 0.1
        assert np.median(apart) < 0.05


def test_a_scan_of_another_room_is_left_out_and_named(done):
    assert list(done[0].not_placed) == ["foreign.ply"]
    assert "overlap" in done[0].not_placed["foreign.ply"]
    assert not done[0].complete
    assert len(done[0].pairs) == 6
    assert all(p.rejected for p in done[0].pairs if "foreign.ply" in p[:2])
    assert sum(p.rejected is None for p in done[0].pairs) >= 2


def test_works_at_the_resolution_of_all_scans(done, paths):
    assert done[0].resolution == measure(*map(read_points, paths)).resolution


def test_goes_on_after_an_interruption_with_the_same_bits(done, paths, tmp_path, folder):
    shutil.copytree(folder / "cache", tmp_path / "again" / "cache")  # descriptions are not what is tested
    with pytest.raises(KeyboardInterrupt):
        reconstruct(paths, tmp_path / "again", executor=Counting(most=2), **FAST)
    rest = Counting()
    same(reconstruct(paths, tmp_path / "again", executor=rest, **FAST), done[0])
    assert rest.done == {"register_pair": 4}


def test_a_second_run_has_nothing_to_do(done, paths, folder):
    nothing = Counting()
    same(reconstruct(paths, folder, executor=nothing, **FAST), done[0])
    assert nothing.done == {}


def test_the_order_and_the_names_of_files_do_not_matter(done, paths, folder, tmp_path):
    renamed = [shutil.copy(path, tmp_path / f"{k}.ply") for k, path in enumerate(reversed(paths))]
    nothing = Counting()
    found = reconstruct(renamed, folder, executor=nothing, **FAST)
    assert nothing.done == {}
    T_here_there = found.T_world_scan["3.ply"]  # room_1, the frame of the first run
    for name, old in (("0.ply", ROOM[2]), ("2.ply", ROOM[1])):
        T = T_here_there @ done[0].T_world_scan[old]
        np.testing.assert_allclose(found.T_world_scan[name], T, atol=1e-5)


def test_a_cache_entry_cut_off_is_made_again(done, paths, folder):
    (folder / "journal.jsonl").unlink()
    entry = sorted(folder.glob("cache/*.npz"))[0]
    whole = entry.read_bytes()
    entry.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(KeyboardInterrupt):
        reconstruct(paths, folder, executor=Counting(most=0), **FAST)
    assert len(entry.read_bytes()) == len(whole)


def test_a_corrupt_scan_is_skipped_and_named(done, paths, folder, tmp_path):
    bad = tmp_path / "bad.ply"
    bad.write_bytes(paths[0].read_bytes()[:300])
    few = tmp_path / "few.xyz"
    few.write_text("0 0 0\n1 0 0\n0 1 0\n")
    given = [*paths[:2], bad, tmp_path / "missing.ply", few, *paths[2:]]
    found = reconstruct(given, folder, resolution=done[0].resolution, **FAST)
    assert found.components == [ROOM]
    assert set(found.not_placed) == {"bad.ply", "missing.ply", "few.xyz", "foreign.ply"}
    assert "bad.ply" in found.not_placed["bad.ply"]
    assert "no such file" in found.not_placed["missing.ply"]
    assert "points are left" in found.not_placed["few.xyz"]


@pytest.mark.parametrize(
    ("scans", "says"),
    [
        ([], "there is none"),
        ([np.random.default_rng(0).normal(size=(500, 3))], "there is one"),
        ([np.zeros((0, 3)), np.full((4, 3), np.nan)], "there is none; scan 0 was left out"),
        ("scans/", "give a list"),
    ],
)
def test_too_few_scans_are_an_error_with_a_reason(scans, says):
    with pytest.raises(InputError, match=says):
        reconstruct(scans, **FAST)


def test_equal_scans_lie_on_each_other(paths, tmp_path):
    points = read_points(paths[0])
    jobs = Counting()
    found = wsdesc.reconstruct([points, points, points], tmp_path, executor=jobs, **FAST)
    assert found.complete
    assert jobs.done == {"survey_scan": 1, "describe_scan": 1, "register_pair": 1}
    for T in found.T_world_scan.values():
        np.testing.assert_allclose(T, np.eye(4), atol=1e-3)


def test_of_many_scans_only_similar_ones_are_registered(done, paths, folder, monkeypatch):
    monkeypatch.setattr("wsdesc.reconstruction.pair_selection.ALL_PAIRS", 3)
    nothing = Counting()
    found = reconstruct(paths, folder, executor=nothing, neighbours=1, **FAST)
    assert nothing.done == {}
    assert len(found.pairs) < 6
    assert set(found.components[0]) <= set(ROOM)


def test_two_runs_at_once_are_refused(paths, folder):
    with locked(folder), pytest.raises(InputError, match="uses this folder"):
        reconstruct(paths, folder, **FAST)


def test_a_full_disk_is_said_and_nothing_is_lost(done, paths, folder, monkeypatch):
    journal = folder / "journal.jsonl"
    journal.write_text("".join(journal.read_text().splitlines(keepends=True)[:-1]))  # a pair to do
    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", lambda descriptor: (_ for _ in ()).throw(OSError(28, "No space left")))
        with pytest.raises(FileFormatError, match="No space left"):
            reconstruct(paths, folder, **FAST)
    same(reconstruct(paths, folder, **FAST), done[0])


def test_a_disk_too_full_for_descriptions_is_no_fault_of_the_scans(paths, tmp_path, monkeypatch):
    def full(self, path):
        raise FileFormatError(f"{path}: cannot be written: No space left on device")

    monkeypatch.setattr("wsdesc.descriptor.description.Description.save", full)
    with pytest.raises(FileFormatError, match="No space left"):
        reconstruct(paths[:2], tmp_path, **FAST)


def test_options_are_checked(paths):
    with pytest.raises(InputError, match="did you mean 'keypoints'"):
        reconstruct(paths, keypoint=3)
    with pytest.raises(FileFormatError, match="unknown model"):
        reconstruct(paths[:2], model="nonsense", **FAST)


class TestFiles:
    def test_hold_what_was_found(self, done, files, folder):
        found = done[0]
        (folder / "merged_2.ply").write_text("of an earlier run")
        (folder / "merged_mine.ply").write_text("not ours")
        written = cli_reconstruct.write_model(found, folder, voxel=0.1)
        names = ["poses.json", "poses.tum", "graph.json", "report.md", "merged.ply"]
        assert [path.name for path in written] == names
        assert not (folder / "merged_2.ply").exists()
        assert (folder / "merged_mine.ply").exists()

        poses = json.loads((folder / "poses.json").read_text())
        assert poses["frames"] == [{"reference": ROOM[0], "scans": ROOM}]
        T = np.array(poses["scans"][ROOM[2]]["T_world_scan"])
        np.testing.assert_array_equal(T, found.T_world_scan[ROOM[2]])
        rows = np.loadtxt(folder / "poses.tum")  # (3, 8)
        np.testing.assert_allclose(Rotation.from_quat(rows[2, 4:]).as_matrix(), T[:3, :3], atol=1e-9)
        np.testing.assert_allclose(rows[2, 1:4], T[:3, 3], atol=1e-9)
        edges = json.loads((folder / "graph.json").read_text())["edges"]
        assert len(edges) == 6
        assert all(edge["accepted"] == (edge["rejected"] is None) for edge in edges)
        report = (folder / "report.md").read_text()
        assert all(name in report for name in (*ROOM, "foreign.ply", "3 of 4 scans"))

        whole = VoxelMerge(0.1)
        for name in ROOM:
            whole.add(read_points(files[0] / name), found.T_world_scan[name])
        np.testing.assert_array_equal(read_points(folder / "merged.ply"), whole.points)

    def test_the_command(self, done, files, folder):
        app = typer.Typer()
        app.command()(cli_reconstruct.reconstruct)
        # All pairs are in the journal already: this is about what is shown and written.
        arguments = [str(files[0]), "-o", str(folder), "--keypoints", "400", "--more-keypoints", "0"]
        shown = CliRunner().invoke(app, arguments)
        assert shown.exit_code == 1, shown.output
        assert "3 scans, 1 not" in shown.output
        assert "foreign.ply was not placed" in shown.output
        before = {path.name: path.read_bytes() for path in folder.glob("[pgrm]*.*")}
        shown = CliRunner().invoke(app, [*arguments, "--json"])
        assert json.loads(shown.stdout)["frames"][0]["scans"] == ROOM
        assert {path.name: path.read_bytes() for path in folder.glob("[pgrm]*.*")} == before

    def test_results_are_not_taken_for_scans(self, files, tmp_path):
        scans = shutil.copytree(files[0], tmp_path / "scans")
        for out in (scans / "model", scans / "older"):
            out.mkdir()
            write_points(out / "merged.ply", np.zeros((1, 3)))
        (scans / "older" / "journal.jsonl").touch()
        found = cli_reconstruct.find_scans([scans], scans / "model")
        assert [path.name for path in found] == ["foreign.ply", *ROOM]
        with pytest.raises(InputError, match="name another --out"):
            cli_reconstruct.find_scans([scans], scans)
