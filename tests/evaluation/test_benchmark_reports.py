"""What a benchmark leaves behind: records, tables, plots, the page, and the bar while it works."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from wsdesc.core.errors import FileFormatError, InputError
from wsdesc.evaluation.methods import Method
from wsdesc.evaluation.page import make_page
from wsdesc.evaluation.pairwise import PairwiseOptions
from wsdesc.evaluation.plots import Plot
from wsdesc.evaluation.progress import Bar, duration, seconds_left
from wsdesc.evaluation.report import Report
from wsdesc.evaluation.threedmatch import run_pairs, run_threedmatch


class TestReports:
    options = PairwiseOptions(keypoints=(200, 100), voxel=0)

    def test_everything_is_written(self, scene_root: Path, right: Method, tmp_path: Path) -> None:
        wrong = Method("wrong", estimator=lambda source, target, unit: None)
        out = tmp_path / "out"
        report = run_threedmatch(scene_root, [right, wrong], self.options, out, command="wsdesc …")
        folder = out / "3dmatch"
        files = {plot.file for plot in report.plots}
        assert files >= {"fmr.png", "keypoints_r1.png", "keypoints_r2.png", "rotation_error.png"}
        for file in files:
            with Image.open(folder / file) as image:
                assert image.size > (400, 300)
                assert len(image.convert("RGB").getcolors(1 << 20) or []) > 10  # something is drawn
        with (folder / "pairs.csv").open(encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        assert len(rows) == 6 * 2 + 6
        assert json.loads(rows[0]["T_i_j"])[3] == [0, 0, 0, 1]
        assert Report.load(folder / "report.json") == report
        assert "RR by R1" in (folder / "report.md").read_text()
        assert any("Not the published test set" in remark for remark in report.remarks)
        assert any("One scene alone" in remark for remark in report.remarks)

    def test_what_is_missing_is_said(self, scene_root: Path, counting: Any, tmp_path: Path) -> None:
        (scene_root / "room" / "cloud_bin_3.ply").unlink()
        bad = Method("bad", counting(nan_at=1))
        report = run_pairs(scene_root, [bad], self.options, tmp_path / "out")
        assert report.name == "pairs-data"
        text = "\n".join(report.remarks)
        assert "cloud_bin_3.ply); 3 pairs left out" in text
        assert "bad: 4 results count as failed; the first: room/cloud_bin_0: 1 of 200" in text
        assert "published" not in report.tables[0].header[-1]

    def test_page(self, scene_root: Path, right: Method, tmp_path: Path) -> None:
        out = tmp_path / "out"
        for rotated in (True, False):
            options = self.options.model_copy(update={"rotated": rotated})
            run_threedmatch(scene_root, [right], options, out, command=f"wsdesc --rotated={rotated}")
        (out / "notes.md").write_text("About all.\n")
        (out / "3dmatch" / "notes.md").write_text("About this one.\n")
        page = tmp_path / "docs" / "benchmarks.md"
        reports = make_page(out, page)
        assert [report.name for report in reports] == ["3dmatch", "3dmatch-rotated"]
        text = page.read_text()
        order = ["About all.", "rotated=False", "About this one.", "rotated=True"]
        assert sorted(order, key=text.index) == order
        (run,) = reports[0].runs
        assert run.command == "wsdesc --rotated=False"
        assert f"{run.machine}; {run.date}" in text
        assert "n = 6 pairs" in text
        for line in text.splitlines():
            if line.startswith("!["):
                assert (page.parent / line.split("(")[1].rstrip(")")).is_file()
        assert "ETH was not at hand" in text
        assert "3DMatch was not run" not in text

    def test_results_of_two_runs_name_both(self, scene_root: Path, right: Method, tmp_path: Path) -> None:
        other = Method("other", estimator=lambda source, target, unit: None)
        for methods, command, runs in (
            ([right], "first", ["first"]),
            ([right, other], "second", ["first", "second"]),
            ([right, other], "third", ["first", "second"]),  # nothing is new
        ):
            report = run_pairs(scene_root, methods, self.options, tmp_path, command=command)
            assert [run.command for run in report.runs] == runs
        assert report.markdown().index("first") < report.markdown().index("second")
        fresh = run_pairs(scene_root, [right], self.options, tmp_path, command="fourth", fresh=True)
        assert [run.command for run in fresh.runs] == ["fourth"]
        (tmp_path / "pairs-data" / "runs.json").write_text('[{"command": 1}]')
        with pytest.raises(FileFormatError, match="not a list of runs"):
            run_pairs(scene_root, [right], self.options, tmp_path)

    def test_ablations_are_a_report_of_their_own(
        self, scene_root: Path, right: Method, tmp_path: Path
    ) -> None:
        rows = [replace(right, name=name) for name in ("full", "w/o w")]
        report = run_threedmatch(scene_root, rows, self.options, tmp_path)
        assert (report.name, report.title) == ("ablation", "Ablations, 3DMatch")
        assert report.tables[0].title == "Ablations (%); Table 5 of the paper"
        assert Report.load(tmp_path / "ablation" / "report.json") == report
        assert not any(", paper" in row[0] for table in report.tables for row in table.rows)

    def test_page_without_results(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="no results"):
            make_page(tmp_path, tmp_path / "page.md")
        with pytest.raises(FileFormatError, match="no such folder"):
            make_page(tmp_path / "nowhere", tmp_path / "page.md")
        (tmp_path / "report.json").write_text("{}")
        with pytest.raises(FileFormatError, match="not the report"):
            make_page(tmp_path, tmp_path / "page.md")


def test_plots_of_nothing_do_not_fail(tmp_path: Path) -> None:
    for file, curves in (("a.png", {"m": ([], [])}), ("b.png", {"m": ([0.0, 0.0], [0.5, 1.0])})):
        Plot(file, "errors", "t", curves, "error").draw(tmp_path / file)
    Plot("c.png", "keypoints", "t", {}).draw(tmp_path / "c.png")
    assert all((tmp_path / name).stat().st_size > 1000 for name in ("a.png", "b.png", "c.png"))


def test_what_a_machine_without_matplotlib_measured_is_drawn_elsewhere(
    scene_root: Path, right: Method, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as there:
        for module in ("report", "page"):
            there.setattr(f"wsdesc.evaluation.{module}.can_draw", lambda: False)
        run_pairs(scene_root, [right], TestReports.options, tmp_path / "out")
        assert "![" not in (tmp_path / "out" / "pairs-data" / "report.md").read_text()
        with pytest.raises(InputError, match="matplotlib"):
            make_page(tmp_path / "out", tmp_path / "page.md")
    assert not list(tmp_path.rglob("*.png"))
    make_page(tmp_path / "out", tmp_path / "page.md")
    assert (tmp_path / "page" / "pairs-data-fmr.png").is_file()


class FakeBars:
    """What rich is told."""

    def __init__(self) -> None:
        self.tasks: dict[int, dict[str, Any]] = {}

    def add_task(self, what: str, total: int, left: str) -> int:
        self.tasks[len(self.tasks)] = {"what": what, "total": total, "done": 0, "left": left}
        return len(self.tasks) - 1

    def remove_task(self, task: int) -> None:
        self.tasks[task]["removed"] = True

    def update(self, task: int, advance: int, left: str) -> None:
        self.tasks[task]["done"] += advance
        self.tasks[task]["left"] = left


def test_the_bar_counts_all_kinds_and_tells_the_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("wsdesc.evaluation.progress.time.monotonic", lambda: now[0])
    bars = FakeBars()
    bar = Bar(bars)
    bar.expect("m: room", fragments=2, pairs=3)
    assert bars.tasks[0]["total"] == 5
    for kind, seconds, left in (
        ("fragments", 10, ""),
        ("pairs", 1, "12 s left"),
        ("fragments", 30, "2 s left"),
    ):
        now[0] += seconds
        bar.done(kind)
        assert bars.tasks[0]["left"] == left
    assert bars.tasks[0]["done"] == 3
    bar.expect("m: hall", pairs=0)
    assert bars.tasks[0]["removed"]
    assert bars.tasks[1]["total"] == 1  # rich knows no empty bars


def test_time_left_follows_the_kind_of_work() -> None:
    spent = {"fragments": (20.0, 2), "pairs": (1.0, 10)}
    assert seconds_left({"fragments": 3, "pairs": 100}, spent) == pytest.approx(40)
    assert seconds_left({"fragments": 0, "pairs": 5}, {"pairs": (1.0, 1)}) == 5
    assert seconds_left({"fragments": 3, "pairs": 5}, {"fragments": (1.0, 1)}) is None
    assert [duration(s) for s in (12, 600, 9000)] == ["12 s", "10 min", "2.5 h"]
