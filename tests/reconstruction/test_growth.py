"""Models that grow: add, remove and merge, with simulated registrations of small files."""

import os
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from simulated_models import (
    NO_RETRY,
    RESOLUTION,
    check_poses,
    describe_scan,
    find_places,
    make_model,
    number_of,
    pose,
    register_pair,
    simulate,
    write_scan,
)
from wsdesc import Reconstruction, read_points, write_points
from wsdesc.core.errors import FileFormatError, InputError
from wsdesc.core.executors import Serial
from wsdesc.core.geometry import inverse, transform
from wsdesc.reconstruction import model_file
from wsdesc.reconstruction.control import ControlPoint
from wsdesc.reconstruction.pipeline import reconstruct

JOBS = {"survey_scan": 0, "describe_scan": 0, "register_pair": 0}


class Counting(Serial):
    """Count the jobs of each task except quick checks, and stop after some pairs."""

    def __init__(self, limit=10**9):
        self.done, self.limit = dict(JOBS), limit

    def run(self, task, jobs):
        for number, result in super().run(task, jobs):
            if self.done["register_pair"] >= self.limit:
                raise KeyboardInterrupt
            if task.__name__ in self.done:
                self.done[task.__name__] += 1
            yield number, result


@pytest.fixture(autouse=True)
def simulated(monkeypatch):
    simulate(monkeypatch)


@pytest.fixture
def scan(tmp_path):
    """Return a function that writes the scan of a number."""
    folder = tmp_path / "scans"
    folder.mkdir()

    return partial(write_scan, folder)


def make(scan, numbers, out, **options):
    return make_model([scan(k) for k in numbers], out, **options)


def assert_right(model, numbers):
    """Check that the scans are placed in one frame, by their relative poses."""
    names = [f"scan_{k}.ply" for k in numbers]
    assert sorted(name for frame in model.components for name in frame) == sorted(names)
    assert len(model.components) == 1
    first = model.components[0][0]
    for name in names:
        T = inverse(model.T_world_scan[first]) @ model.T_world_scan[name]
        T_true = inverse(pose(number_of(first))) @ pose(number_of(name))
        np.testing.assert_allclose(T, T_true, atol=0.05)


@pytest.fixture
def few_are_many(monkeypatch):
    """Select pairs of more than five scans."""
    for module in ("pair_selection", "assembly"):
        monkeypatch.setattr(f"wsdesc.reconstruction.{module}.ALL_PAIRS", 5)


def test_second_run_with_new_files_registers_only_pairs_with_them(scan, tmp_path, few_are_many):
    count = 12
    old = make(scan, range(count), tmp_path / "model", neighbours=4)
    again = Counting()
    same = reconstruct(
        [scan(k) for k in range(count)], tmp_path / "model", executor=again, neighbours=4, **NO_RETRY
    )
    assert again.done == JOBS
    assert same.to_dict() == old.to_dict()
    (tmp_path / "model" / "journal.jsonl").unlink()  # the model itself knows its pairs
    jobs = Counting()
    files = [scan(k) for k in range(count + 2)]
    new = reconstruct(files, tmp_path / "model", executor=jobs, neighbours=4, **NO_RETRY)
    assert jobs.done["describe_scan"] == 2
    assert jobs.done["register_pair"] == len(new.edges) - len(old.edges) <= 2 * 4
    assert_right(new, range(count + 2))


def test_second_run_keeps_the_resolution_and_the_frame(scan, tmp_path):
    options = {"more_keypoints": 0, "resolution": None}
    old = make(scan, [2, 3, 4], tmp_path / "model", **options)
    jobs = Counting()
    new = reconstruct([scan(k) for k in (1, 2, 3, 4)], tmp_path / "model", executor=jobs, **options)
    assert new.resolution == old.resolution
    assert jobs.done["register_pair"] == 3
    assert new.components[0][0] == "scan_2.ply"
    np.testing.assert_array_equal(new.T_world_scan["scan_2.ply"], old.T_world_scan["scan_2.ply"])


