"""Tables of measured results, computed by hand."""

from __future__ import annotations

from benchmark_records import RECORDS, record
from wsdesc.evaluation.tables import Table, keypoint_table, main_table, scene_table


def test_main_table_shows_means_over_scenes() -> None:
    table = main_table("t", {"mine": RECORDS})
    assert table.rows == [
        ["mine", "32", "24.5 ± 4.9", "87.5 ± 17.7", "50.0 ± 0.0", "83.3 ± 23.6", "87.5 ± 17.7"]
    ]


def test_pose_estimators_have_no_inlier_ratio() -> None:
    poses = [record("a", None, True, True), record("a", None, False, True)]
    assert main_table("t", {"icp": poses}).rows[0] == ["icp", "–", "–", "–", "–", "50.0", "100.0"]
    assert scene_table({"icp": poses}).rows[0][3:7] == ["–"] * 4


def test_keypoint_table_has_a_row_per_count() -> None:
    assert keypoint_table({"mine": RECORDS}) is None
    fewer = [record("a", 0.1, True, False, keypoints=250)]
    table = keypoint_table({"mine": [*RECORDS, *fewer]})
    assert table is not None
    assert [row[1] for row in table.rows] == ["5000", "250"]
    assert table.rows[1][-1] == "0.0"
    assert main_table("t", {"mine": [*RECORDS, *fewer]}).rows[0][-1] == "87.5 ± 17.7"  # largest count only


def test_markdown_columns_are_aligned() -> None:
    lines = Table("t", ["a", "long name"], [["x", "1"], ["yyy", "22"]]).markdown().splitlines()
    assert len({len(line) for line in lines[2:]}) == 1
