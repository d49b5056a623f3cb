"""From records to figures and tables; the numbers are worked out by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from wsdesc.core.errors import InputError
from wsdesc.evaluation import published
from wsdesc.evaluation.ablation import ablation_table, are_ablations, order_remark
from wsdesc.evaluation.euler import euler_errors
from wsdesc.evaluation.pair_report import indoor_table
from wsdesc.evaluation.report import Table
from wsdesc.evaluation.summary import error_distribution, mean_curve, over_scenes, scene_figures
from wsdesc.evaluation.tables import keypoint_table, scene_table


def record(
    scene: str, ratio: float | None, r1: bool | None, r2: bool, keypoints: int = 5000
) -> dict[str, Any]:
    return {
        "scene": scene,
        "keypoints": keypoints,
        "inlier_ratio": ratio,
        "matches": None if ratio is None else 100,
        "dimension": None if ratio is None else 32,
        "r1": r1,
        "r2": r2,
        "failure": None,
    }


RECORDS = [
    record("a", 0.04, None, True),
    record("a", 0.10, True, True),
    record("a", 0.30, False, True),
    record("a", 0.40, True, False),
    record("b", 0.50, True, True),
    record("b", 0.06, True, True),
]


class TestSummary:
    def test_each_scene(self) -> None:
        a, b = scene_figures(RECORDS)
        assert (a.scene, a.pairs, a.inlier_ratio) == ("a", 4, pytest.approx(0.21))
        assert (a.recall_005, a.recall_02) == (0.75, 0.5)
        assert (a.r1, a.r1_pairs, a.r2) == (pytest.approx(2 / 3), 3, 0.75)
        assert (b.recall_005, b.recall_02, b.r1, b.r2) == (1, 0.5, 1, 1)

    def test_mean_over_scenes_not_over_pairs(self) -> None:
        spread = over_scenes([0.75, 1.0])
        assert spread is not None
        assert spread.percent() == "87.5 ± 17.7"  # |difference| / √2
        single = over_scenes([0.75, None])
        assert single is not None
        assert single.percent() == "75.0"
        assert over_scenes([None]) is None

    def test_curve_is_the_mean_of_the_scenes(self) -> None:
        curve = mean_curve(RECORDS)
        assert curve is not None
        at = curve.tau2.tolist().index(pytest.approx(0.05))
        assert curve.recall[at] == (0.75 + 1) / 2
        assert mean_curve([record("a", None, True, True)]) is None

    def test_distribution_counts_what_was_not_found(self) -> None:
        assert error_distribution([3.0, None, 1.0, None]) == ([1.0, 3.0], [0.25, 0.5])
        assert error_distribution([None]) == ([], [])


class TestTables:
    def test_table_1(self) -> None:
        table = indoor_table({"mine": RECORDS, "fpfh": RECORDS}, rotated=False, models=["mine"])
        assert table.header[-3:-1] == ["RR by R1", "RR by R2"]
        mine, fpfh = table.rows[:2]
        assert mine[:2] == ["mine", "32"]
        assert mine[-1] == "42.3 / 95.1 / 77.7 / 80.0"
        assert mine[4] == "50.0 ± 0.0"
        assert fpfh[-1] == "9.3 / 59.6 / 10.1 / 54.8"
        names = [row[0] for row in table.rows]
        assert "WSDesc, paper" not in names
        assert "FPFH, paper" not in names
        assert ["FCGF, paper, w/ GT", "32", *["–"] * 5, "– / 95.2 / 67.4 / 82.0"] in table.rows
        assert [row[0] for row in table.without_paper().rows] == ["mine", "fpfh"]

    def test_table_2(self) -> None:
        table = indoor_table({"mine": RECORDS}, rotated=True, models=["mine"])
        assert table.rows[0][-1] == "39.8 / – / 74.3 / 78.5"

    def test_poses_alone_have_no_inlier_ratio(self) -> None:
        poses = [record("a", None, True, True), record("a", None, False, True)]
        table = indoor_table({"icp": poses}, rotated=False, models=[])
        assert table.rows[0] == ["icp", "–", "–", "–", "–", "50.0", "100.0", "–"]
        assert scene_table({"icp": poses}).rows[0][3:7] == ["–"] * 4

    def test_ablations_go_by_their_names(self) -> None:
        assert not are_ablations(["mine", "full", "w/o everything"])
        assert are_ablations(["mine", "w/o LRF"])
        table = ablation_table({"full": RECORDS, "w/o LRF": RECORDS, "mine": RECORDS, "oracle": RECORDS})
        assert [row[0] for row in table.rows] == ["full", "w/o LRF", "oracle"]
        published = [row[-1] for row in table.rows]
        assert published == ["42.3 / 77.7 / 80.0", "21.6 / 39.5 / 50.8", "54.3 / 88.2 / 81.4"]
        assert table.rows[0][1:4] == ["24.5", "50.0", "83.3"]  # means of the two scenes

    def test_the_order_of_ablations(self) -> None:
        def rows(**ratios: float) -> dict[str, list[dict[str, Any]]]:
            names = {"full": "full", "lls": "w/o LLS", "w": "w/o w", "lrf": "w/o LRF"}
            return {names[key]: [record("a", ratio, True, True)] for key, ratio in ratios.items()}

        assert order_remark(rows(full=0.4, lls=0.3, w=0.1)) is None  # too few to tell
        same = order_remark(rows(w=0.1, full=0.4, lrf=0.2, lls=0.3))
        assert same is not None
        assert "Here: full, w/o LLS, w/o LRF, w/o w. Published: full, w/o LLS, w/o LRF, w/o w." in same
        assert "4 rows: 1.00" in same
        other = order_remark(rows(w=0.4, full=0.1, lrf=0.3, lls=0.2))
        assert other is not None
        assert "4 rows: -1.00" in other

    def test_numbers_of_keypoints(self) -> None:
        assert keypoint_table({"mine": RECORDS}) is None
        fewer = [record("a", 0.1, True, False, keypoints=250)]
        table = keypoint_table({"mine": [*RECORDS, *fewer]})
        assert table is not None
        assert [row[1] for row in table.rows] == ["5000", "250"]
        assert table.rows[1][-1] == "0.0"
        main = indoor_table({"mine": [*RECORDS, *fewer]}, rotated=False, models=[])
        assert main.rows[0][-2] == "87.5 ± 17.7"  # of the most keypoints alone

    def test_markdown_lines_up(self) -> None:
        lines = Table("t", ["a", "long name"], [["x", "1"], ["yyy", "22"]]).markdown().splitlines()
        assert len({len(line) for line in lines[2:]}) == 1

    def test_rows_of_the_paper_are_whole(self) -> None:
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


class TestEuler:
    def pose(self, angles: tuple[float, float, float], shift: tuple[float, float, float]) -> np.ndarray:
        """Rx Ry Rz of angles given as z, y, x."""
        T = np.eye(4)
        z, y, x = (Rotation.from_euler(axis, a, degrees=True) for axis, a in zip("zyx", angles, strict=True))
        T[:3, :3] = (x * y * z).as_matrix()
        T[:3, 3] = shift
        return T

    def test_closed_form(self) -> None:
        truth = np.stack([self.pose((10, 20, 30), (0, 0, 0)), self.pose((20, 40, 40), (1, 1, 1))])
        guess = np.stack([self.pose((13, 20, 30), (0, 0, 0)), self.pose((20, 40, 40), (1, 1, 1.6))])
        errors = euler_errors(guess, truth)
        assert errors.rotation_rmse == pytest.approx(np.sqrt(9 / 6))
        assert errors.rotation_mae == pytest.approx(0.5)
        # Of z alone 9 of 50 remain, y and x are exact.
        assert errors.rotation_r2 == pytest.approx(1 - 9 / 50 / 3)
        assert errors.translation_rmse == pytest.approx(np.sqrt(0.36 / 6))
        assert errors.translation_mae == pytest.approx(0.1)
        assert errors.translation_r2 == pytest.approx(1 - 0.36 / 0.5 / 3)

    def test_a_single_pair_has_no_r2(self) -> None:
        T = np.eye(4)[None]
        errors = euler_errors(T, T)
        assert errors.rotation_rmse == 0
        assert np.isnan(errors.rotation_r2)

    def test_refuses_other_shapes(self) -> None:
        with pytest.raises(InputError, match=r"\(B, 4, 4\)"):
            euler_errors(np.eye(4), np.eye(4))
