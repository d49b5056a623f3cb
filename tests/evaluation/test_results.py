"""Results of a benchmark are saved as JSON, CSV and Markdown, and name the runs they come from."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from benchmark_scenes import CountingDescriber
from wsdesc.core.errors import FileFormatError
from wsdesc.evaluation.methods import Method
from wsdesc.evaluation.options import PairwiseOptions
from wsdesc.evaluation.own_pairs import run_pairs
from wsdesc.evaluation.results import BenchmarkResults
from wsdesc.evaluation.threedmatch import run_threedmatch

OPTIONS = PairwiseOptions(keypoints=(200, 100), voxel=0)
NO_POSE = Method("no pose", estimator=lambda source, target, unit: None)


def test_results_are_written_and_read_back(scene_root: Path, exact_method: Method, tmp_path: Path) -> None:
    results = run_threedmatch(scene_root, [exact_method, NO_POSE], OPTIONS, tmp_path, command="wsdesc …")
    folder = tmp_path / "3dmatch"
    assert BenchmarkResults.load(folder) == results
    with (folder / "pairs.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 6 * 2 + 6
    assert json.loads(rows[0]["T_i_j"])[3] == [0, 0, 0, 1]
    with (folder / "scenes.csv").open(encoding="utf-8") as file:
        assert [(row["method"], row["keypoints"]) for row in csv.DictReader(file)] == [
            ("exact", "200"),
            ("exact", "100"),
            ("no pose", "200"),
        ]
    text = (folder / "results.md").read_text()
    assert "RR by R1" in text
    assert "paper" not in text
    assert "Not the eight scenes of the published test set, but room." in results.notes
    assert "A single scene, room: no spread over scenes." in results.notes


def test_notes_name_missing_scans_and_failures(scene_root: Path, tmp_path: Path) -> None:
    (scene_root / "room" / "cloud_bin_3.ply").unlink()
    bad = Method("bad", CountingDescriber(nan_at=1))
    results = run_pairs(scene_root, [bad], OPTIONS, tmp_path / "out")
    assert results.name == "pairs-data"
    text = "\n".join(results.notes)
    assert "cloud_bin_3.ply); 3 pairs left out" in text
    assert "bad: 4 pairs failed; the first: room/cloud_bin_0: 1 of 200" in text


def test_results_name_all_their_runs(scene_root: Path, exact_method: Method, tmp_path: Path) -> None:
    for methods, command, runs in (
        ([exact_method], "first", ["first"]),
        ([exact_method, NO_POSE], "second", ["first", "second"]),
        ([exact_method, NO_POSE], "third", ["first", "second"]),  # adds no result
    ):
        results = run_pairs(scene_root, methods, OPTIONS, tmp_path, command=command)
        assert [run.command for run in results.runs] == runs
    fresh = run_pairs(scene_root, [exact_method], OPTIONS, tmp_path, command="fourth", fresh=True)
    assert [run.command for run in fresh.runs] == ["fourth"]
    (tmp_path / "pairs-data" / "runs.json").write_text('[{"command": 1}]')
    with pytest.raises(FileFormatError, match="not a list of runs"):
        run_pairs(scene_root, [exact_method], OPTIONS, tmp_path)


def test_damaged_results_are_refused(tmp_path: Path) -> None:
    for text in ("{}", "[", '{"methods": [{"name": 1}]}'):
        (tmp_path / "results.json").write_text(text)
        with pytest.raises(FileFormatError, match="not the results of a benchmark"):
            BenchmarkResults.load(tmp_path)
