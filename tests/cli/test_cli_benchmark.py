"""The benchmark commands: help, runs, errors."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from wsdesc.cli.app import app
from wsdesc.cli.benchmark_options import shown_command
from wsdesc.cloud.files import write_points
from wsdesc.datasets.threedmatch import LogEntry, write_log

COMMANDS = ["3dmatch", "modelnet40", "eth", "pairs", "timing"]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Write three shifted copies of one cloud, and their ground truth."""
    folder = tmp_path / "data" / "room"
    folder.mkdir(parents=True)
    cloud = np.random.default_rng(0).uniform(-1, 1, (400, 3))
    for k in range(3):
        write_points(folder / f"cloud_bin_{k}.ply", cloud + np.array([k, 0, 0]))
    pairs = [(0, 1), (0, 2), (1, 2)]
    truths = {pair: np.eye(4) for pair in pairs}
    for (i, j), T_i_j in truths.items():
        T_i_j[0, 3] = i - j
    (tmp_path / "data" / "room-evaluation").mkdir()
    log = tmp_path / "data" / "room-evaluation" / "gt.log"
    write_log(log, [LogEntry(i, j, 3, T) for (i, j), T in truths.items()])
    return tmp_path / "data"


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["benchmark", *map(str, arguments)])


@pytest.mark.parametrize("command", COMMANDS)
def test_help_begins_with_examples(command: str) -> None:
    shown = run(command, "--help").output
    assert shown.startswith(f"Examples:\n  wsdesc benchmark {command} ")


def test_help_does_not_import_torch() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "wsdesc", "benchmark", "--help"], capture_output=True, text=True
    )
    assert done.stdout.startswith("Examples:\n  wsdesc benchmark 3dmatch")
    assert all(command in done.stdout for command in COMMANDS)
    probe = (
        "import sys, wsdesc.cli.benchmark; sys.exit('torch' in sys.modules or 'matplotlib' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", probe]).returncode == 0


@pytest.mark.slow
def test_run_continues_and_refuses_other_settings(data: Path, tmp_path: Path) -> None:
    arguments = ["pairs", data, "--model", "mine=untrained-fast", "--out", tmp_path / "results"]
    arguments += ["--keypoints", "60,30", "--unit", "1", "--voxel", "0", "--device", "cpu"]
    first = run(*arguments)
    assert first.exit_code == 0, first.output
    assert "n = 3 pairs" in first.output
    records = tmp_path / "results" / "pairs-data" / "mine.jsonl"
    before = records.read_bytes()
    assert before.count(b"\n") == 1 + 3 * 2
    second = run(*arguments)
    assert second.stdout == first.stdout  # stderr may report compiled kernels
    assert records.read_bytes() == before
    other = run(*arguments, "--rotated", "--seed", "1")
    assert other.exit_code == 0
    clash = run(*arguments, "--seed", "1")
    assert clash.exit_code == 2
    assert "seed 0, this run has 1" in clash.output
    assert run(*arguments, "--seed", "1", "--fresh").exit_code == 0


@pytest.mark.slow
def test_missing_peer_is_skipped(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "open3d", None)
    arguments = ["pairs", data, "--peer", "icp", "--peer", "shot", "--out", tmp_path, "--unit", "1"]
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    assert "icp is skipped: Open3D" in result.stderr
    assert "Type: pip install" in result.stderr
    assert (tmp_path / "pairs-data" / "shot.jsonl").is_file()
    assert not (tmp_path / "pairs-data" / "icp.jsonl").exists()


@pytest.mark.parametrize("folder", [None, "empty"])
def test_peers_without_weights_are_skipped(data: Path, tmp_path: Path, folder: str | None) -> None:
    (tmp_path / "empty").mkdir()
    weights = ["--peer-weights", tmp_path / folder] if folder else []
    arguments = ["pairs", data, "--peer", "spinnet", "--peer", "shot", "--out", tmp_path, "--unit", "1"]
    result = run(*arguments, *weights)
    assert result.exit_code == 0, result.output
    assert "spinnet is skipped: " in result.stderr
    assert "spinnet-3dmatch.safetensors" in result.stderr
    assert "github QingyongHu/SpinNet" in result.stderr
    assert (tmp_path / "pairs-data" / "shot.jsonl").is_file()


def test_errors_are_one_line(data: Path, tmp_path: Path) -> None:
    model = ("--model", "untrained-fast", "--out", tmp_path / "r")
    (tmp_path / "empty").mkdir()
    broken = data.parent / "broken"
    (broken / "s").mkdir(parents=True)
    write_points(broken / "s" / "cloud_bin_0.ply", np.zeros((3, 3)) + np.arange(3)[:, None])
    for arguments, message in (
        (("3dmatch", tmp_path / "empty", *model), "no scene found"),
        (("3dmatch", broken, *model), "no ground truth"),
        (("eth", tmp_path / "empty", *model), "no scene found"),
        (("modelnet40", tmp_path / "empty", *model), "ply_data_test"),
        (("3dmatch", data), "--model, --register or --peer"),
        (("3dmatch", data, "--peer", "nobody"), "unknown peer 'nobody'"),
        (("3dmatch", data, *model, "--keypoints", "5,x"), "separated by commas"),
        (("3dmatch", data, *model, "--keypoints", "0"), "from 1 on"),
        (("3dmatch", data, *model, "--solver", "magic"), "solver"),
        (("pairs", tmp_path / "nowhere", *model), "no such file or folder"),
        (("pairs", tmp_path / "empty", *model), "no scene found"),
    ):
        result = run(*arguments)
        assert result.exit_code == 2, (arguments, result.output)
        (line,) = result.output.splitlines()
        assert line.startswith("error: ")
        assert message in line


def test_malformed_log_names_its_line(data: Path, tmp_path: Path) -> None:
    log = data / "room-evaluation" / "gt.log"
    log.write_text(log.read_text().replace("0\t 2\t 3", "0 two 3"))
    result = run("3dmatch", data, "--model", "untrained-fast", "--out", tmp_path / "r")
    assert result.exit_code == 2
    assert "gt.log, line 6:" in result.output


def test_shown_command_has_short_paths(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    weights = tmp_path / "w.safetensors"
    weights.write_bytes(b"")
    words = ["x", "benchmark", "pairs", str(data), "--model", str(weights), "--model", f"my name={weights}"]
    monkeypatch.setattr(sys, "argv", [*words, "--keypoints", "60,30", "--out", str(tmp_path / "new")])
    shown = shown_command()
    assert shown == ("wsdesc benchmark pairs data/ --model w --model 'my name=w' --keypoints 60,30 --out new")


def test_unknown_weights_are_reported_before_torch_is_imported(data: Path) -> None:
    code = """
import sys
from pathlib import Path
from wsdesc import WSDescError
from wsdesc.cli.benchmark_options import check_arguments
try:
    check_arguments(Path(sys.argv[1]), ["a=nowhere"], None, "cpu")
except WSDescError as error:
    sys.exit("nowhere" not in str(error) or "torch" in sys.modules)
sys.exit(2)
"""
    assert subprocess.run([sys.executable, "-c", code, str(data)]).returncode == 0