def test_renamed_files_are_recognized(scan, tmp_path):
    make(scan, [1, 2, 3], tmp_path / "model")
    moved = tmp_path / "moved"
    moved.mkdir()
    files = [shutil.move(tmp_path / "scans" / f"scan_{k}.ply", moved / f"x_{k}.ply") for k in (3, 2, 1)]
    jobs = Counting()
    model = reconstruct(files, tmp_path / "model", executor=jobs, **NO_RETRY)
    assert jobs.done["register_pair"] == jobs.done["describe_scan"] == 0
    assert set(model.components[0]) == {"x_1.ply", "x_2.ply", "x_3.ply"}
    model.save(tmp_path / "model")
    assert Reconstruction.load(tmp_path / "model").paths["x_1.ply"] == moved / "x_1.ply"


def test_other_options_start_anew(scan, tmp_path):
    make(scan, [1, 2, 3], tmp_path / "model")
    jobs = Counting()
    reconstruct([scan(k) for k in (1, 2, 3)], tmp_path / "model", executor=jobs, seed=5, **NO_RETRY)
    assert jobs.done["register_pair"] == 3


def test_added_scans_are_placed(scan, tmp_path):
    model = make(scan, [1, 2, 3], tmp_path / "model")
    jobs = Counting()
    larger = model.add([scan(4), scan(5)], executor=jobs)
    assert jobs.done == {"survey_scan": 2, "describe_scan": 2, "register_pair": 7}
    assert_right(larger, range(1, 6))
    larger.save(tmp_path / "model")
    loaded = Reconstruction.load(tmp_path / "model")
    assert loaded.to_dict() == larger.to_dict()
    assert loaded.state.options.resolution == RESOLUTION
    assert_right(loaded.add(scan(6)), range(1, 7))


def test_jobs_of_models_are_those_of_reconstruct(scan, tmp_path, monkeypatch):
    """`add` and `merge` open as many processes as they are given."""
    opened = []

    def choose(jobs=1, scheduler=None, device="cpu"):
        opened.append(jobs)
        return Serial()

    model, other = make(scan, [1, 2, 3], tmp_path / "a"), make(scan, [3, 4], tmp_path / "b")
    monkeypatch.setattr("wsdesc.core.executors.choose_executor", choose)
    assert_right(model.add([scan(4)], jobs=3), range(1, 5))
    assert_right(model.merge(other, tmp_path / "both", jobs=5), range(1, 5))
    assert opened == [3, 5]


def test_fixed_poses_do_not_change(scan, tmp_path):
    model = make(scan, [1, 2, 3, 4], tmp_path / "model")
    free, fixed = model.add([scan(5)]), model.add([scan(5)], fixed=True)
    for name, T in model.T_world_scan.items():
        np.testing.assert_allclose(fixed.T_world_scan[name], T, atol=1e-12)
    moved = [np.abs(free.T_world_scan[name] - T).max() for name, T in model.T_world_scan.items()]
    assert max(moved) > 1e-6
    assert_right(fixed, range(1, 6))
    old = {(e.source, e.target): (e.rejection, e.rank) for e in model.edges}
    kept = {(e.source, e.target): (e.rejection, e.rank) for e in fixed.edges if (e.source, e.target) in old}
    assert kept == old


def test_fixed_frames_move_as_a_whole(scan, tmp_path):
    """Scan 4 connects two frames: the smaller one moves, and keeps its relative poses."""
    model = make(scan, [1, 2, 6, 7, 8], tmp_path / "model")
    assert [len(frame) for frame in model.components] == [3, 2]
    whole = model.add([scan(4)], fixed=True)
    assert_right(whole, [1, 2, 4, 6, 7, 8])
    for a, b in (("scan_1.ply", "scan_2.ply"), ("scan_6.ply", "scan_8.ply")):
        before, after = (inverse(m.T_world_scan[a]) @ m.T_world_scan[b] for m in (model, whole))
        np.testing.assert_allclose(after, before, atol=1e-12)
    np.testing.assert_array_equal(whole.T_world_scan["scan_6.ply"], model.T_world_scan["scan_6.ply"])


@pytest.mark.parametrize("fixed", [False, True])
def test_contradicting_scan_is_reported_and_the_others_stay(scan, tmp_path, fixed):
    model = make(scan, [1, 2, 3, 4], tmp_path / "model")
    larger = model.add([scan(902)], fixed=fixed)
    assert "contradicts" in larger.not_placed["scan_902.ply"]
    assert_right(larger, range(1, 5))
    assert not any(e.accepted for e in larger.edges if "scan_902.ply" in (e.source, e.target))


