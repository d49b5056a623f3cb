"""`wsdesc reconstruct` as a user meets it: killed, fed with rubbish, out of space, or with nobody to help."""

import json
import resource
import shutil
import subprocess
import sys
import time
from collections import Counter

import numpy as np
import pytest
from scipy.spatial.transform import Rotation
from typer.testing import CliRunner

from wsdesc import write_points
from wsdesc.cli.app import app
from wsdesc.core.folders import locked
from wsdesc.datasets.synthetic import room_scans

FAST = ("--keypoints", "400", "--more-keypoints", "0")
ROOM = ["room_1.ply", "room_2.ply", "room_3.ply"]


def reconstruct(*arguments):
    """The command in this process, where the libraries are loaded already."""
    return CliRunner().invoke(app, ["reconstruct", *map(str, arguments), *FAST])


def command(*arguments):
    return [sys.executable, "-m", "wsdesc", "reconstruct", *map(str, arguments), *FAST]


def lines(out):
    journal = out / "journal.jsonl"
    return [json.loads(line) for line in journal.read_text().splitlines()] if journal.exists() else []


@pytest.fixture(scope="module")
def scans(tmp_path_factory):
    """Three scans of a room, in frames of their own, and a file that broke off, in the middle."""
    folder = tmp_path_factory.mktemp("scans")
    for number, (name, fragment) in enumerate(zip(ROOM, room_scans(3, 3, resolution=0.04), strict=True)):
        R = Rotation.random(random_state=number).as_matrix()
        write_points(folder / name, fragment.points @ R.T)
    (folder / "room_15_broken.ply").write_bytes((folder / ROOM[0]).read_bytes()[:400])
    return folder


@pytest.fixture(scope="module")
def killed(scans, tmp_path_factory):
    """The folder of a run that was killed after its first pair, and how many results it had kept."""
    out = tmp_path_factory.mktemp("model")
    run = subprocess.Popen(command(scans, "-o", out), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    patience = time.monotonic() + 300
    while not any("poses" in line["result"] for line in lines(out)):
        assert run.poll() is None
        assert time.monotonic() < patience
        time.sleep(0.05)
    run.kill()
    run.wait()
    return out, len(lines(out))


@pytest.fixture(scope="module")
def done(scans, killed):
    """That folder after the same command was given again, and what it showed."""
    out, kept = killed
    assert kept < 3 + 3 + 3  # scans read, scans described, pairs: it was in the middle
    return reconstruct(scans, "-o", out), out


@pytest.fixture
def model(done, tmp_path):
    """A copy of it, to spoil."""
    return shutil.copytree(done[1], tmp_path / "model")


def test_a_killed_run_goes_on_and_does_nothing_twice(done):
    shown, out = done
    assert shown.exit_code == 1, shown.output  # a scan is missing
    counts = Counter(line["key"] for line in lines(out))
    assert len(counts) == 9
    assert set(counts.values()) == {1}
    poses = json.loads((out / "poses.json").read_text())
    assert poses["frames"] == [{"reference": ROOM[0], "scans": ROOM}]
    assert sorted(path.name for path in out.iterdir() if not path.name.startswith(".")) == [
        "cache", "graph.json", "journal.jsonl", "merged.ply", "poses.json", "poses.tum", "report.md"
    ]  # fmt: skip


def test_a_broken_scan_is_skipped_and_named_and_the_rest_goes_on(done):
    shown, out = done
    assert "room_15_broken.ply was not placed" in shown.output
    assert "room_15_broken.ply" in (out / "report.md").read_text()
    assert list(json.loads((out / "poses.json").read_text())["not_placed"]) == ["room_15_broken.ply"]


def test_a_cache_entry_cut_off_is_made_again_with_the_same_poses(scans, done, model):
    before = (model / "poses.json").read_bytes()
    (model / "journal.jsonl").unlink()
    entry = sorted(model.glob("cache/*.npz"))[1]
    whole = len(entry.read_bytes())
    entry.write_bytes(entry.read_bytes()[: whole // 2])
    assert reconstruct(scans, "-o", model).exit_code == 1
    assert len(entry.read_bytes()) == whole
    assert (model / "poses.json").read_bytes() == before


def test_no_scans_and_one_scan(scans, tmp_path):
    (tmp_path / "empty").mkdir()
    for given, says in ((tmp_path / "empty", "no"), (scans / ROOM[0], "two scans or more, and there is one")):
        shown = reconstruct(given, "-o", tmp_path / "out")
        assert shown.exit_code == 2, shown.output
        assert says in shown.output
        assert "Traceback" not in shown.output


def test_scans_that_are_all_equal_lie_on_each_other(scans, tmp_path):
    for name in "abc":
        shutil.copy(scans / ROOM[0], tmp_path / f"{name}.ply")
    shown = reconstruct(*sorted(tmp_path.glob("*.ply")), "-o", tmp_path / "out")
    assert shown.exit_code == 0, shown.output
    for scan in json.loads((tmp_path / "out" / "poses.json").read_text())["scans"].values():
        np.testing.assert_allclose(scan["T_world_scan"], np.eye(4), atol=1e-3)


def test_no_space_for_the_result_is_said_and_what_was_there_stays(scans, done, model):
    """A limit on the size of files is the full disk that a test can make."""
    whole = (model / "merged.ply").read_bytes()
    limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (len(whole) // 2,) * 2)  # noqa: E731
    full = subprocess.run(command(scans, "-o", model), capture_output=True, text=True, preexec_fn=limit)
    assert full.returncode == 2, full.stderr
    assert "merged.ply: cannot be written" in full.stderr
    assert "Traceback" not in full.stderr
    assert (model / "merged.ply").read_bytes() == whole
    assert not list(model.glob(".wsdesc-*"))


def test_a_second_run_in_the_same_folder_is_refused(scans, model):
    with locked(model):
        shown = reconstruct(scans, "-o", model)
    assert shown.exit_code == 2
    assert "uses this folder" in shown.output


def test_a_scheduler_that_is_not_there(scans, tmp_path):
    pytest.importorskip("distributed")
    start = time.monotonic()
    shown = reconstruct(scans, "-o", tmp_path, "--scheduler", "tcp://127.0.0.1:9")
    assert shown.exit_code == 2
    assert "no Dask scheduler answers at tcp://127.0.0.1:9" in shown.output
    assert time.monotonic() - start < 20
