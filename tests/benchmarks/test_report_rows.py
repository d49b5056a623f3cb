"""Rows of several folders share a table; origins and times of the rows are listed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from benchmarks.report.merge import common_keypoints, merge_results, with_measured_times
from benchmarks.report.page import make_section, write_page
from benchmarks.report.plots import Plot
from benchmarks.report.rows import ahead_note, median_seconds, origin, success_over_time

from benchmark_records import record
from wsdesc.core.errors import FileFormatError
from wsdesc.evaluation.methods import Method
from wsdesc.evaluation.options import PairwiseOptions
from wsdesc.evaluation.provenance import Run
from wsdesc.evaluation.results import BenchmarkResults, EvaluatedMethod
from wsdesc.evaluation.tables import main_table
from wsdesc.evaluation.threedmatch import run_threedmatch

GPU = "Some CPU, 16 cores, NVIDIA H200, bf16, Python 3.12, torch 2.11"
WEIGHTS = "spinnet-3dmatch.safetensors 0123 (SpinNet's weights, github, MIT)"


def results_of(name: str, kind: str, ratio: float, seconds: float, keypoints: int = 1000) -> BenchmarkResults:
    method = EvaluatedMethod(name, kind, f"{name}.jsonl", WEIGHTS if kind == "peer" else "", "cuda")  # type: ignore[arg-type]
    rows = [record("a", ratio, True, True, keypoints) | {"i": 0, "j": j, "seconds": seconds} for j in (2, 3)]
    rows = [row | {"rotation_error": 1.0, "translation_error": 0.1} for row in rows]
    options = PairwiseOptions().model_dump(mode="json")
    runs = [Run(f"wsdesc {name}", GPU, "2026-01-01")]
    selection = {"scene": ["a"], "keypoints": [keypoints]}
    return BenchmarkResults(
        "3dmatch", "3dmatch", "3DMatch", "n = 2", [], options, [method], runs, [], selection, {name: rows}
    )


def test_rows_of_two_folders_share_a_section() -> None:
    merged = merge_results([results_of("indoor", "model", 0.4, 0.1), results_of("spinnet", "peer", 0.5, 0.2)])
    section = make_section(merged)
    main, rows = section.tables[:2]
    assert [row[0] for row in main.rows[:2]] == ["indoor", "spinnet"]
    assert main.rows[1][-1] == "– / 97.6 / 85.7 / –"
    assert [row[-3:] for row in rows.rows] == [["2", "NVIDIA H200", "0.1"], ["2", "NVIDIA H200", "0.2"]]
    assert "with poses: 3DMatch; SpinNet's weights, github, MIT" in rows.rows[1][1]
    assert any("spinnet in IR (50 against 40)" in note for note in section.notes)
    assert section.plots[-1].file == "success_over_time.png"
    assert set(section.plots[-1].curves) == {"indoor, NVIDIA H200", "spinnet, NVIDIA H200"}
    assert len(section.runs) == 2


def test_times_of_the_timing_benchmark_replace_those_of_a_busy_machine() -> None:
    key = {"method": "indoor", "device": "cuda"}
    rows = [
        {"what": "scan", **key, "dimension": 32, "preparation": 0.5, "inference": 1.0},
        {"what": "pair", **key, "dimension": 32, "query": 10.0, "ransac": 5.0},
    ]
    results = results_of("indoor", "model", 0.4, 9.0)
    timing = replace(results, benchmark="timing", options={"keypoints": 1000}, records={"indoor": rows})
    assert median_seconds(with_measured_times(results, [timing]).records["indoor"]) == 3.015
    other = replace(timing, options={"keypoints": 500})
    assert with_measured_times(results, [other]).records == results.records


def test_tables_use_keypoint_counts_that_all_descriptors_have() -> None:
    many = [record("a", 0.6, True, True, 5000), record("a", 0.5, True, True, 1000)]
    few, pose = [record("a", 0.4, True, True, 1000)], [record("a", None, True, True, 5000)]
    common = common_keypoints({"many": many, "few": few, "pose": pose})
    assert common == {"many": many[1:], "few": few, "pose": pose}
    different = {"many": many[:1], "few": few}
    assert common_keypoints(different) == different


def test_no_own_rows_and_no_better_peers() -> None:
    better, worse = results_of("indoor", "model", 0.4, 0.1), results_of("spinnet", "peer", 0.3, 0.2)
    merged = merge_results([better, worse])
    table = main_table("t", merged.records)
    assert ahead_note(table, {"IR": 1}, merged) == "No peer beats the best of our rows in IR."
    assert ahead_note(table, {"IR": 1}, replace(merged, methods=worse.methods)) is None


def test_results_without_times_have_no_plot() -> None:
    results = results_of("indoor", "model", 0.4, 0.1)
    assert success_over_time("t", results) == []  # a single row
    assert median_seconds([record("a", 0.4, True, True)]) is None
    assert origin(EvaluatedMethod("fpfh", "peer", "fpfh.jsonl")) == "not trained"


def test_page_of_merged_folders(
    scene_root: Path, exact_method: Method, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Plot, "draw", lambda plot, path: path.write_bytes(b""))
    options = PairwiseOptions(keypoints=(100,), voxel=0)
    for name in ("a", "b"):
        run_threedmatch(scene_root, [replace(exact_method, name=name)], options, tmp_path / name)
    (section,) = write_page([tmp_path / "a", tmp_path / "b"], tmp_path / "page.md", "Title", merge=True)
    assert [row[0] for row in section.tables[1].rows] == ["a", "b"]
    assert (tmp_path / "page.md").read_text().startswith("# Title\n")


def test_single_pairs_have_a_section(tmp_path: Path) -> None:
    record = {"pair": "car", "reference": "known", "method": "spinnet", "inlier_ratio": 0.5, "r2": True}
    record |= {"rotation_error": 1.0, "translation_error": 0.1, "seconds": 2.0}
    run = {"command": "python", "machine": GPU, "date": "2026-01-01"}
    (tmp_path / "wild.json").write_text(json.dumps({"run": run, "records": [record]}))
    (section,) = write_page([tmp_path], tmp_path / "page.md", merge=True)
    assert section.tables[0].rows == [["car", "known", "spinnet", "50.0", "1.00", "0.10", "yes", "2.00"]]
    (tmp_path / "wild.json").write_text("[]")
    with pytest.raises(FileFormatError, match=r"wild\.json: not a file of"):
        write_page([tmp_path], tmp_path / "page.md")