def test_duplicate_is_reported(scan, tmp_path):
    model = make(scan, [1, 2, 3], tmp_path / "model")
    jobs = Counting()
    again = model.add([scan(2, "copy_of_2.ply"), scan(3)], executor=jobs)
    assert again.duplicates == {"copy_of_2.ply": "scan_2.ply"}  # scan 3 is in the model already
    assert jobs.done == JOBS
    assert again.complete
    again.save(tmp_path / "model")
    assert "copy_of_2.ply equals scan_2.ply" in (tmp_path / "model" / "report.md").read_text()
    assert Reconstruction.load(tmp_path / "model").duplicates == again.duplicates


def test_another_scan_of_the_same_name_is_added(scan, tmp_path):
    model = make(scan, [1, 2, 3], tmp_path / "model")
    (tmp_path / "day_2").mkdir()
    other = shutil.move(scan(4), tmp_path / "day_2" / "scan_3.ply")
    assert len(model.add([other]).state.scans) == 4


def test_arrays_are_added_under_new_names(tmp_path, scan, monkeypatch):
    monkeypatch.setattr("wsdesc.reconstruction.runner.register_pair", register_pair)
    points = [np.random.default_rng(k).uniform(-1, 1, (60, 3)) for k in range(3)]
    model = reconstruct(points[:2], tmp_path / "model", **NO_RETRY)
    model.save(tmp_path / "model")
    larger = Reconstruction.load(tmp_path / "model").add(points[2:])
    assert list(larger.paths) == ["scan 0", "scan 1", "scan 2"]
    np.testing.assert_array_equal(read_points(larger.paths["scan 0"]), points[0])


def test_removed_scans_are_gone_and_nothing_is_registered(scan, tmp_path):
    model = make(scan, range(1, 6), tmp_path / "model")
    for fixed in (False, True):
        smaller = model.remove(["scan_1.ply", "scan_4.ply"], fixed=fixed)
        assert_right(smaller, [2, 3, 5])
        assert not any("scan_4.ply" in (e.source, e.target) for e in smaller.edges)
        np.testing.assert_array_equal(smaller.T_world_scan["scan_2.ply"], model.T_world_scan["scan_2.ply"])
    smaller.save(tmp_path / "model")
    assert set(Reconstruction.load(tmp_path / "model").paths) == {"scan_2.ply", "scan_3.ply", "scan_5.ply"}
    assert_right(model.remove("scan_5.ply"), range(1, 5))
    with pytest.raises(InputError, match=r"no scan 'scan_9\.ply'"):
        model.remove("scan_9.ply")
    with pytest.raises(InputError, match="at least two scans"):
        model.remove([f"scan_{k}.ply" for k in range(1, 5)])


def test_removing_a_bridge_splits_the_model(scan, tmp_path):
    model = make(scan, [1, 2, 4, 6, 7], tmp_path / "model")
    assert len(model.components) == 1
    assert [len(frame) for frame in model.remove("scan_4.ply").components] == [2, 2]


def test_merged_models_share_a_frame(scan, tmp_path):
    a = make(scan, [1, 2, 3, 4], tmp_path / "a")
    b = make(scan, [4, 5, 6], tmp_path / "b")
    jobs = Counting()
    both = a.merge(b, tmp_path / "both", executor=jobs)
    assert_right(both, range(1, 7))
    assert jobs.done["register_pair"] == 6  # (1, 2, 3) × (5, 6); scan 4 is in both models
    np.testing.assert_array_equal(both.T_world_scan["scan_1.ply"], a.T_world_scan["scan_1.ply"])
    both.save(tmp_path / "both")
    shutil.rmtree(tmp_path / "a")
    shutil.rmtree(tmp_path / "b")
    assert_right(Reconstruction.load(tmp_path / "both").add([scan(7)]), range(1, 8))


def test_merged_frames_stay_rigid_on_request(scan, tmp_path):
    a, b = make(scan, [1, 2, 3], tmp_path / "a"), make(scan, [4, 5, 6], tmp_path / "b")
    both = a.merge(b, fixed=True)
    assert_right(both, range(1, 7))
    before, after = (inverse(m.T_world_scan["scan_4.ply"]) @ m.T_world_scan["scan_6.ply"] for m in (b, both))
    np.testing.assert_allclose(after, before, atol=1e-12)


