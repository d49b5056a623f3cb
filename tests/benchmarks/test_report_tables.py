"""Tables of the report: measured figures beside published ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from benchmarks.report import published
from benchmarks.report.ablation import ablation_table, are_ablations, order_note
from benchmarks.report.pairs import eth_table, indoor_table

from benchmark_records import RECORDS, record


def test_table_1() -> None:
    table = indoor_table({"mine": RECORDS, "fpfh": RECORDS}, rotated=False, models=["mine"])
    assert table.header[-3:-1] == ["RR by R1", "RR by R2"]
    mine, fpfh = table.rows[:2]
    assert mine[:2] == ["mine", "32"]
    assert mine[-1] == "42.3 / 95.1 / 77.7 / 80.0"
    assert mine[4] == "50.0 ± 0.0"
    assert fpfh[-1] == "9.3 / 59.6 / 10.1 / 54.8"
    names = [row[0] for row in table.rows]
    assert "*WSDesc, paper*" not in names
    assert "*FPFH, paper*" not in names
    assert ["*FCGF, paper, w/ GT*", "32", *["–"] * 5, "– / 95.2 / 67.4 / 82.0"] in table.rows


def test_table_2() -> None:
    table = indoor_table({"mine": RECORDS}, rotated=True, models=["mine"])
    assert table.rows[0][-1] == "39.8 / – / 74.3 / 78.5"


def test_table_8_has_the_scenes_in_the_order_of_the_paper() -> None:
    records = [record(scene, 0.5, None, True) for scene in ("wood_summer", "gazebo_winter", "elsewhere")]
    table = eth_table({"mine": records, "other": records}, ["mine"])
    assert table.header[1:5] == ["gazebo_winter", "wood_summer", "elsewhere", "mean"]
    assert table.rows[0][1:5] == ["100.0", "100.0", "100.0", "100.0 ± 0.0"]
    assert table.rows[0][-1] == "78.3 / 77.2 / 95.2 / 93.9 / 86.1"
    assert table.rows[1][-1] == "–"
    assert not any(row[0] == "*WSDesc, paper*" for row in table.rows)


def test_ablation_rows_are_found_by_name() -> None:
    assert not are_ablations(["mine", "full", "w/o everything"])
    assert are_ablations(["mine", "w/o LRF"])
    table = ablation_table({"full": RECORDS, "w/o LRF": RECORDS, "mine": RECORDS, "oracle": RECORDS})
    assert [row[0] for row in table.rows] == ["full", "w/o LRF", "oracle"]
    published = [row[-1] for row in table.rows]
    assert published == ["42.3 / 77.7 / 80.0", "21.6 / 39.5 / 50.8", "54.3 / 88.2 / 81.4"]
    assert table.rows[0][1:4] == ["24.5", "50.0", "83.3"]  # means of the two scenes


def test_order_of_ablations_is_compared_with_the_paper() -> None:
    def rows(**ratios: float) -> dict[str, list[dict[str, Any]]]:
        names = {"full": "full", "lls": "w/o LLS", "w": "w/o w", "lrf": "w/o LRF"}
        return {names[key]: [record("a", ratio, True, True)] for key, ratio in ratios.items()}

    assert order_note(rows(full=0.4, lls=0.3, w=0.1)) is None  # too few rows
    same = order_note(rows(w=0.1, full=0.4, lrf=0.2, lls=0.3))
    assert same is not None
    assert "Measured: full, w/o LLS, w/o LRF, w/o w. Published: full, w/o LLS, w/o LRF, w/o w." in same
    assert "4 rows: 1.00" in same
    other = order_note(rows(w=0.4, full=0.1, lrf=0.3, lls=0.2))
    assert other is not None
    assert "4 rows: -1.00" in other


def test_published_rows_are_complete() -> None:
    for rows, width in (
        (published.INDOOR, 7),
        (published.ROTATED, 7),
        (published.DESCRIPTOR_TIME, 4),
        (published.PAIR_TIME, 4),
        (published.ABLATION, 4),
        (published.SHAPES, 6),
        (published.NOISY_SHAPES, 6),
        (published.OUTDOOR, 7),
    ):
        assert {len(row) for row in rows} == {width}
        assert any(row[0] == published.OURS for row in rows)
        assert len({row[0] for row in rows}) == len(rows)
    for row in published.OUTDOOR:  # the last column is the mean of the four before
        assert float(row[6]) == pytest.approx(np.mean([float(x) for x in row[2:6]]), abs=0.11)
