"""The page of benchmarks is built from folders of results."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from benchmarks.report.page import make_section, write_page
from benchmarks.report.plots import Plot
from PIL import Image

from wsdesc.core.errors import FileFormatError, InputError
from wsdesc.evaluation.methods import Method
from wsdesc.evaluation.options import PairwiseOptions, ShapeOptions
from wsdesc.evaluation.own_pairs import run_pairs
from wsdesc.evaluation.provenance import Run
from wsdesc.evaluation.results import BenchmarkResults, EvaluatedMethod
from wsdesc.evaluation.threedmatch import run_threedmatch

OPTIONS = PairwiseOptions(keypoints=(200, 100), voxel=0)


def test_page_has_a_section_for_each_benchmark(
    scene_root: Path, exact_method: Method, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    for rotated in (True, False):
        options = OPTIONS.model_copy(update={"rotated": rotated})
        run_threedmatch(scene_root, [exact_method], options, out, command=f"wsdesc --rotated={rotated}")
    (out / "notes.md").write_text("About all.\n")
    (out / "3dmatch" / "notes.md").write_text("About this one.\n")
    page = tmp_path / "docs" / "benchmarks.md"
    sections = write_page([out], page)
    assert [section.name for section in sections] == ["3dmatch", "3dmatch-rotated"]
    text = page.read_text()
    order = ["About all.", "rotated=False", "About this one.", "rotated=True"]
    assert sorted(order, key=text.index) == order
    (run,) = sections[0].runs
    assert run.command == "wsdesc --rotated=False"
    assert f"{run.machine}; {run.date}" in text
    assert "n = 6 pairs" in text
    assert "*WSDesc, paper*" in text
    images = [line.split("(")[1].rstrip(")") for line in text.splitlines() if line.startswith("![")]
    assert "benchmarks/3dmatch-rotated-keypoints_r1.png" in images
    for image in images:
        with Image.open(page.parent / image) as picture:
            assert picture.size > (400, 300)
            assert len(picture.convert("RGB").getcolors(1 << 20) or []) > 10  # not empty
    assert "ETH was not available" in text
    assert "3DMatch was not run" not in text


def test_several_folders_of_results_share_a_page(
    scene_root: Path, exact_method: Method, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Plot, "draw", lambda plot, path: path.write_bytes(b""))
    for name in ("cpu", "gpu"):
        run_pairs(scene_root, [exact_method], OPTIONS, tmp_path / name, command=name)
    sections = write_page([tmp_path / "cpu", tmp_path / "gpu"], tmp_path / "page.md")
    assert [section.name for section in sections] == ["pairs-data"] * 2
    assert (tmp_path / "page" / "pairs-data-fmr.png").is_file()
    assert (tmp_path / "page" / "gpu-pairs-data-fmr.png").is_file()
    assert "published" not in sections[0].tables[0].header[-1]


def test_ablations_have_their_own_table(scene_root: Path, exact_method: Method, tmp_path: Path) -> None:
    rows = [replace(exact_method, name=name) for name in ("full", "w/o w")]
    section = make_section(run_threedmatch(scene_root, rows, OPTIONS, tmp_path))
    assert section.title == "Ablations, 3DMatch"
    assert section.tables[0].title == "Ablations (%); Table 5 of the paper"
    assert not any(", paper" in row[0] for table in section.tables for row in table.rows)


def make_results(benchmark: str, options: dict, records: dict, **selection: list) -> BenchmarkResults:
    methods = [EvaluatedMethod(name, "model", f"{name}.jsonl") for name in records]
    runs = [Run("wsdesc", "machine", "2026-01-01")]
    return BenchmarkResults(
        benchmark, benchmark, benchmark, "n = 2", [], options, methods, runs, [], selection, records
    )


def test_geotransformer_stands_beside_the_categories_it_was_published_for() -> None:
    T = np.eye(4).tolist()
    record = {"protocol": "rpm-180", "label": 25, "found": True, "T_target_source": T, "T_true": T}
    record |= {"rotation_error": 0.5, "translation_error": 0.0, "failure": None}
    options = ShapeOptions().model_dump(mode="json")
    section = make_section(make_results("modelnet40", options, {"m": [record]}, protocol=["rpm-180"]))
    rows = [[row[0] for row in table.rows] for table in section.tables[:3]]
    assert rows == [["m"], ["m", "*GeoTransformer, paper, w/ GT*"], ["m"]]


def test_shapes_stand_beside_published_figures() -> None:
    T = [[1.0, 0, 0, 0.1], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]
    record = {"protocol": "prnet-clean", "label": 25, "found": True, "T_target_source": T, "T_true": T}
    record |= {"rotation_error": 0.0, "translation_error": 0.0, "failure": None}
    options = ShapeOptions().model_dump(mode="json")
    section = make_section(make_results("modelnet40", options, {"m": [record]}, protocol=["prnet-clean"]))
    everything, unseen, _ = section.tables
    assert everything.title.endswith("(n = 1); Table 6 of the paper")
    assert everything.rows[0][-1] == "1.187 / 0.992 / 0.008 / 0.999"
    assert "published" not in unseen.header[-1]
    assert [plot.file for plot in section.plots] == [
        "prnet-clean_rotation_error.png",
        "prnet-clean_translation_error.png",
    ]


def test_times_stand_beside_published_ones() -> None:
    key = {"method": "m", "device": "cpu"}
    times = {"preparation": 0.5, "inference": 1.0}
    records = [
        {"what": "scan", **key, "dimension": 32, **times},
        {"what": "pair", **key, "dimension": 32, "query": 10.0, "ransac": 5.0},
        {"what": "points", **key, "points": 100, "keypoints": 9, "sorting": 1, "frames": 1, "inference": 1},
        {"what": "keypoints", **key, "points": 100, "keypoints": 9, **times},
    ]
    section = make_section(make_results("timing", {"keypoints": 100}, {"m": records}))
    descriptor, pair, points, keypoints = section.tables
    assert descriptor.rows[0] == ["m", "cpu", "32", "0.5", "1", "1.5", "0.37 / 3.00"]
    assert len(descriptor.rows) == 1 + 4
    assert pair.rows[0] == ["m", "cpu", "32", "10", "5", "315", "979.08 / 2.84"]
    assert len(points.rows) == len(keypoints.rows) == 1
    assert {plot.file for plot in section.plots} == {"points.png", "keypoints.png"}


def test_folder_without_results_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no results\.json found"):
        write_page([tmp_path], tmp_path / "page.md")
    with pytest.raises(FileFormatError, match="no such folder"):
        write_page([tmp_path / "nowhere"], tmp_path / "page.md")
    (tmp_path / "results.json").write_text("{}")
    with pytest.raises(FileFormatError, match="not the results of a benchmark"):
        write_page([tmp_path], tmp_path / "page.md")


def test_empty_plots_are_drawn(tmp_path: Path) -> None:
    for file, curves in (("a.png", {"m": ([], [])}), ("b.png", {"m": ([0.0, 0.0], [0.5, 1.0])})):
        Plot(file, "errors", "t", curves, "error").draw(tmp_path / file)
    Plot("c.png", "keypoints", "t", {}).draw(tmp_path / "c.png")
    assert all((tmp_path / name).stat().st_size > 1000 for name in ("a.png", "b.png", "c.png"))


@pytest.mark.slow
def test_command_reports_missing_results_in_one_line(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.report", str(tmp_path), "--out", str(tmp_path / "page.md")]
    root = Path(__file__).parents[2]
    done = subprocess.run(command, capture_output=True, text=True, cwd=root)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert len(done.stderr.splitlines()) == 1