def test_models_of_different_resolutions_are_merged(scan, tmp_path):
    a = make(scan, [1, 2, 3], tmp_path / "a")
    b = make(scan, [4, 5, 6], tmp_path / "b", resolution=0.05)
    both = a.merge(b)
    assert both.resolution == RESOLUTION
    assert_right(both, range(1, 7))


def test_names_that_clash_get_the_folder_of_their_model(scan, tmp_path):
    a = make(scan, [1, 2, 3], tmp_path / "a")
    other = tmp_path / "other"
    other.mkdir()
    files = [shutil.move(scan(k), other / f"scan_{k - 2}.ply") for k in (4, 5, 6)]
    b = reconstruct(files, tmp_path / "b", **NO_RETRY)
    b.save(tmp_path / "b")
    scan(3)
    both = a.merge(Reconstruction.load(tmp_path / "b"))
    assert {"b/scan_2.ply", "b/scan_3.ply", "scan_4.ply"} < set(both.state.scans)


def test_stopped_addition_continues(scan, tmp_path):
    model = make(scan, [1, 2, 3], tmp_path / "model")
    new = [scan(4), scan(5)]
    with pytest.raises(KeyboardInterrupt):
        model.add(new, executor=Counting(limit=3))
    jobs = Counting()
    larger = Reconstruction.load(tmp_path / "model").add(new, executor=jobs)
    assert jobs.done["register_pair"] == 7 - 3
    assert larger.to_dict() == model.add(new).to_dict()


def test_stopped_save_leaves_the_model_before_it(scan, tmp_path, monkeypatch):
    model = make(scan, [1, 2, 3], tmp_path / "model")
    larger = model.add([scan(4)])

    def stop(*arguments):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(model_file, "write", stop)
        with pytest.raises(KeyboardInterrupt):
            larger.save(tmp_path / "model")
    loaded = Reconstruction.load(tmp_path / "model")
    assert loaded.to_dict() == model.to_dict()
    assert loaded.add([scan(4)]).to_dict() == larger.to_dict()


def test_moved_and_changed_files_are_named(scan, tmp_path):
    model = make(scan, [1, 2, 3], tmp_path / "model")
    file = tmp_path / "scans" / "scan_2.ply"
    file.rename(tmp_path / "elsewhere.ply")
    with pytest.raises(InputError, match=r"scan_2\.ply was moved or deleted: put it back, or remove"):
        model.add([scan(4)])
    write_points(file, np.random.default_rng(9).uniform(size=(60, 3)))
    with pytest.raises(InputError, match=r"scan_2\.ply changed since it was added"):
        model.add([scan(4)])
    assert_right(model.remove("scan_2.ply").add([scan(4)]), [1, 3, 4])


