"""`wsdesc reconstruct`: interrupted runs, broken scans, a full disk, and bad input."""

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
    """Run the command in this process, where the libraries are loaded already."""
    return CliRunner().invoke(app, ["reconstruct", *map(str, arguments), *FAST])


def command(*arguments):
    return [sys.executable, "-m", "wsdesc", "reconstruct", *map(str, arguments), *FAST]


def lines(out):
    journal = out / "journal.jsonl"
    return [json.loads(line) for line in journal.read_text().splitlines()] if journal.exists() else []


@pytest.fixture(scope="module")
def scans(tmp_path_factory):
    """Three scans of a room, each with another rotation, and a truncated file."""
    folder = tmp_path_factory.mktemp("scans")
    for number, (name, fragment) in enumerate(zip(ROOM, room_scans(3, 3, resolution=0.04), strict=True)):
        R = Rotation.random(random_state=number).as_matrix()
        write_points(folder / name, fragment.points @ R.T)
    (folder / "room_15_broken.ply").write_bytes((folder / ROOM[0]).read_bytes()[:400])
    return folder


@pytest.fixture(scope="module")
def killed(scans, tmp_path_factory):
    """The folder of a run that was killed after its first pair, and the number of results it kept."""
    out = tmp_path_factory.mktemp("model")
    run = subprocess.Popen(command(scans, "-o", out), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 300
    while not any("candidates" in line["result"] for line in lines(out)):
        assert run.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    run.kill()
    run.wait()
    return out, len(lines(out))


@pytest.fixture(scope="module")
def done(scans, killed):
    """The output of the same command, repeated in the folder of the killed run, and the folder."""
    out, kept = killed
    assert kept < 3 + 3 + 3  # scans read, scans described, pairs: the run was not complete
    return reconstruct(scans, "-o", out), out


@pytest.fixture
def model(done, tmp_path):
    """A copy of the finished folder, for tests that change it."""
    return shutil.copytree(done[1], tmp_path / "model")


@pytest.mark.slow
def test_killed_run_continues_without_repeating_work(done):
    output, out = done
    assert output.exit_code == 1, output.output  # a scan is missing
    counts = Counter(line["key"] for line in lines(out))
    assert len(counts) == 15  # three scans read, three described, three pairs, six checks of poses
    assert set(counts.values()) == {1}
    poses = json.loads((out / "poses.json").read_text())
    assert poses["frames"] == [{"reference": ROOM[0], "scans": ROOM}]
    assert sorted(path.name for path in out.iterdir() if not path.name.startswith(".")) == [
        "cache", "graph.json", "journal.jsonl", "merged.ply", "model.npz", "poses.g2o", "poses.json",
        "poses.tum", "report.html", "report.md"
    ]  # fmt: skip


@pytest.mark.slow
def test_broken_scan_is_skipped_and_reported(done):
    output, out = done
    assert "room_15_broken.ply was not placed" in output.output
    assert "room_15_broken.ply" in (out / "report.md").read_text()
    assert list(json.loads((out / "poses.json").read_text())["not_placed"]) == ["room_15_broken.ply"]


def poses_of(model):
    """Read the poses. The names of files are relative to the folder, which is a copy."""
    return {k: v for k, v in json.loads((model / "poses.json").read_text()).items() if k != "files"}


@pytest.mark.slow
def test_truncated_cache_entry_is_computed_again(scans, done, model):
    before = poses_of(model)
    (model / "journal.jsonl").unlink()
    (model / "model.npz").unlink()
    entry = sorted(model.glob("cache/*.npz"))[1]
    whole = len(entry.read_bytes())
    entry.write_bytes(entry.read_bytes()[: whole // 2])
    assert reconstruct(scans, "-o", model).exit_code == 1
    assert len(entry.read_bytes()) == whole
    assert poses_of(model) == before


def test_too_few_scans(tmp_path):
    (tmp_path / "empty").mkdir()
    write_points(tmp_path / "one.ply", np.random.default_rng(0).uniform(size=(1000, 3)))
    for given, message in ((tmp_path / "empty", "no scans"), (tmp_path / "one.ply", "two")):
        shown = reconstruct(given, "-o", tmp_path / "out")
        assert shown.exit_code == 2, shown.output
        assert message in shown.output
        assert "Traceback" not in shown.output


def test_copies_of_one_scan_are_too_few(scans, tmp_path):
    for name in "abc":
        shutil.copy(scans / ROOM[0], tmp_path / f"{name}.ply")
    shown = reconstruct(*sorted(tmp_path.glob("*.ply")), "-o", tmp_path / "out")
    assert shown.exit_code == 2, shown.output
    assert "b.ply was left out: a duplicate of a.ply" in shown.output


@pytest.mark.slow
def test_full_disk_is_reported_and_old_results_stay(scans, done, model):
    """A limit on the file size stands for a full disk."""
    before = (model / "merged.ply").read_bytes()
    limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) // 2,) * 2)  # noqa: E731
    full = subprocess.run(command(scans, "-o", model), capture_output=True, text=True, preexec_fn=limit)
    assert full.returncode == 2, full.stderr
    assert "merged.ply: cannot be written" in full.stderr
    assert "Traceback" not in full.stderr
    assert (model / "merged.ply").read_bytes() == before
    assert not list(model.glob(".wsdesc-*"))


@pytest.mark.slow
def test_second_run_in_the_same_folder_is_refused(scans, model):
    with locked(model):
        shown = reconstruct(scans, "-o", model)
    assert shown.exit_code == 2
    assert "uses this folder" in shown.output


@pytest.mark.slow
def test_missing_scheduler_is_reported(scans, tmp_path):
    pytest.importorskip("distributed")
    shown = reconstruct(scans, "-o", tmp_path, "--scheduler", "tcp://127.0.0.1:9")
    assert shown.exit_code == 2
    assert "no Dask scheduler answers at tcp://127.0.0.1:9" in shown.output
