"""Figures of scenes, and means over scenes, computed by hand."""

from __future__ import annotations

import pytest

from benchmark_records import RECORDS
from wsdesc.evaluation.summary import over_scenes, scene_figures


def test_figures_of_each_scene() -> None:
    a, b = scene_figures(RECORDS)
    assert (a.scene, a.pairs, a.inlier_ratio) == ("a", 4, pytest.approx(0.21))
    assert (a.recall_005, a.recall_02) == (0.75, 0.5)
    assert (a.r1, a.r1_pairs, a.r2) == (pytest.approx(2 / 3), 3, 0.75)
    assert (b.recall_005, b.recall_02, b.r1, b.r2) == (1, 0.5, 1, 1)


def test_mean_over_scenes_not_over_pairs() -> None:
    spread = over_scenes([0.75, 1.0])
    assert spread is not None
    assert spread.percent() == "87.5 ± 17.7"  # |difference| / √2
    single = over_scenes([0.75, None])
    assert single is not None
    assert single.percent() == "75.0"
    assert over_scenes([None]) is None