def test_damaged_models_and_other_versions_are_refused(scan, tmp_path, monkeypatch):
    model = make(scan, [1, 2, 3], tmp_path / "model")
    file = tmp_path / "model" / "model.npz"
    whole = file.read_bytes()
    for damaged in (whole[: len(whole) // 2], b"", bytes([*whole[:500], whole[500] ^ 1, *whole[501:]])):
        file.write_bytes(damaged)
        with pytest.raises(FileFormatError, match=r"model\.npz: damaged"):
            Reconstruction.load(tmp_path / "model")
    monkeypatch.setattr(model_file, "FORMAT", 99)
    model.save(tmp_path / "model")
    monkeypatch.undo()
    with pytest.raises(FileFormatError, match="wrote this model in format 99"):
        Reconstruction.load(tmp_path / "model")
    with pytest.raises(InputError, match="no state to grow from"):
        replace(model, state=None).add([scan(4)])
    with pytest.raises(InputError, match="not those that the model was made with"):
        replace(model, state=replace(model.state, weights="other")).add([scan(4)])


def test_broken_files_are_named_and_the_rest_is_added(scan, tmp_path, monkeypatch):
    monkeypatch.undo()
    for task in (describe_scan, register_pair, check_poses):
        monkeypatch.setattr(f"wsdesc.reconstruction.runner.{task.__name__}", task)
    monkeypatch.setattr("wsdesc.reconstruction.assembly.find_places", find_places)
    model = make(scan, [1, 2, 3], tmp_path / "model")
    broken = tmp_path / "broken.ply"
    broken.write_bytes(scan(4).read_bytes()[:100])
    larger = model.add([broken, scan(4)])
    assert list(larger.not_placed) == ["broken.ply"]
    assert_right(larger, range(1, 5))
    larger.save(tmp_path / "model")
    assert list(Reconstruction.load(tmp_path / "model").add([scan(5)]).not_placed) == ["broken.ply"]


def test_merged_cloud_has_the_points_of_all_scans(scan, tmp_path):
    model = make(scan, [1, 2, 3], tmp_path / "model").add([scan(4)])
    model.save(tmp_path / "model", voxel=1e-4)
    merged = read_points(tmp_path / "model" / "merged.ply")
    moved = transform(read_points(model.paths["scan_4.ply"]), model.T_world_scan["scan_4.ply"])
    assert len(merged) == 240
    assert np.abs(merged[:, None] - moved).max(axis=2).min(axis=0).max() < 1e-3


def test_control_points_stay_with_the_model(scan, tmp_path):
    """A model in the world stays there when it grows, with its control points or with fixed poses."""
    T_world = pose(77)
    control = [
        ControlPoint(f"scan_{k}.ply", p, tuple(transform(np.array([p]), T_world @ pose(k))[0]), 0.01)
        for k in (1, 3)
        for p in ((0.0, 0.0, 0.0), (1.0, 0.0, 0.0), (0.0, 1.0, 0.0))
    ]
    model = make(scan, [1, 2, 3], tmp_path / "model", control=control)
    assert model.in_world
    for fixed in (False, True):
        larger = model.add([scan(4)], fixed=fixed)
        assert larger.in_world
        np.testing.assert_allclose(larger.T_world_scan["scan_4.ply"], T_world @ pose(4), atol=0.05)
    assert len(larger.known) == 0
    assert len(model.remove("scan_3.ply").known) == 3
    again = reconstruct([scan(k) for k in (1, 2, 3)], tmp_path / "model", **NO_RETRY)
    assert again.in_world
    with pytest.raises(InputError, match="use one of them"):
        reconstruct([scan(1), scan(2)], control=control[:3], fixed=True, **NO_RETRY)


@pytest.mark.slow
def test_addition_that_stops_at_any_write_continues(scan, tmp_path, monkeypatch):
    """Each write of a file or of a line may be the last one before the process is killed."""
    make(scan, [1, 2, 3], tmp_path / "model")
    new = [scan(4), scan(5)]
    shutil.copytree(tmp_path / "model", tmp_path / "complete")
    complete = Reconstruction.load(tmp_path / "complete").add(new)
    complete.save(tmp_path / "complete")
    replace_file, fsync, writes = Path.replace, os.fsync, [0, 10**9]

    def count(function):
        def wrapped(*arguments):
            writes[0] += 1
            if writes[0] > writes[1]:
                raise KeyboardInterrupt
            return function(*arguments)

        return wrapped

    monkeypatch.setattr(Path, "replace", count(replace_file))
    monkeypatch.setattr(os, "fsync", count(fsync))
    limit, finished = 0, False
    while not finished:
        folder = shutil.copytree(tmp_path / "model", tmp_path / f"stopped_{limit}")
        writes[:] = [0, limit]
        try:
            Reconstruction.load(folder).add(new).save(folder)
            finished = True
        except KeyboardInterrupt:
            writes[1] = 10**9
            Reconstruction.load(folder).add(new).save(folder)
        assert Reconstruction.load(folder).to_dict() == complete.to_dict()
        limit += 1
    assert limit > 15


def test_folder_with_broken_files_and_duplicates(scan, tmp_path, monkeypatch):
    """Of 60 files, two are broken, one is empty and one is a copy; the others are placed."""
    monkeypatch.undo()
    for task in (describe_scan, register_pair, check_poses):
        monkeypatch.setattr(f"wsdesc.reconstruction.runner.{task.__name__}", task)
    monkeypatch.setattr("wsdesc.reconstruction.assembly.find_places", find_places)
    files = [scan(k) for k in range(60)]
    for k in (20, 50):
        files[k].write_bytes(files[k].read_bytes()[:200])
    files[37].write_bytes(b"")
    shutil.copy(files[9], files[42])
    model = make_model(files, tmp_path / "model", neighbours=6)
    assert set(model.not_placed) == {"scan_20.ply", "scan_37.ply", "scan_50.ply"}
    assert model.duplicates == {"scan_42.ply": "scan_9.ply"}
    assert sorted(map(len, model.components)) == [56]
