"""The timing protocol measures all methods and devices."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from benchmark_scenes import sorted_distances
from wsdesc.evaluation.methods import Method, load_methods
from wsdesc.evaluation.options import TimingOptions
from wsdesc.evaluation.results import BenchmarkResults
from wsdesc.evaluation.timing import run_timing
from wsdesc.evaluation.timing_growth import nearest_to, with_far_points


@pytest.mark.slow
def test_tables_hold_all_methods_and_sizes(scene_root: Path, tmp_path: Path) -> None:
    methods = [*load_methods(["untrained-fast"], []), Method("FPFH", describer=sorted_distances)]
    calls = []
    methods.append(Method("poses", estimator=lambda p, q, unit: calls.append((len(p), len(q)))))
    options = TimingOptions(pairs=2, keypoints=20, repeats=1, sizes=(200, 1000), counts=(10, 20), probes=10)
    results = run_timing(scene_root, methods, options, tmp_path / "out")
    descriptor, pair, points, keypoints = results.tables
    ours, peer = descriptor.rows
    assert ours[:3] == ["untrained-fast", "cpu", "32"]
    assert float(ours[5]) == pytest.approx(float(ours[3]) + float(ours[4]), rel=0.02)
    assert peer[:5] == ["FPFH", "cpu", "8", "–", "–"]
    assert [row[0] for row in pair.rows] == ["untrained-fast", "FPFH", "poses"]
    assert pair.rows[2][1:5] == ["cpu", "–", "–", "–"]
    assert calls == [(300, 300)] * 4  # full scans; each pair once to warm up, once to time
    parts = 2 * 20 * float(ours[5]) + float(pair.rows[0][3]) + float(pair.rows[0][4])
    assert float(pair.rows[0][5]) == pytest.approx(parts, rel=0.02)
    assert [row[2] for row in points.rows] == ["200", "1000"]
    assert [row[2] for row in keypoints.rows] == ["10", "20"]
    records = [record for group in results.records.values() for record in group]
    assert sum(record["what"] == "pair" for record in records) == 3 * 2
    assert BenchmarkResults.load(tmp_path / "out" / "timing") == results


def test_added_points_are_far_from_the_cloud() -> None:
    cloud = torch.randn(50, 3, generator=torch.Generator().manual_seed(0))
    many = with_far_points(cloud, 1234, seed=0)
    assert many.shape == (1234, 3)
    assert torch.equal(many[:50], cloud)
    extent = (cloud.amax(0) - cloud.amin(0)).max()
    assert torch.cdist(many[50:], cloud).min() > 5 * extent
    assert len(torch.unique(many, dim=0)) == 1234


def test_nearest_to_returns_the_nearest_points() -> None:
    points = torch.tensor([[3.0, 0, 0], [1, 0, 0], [2, 0, 0]])
    assert nearest_to(points, torch.zeros(3), 2)[:, 0].tolist() == [1, 2]
