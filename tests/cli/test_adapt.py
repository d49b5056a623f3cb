"""`wsdesc adapt`: its help, early errors and exit codes."""

from __future__ import annotations

import json
import logging
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from wsdesc import write_points
from wsdesc.adaptation import pipeline
from wsdesc.cli.app import app
from wsdesc.core.errors import WSDescError


def run(*arguments):
    return CliRunner().invoke(app, ["adapt", *map(str, arguments)])


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "scans"
    path.mkdir()
    for k in range(2):
        write_points(path / f"{k}.ply", [[k, 0, 0], [0, 1, 0], [0, 0, 1]])
    return path


def test_help_names_the_defaults():
    text = run("--help").output
    assert "wsdesc adapt scans/ -o mine" in text
    assert "--minutes" in text


def test_unknown_weights_and_folders_are_refused_at_once(folder, tmp_path):
    for arguments in ([folder, "--start", "nothing"], [tmp_path / "missing"], [folder, "--rounds", "0"]):
        result = run(*arguments, "-o", tmp_path / "out")
        assert result.exit_code == 2 or isinstance(result.exception, WSDescError)


@pytest.mark.parametrize("improved", [True, False])
def test_exit_code_says_whether_the_weights_are_better(folder, tmp_path, monkeypatch, improved):
    given = {}

    def adapt(scans, out, **options):
        given.update(options, scans=scans)
        summary = lambda: f"{out}: done"  # noqa: E731
        return SimpleNamespace(improved=improved, reason="", report=out / "report.md", summary=summary)

    monkeypatch.setattr(pipeline, "adapt", adapt)
    result = run(folder, "-o", tmp_path / "out", "--steps", 7, "--jobs", 2)
    assert result.exit_code == (0 if improved else 1)
    assert (given["steps"], given["jobs"]) == (7, 2)
    assert [path.name for path in given["scans"]] == ["0.ply", "1.ply"]
    assert "report.md" in result.output


def test_json_is_alone_on_the_standard_output(folder, tmp_path, monkeypatch):
    def adapt(scans, out, **options):
        logging.getLogger("wsdesc.adaptation").info("2 of 2 scans placed")
        return SimpleNamespace(improved=True, reason="", report=out / "report.md")

    monkeypatch.setattr(pipeline, "adapt", adapt)
    result = run(folder, "-o", tmp_path / "out", "--json")
    assert json.loads(result.stdout)["improved"]
    assert "scans placed" in result.stderr


def test_an_interrupted_run_says_how_to_continue(folder, tmp_path, monkeypatch):
    def adapt(scans, out, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(pipeline, "adapt", adapt)
    result = run(folder, "-o", tmp_path / "out")
    assert result.exit_code == 130
    assert result.stderr == "interrupted; the same command continues\n"


def test_an_error_leaves_no_folder(folder, tmp_path):
    result = run(folder / "0.ply", "-o", tmp_path / "out", "--device", "cpu")
    assert result.exit_code == 2
    assert not (tmp_path / "out").exists()
