"""ModelNet40's protocols, and times, on small data made by code."""

from __future__ import annotations

import json
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from torch import Tensor

from wsdesc.core.errors import InputError
from wsdesc.evaluation.methods import Method
from wsdesc.evaluation.modelnet40 import PROTOCOLS, ShapeOptions, judge_shapes, make_pair, run_modelnet40
from wsdesc.evaluation.timing import TimingOptions, nearest_to, run_timing, with_far_points


@pytest.fixture
def shapes(tmp_path: Path) -> Path:
    """Six clouds of 2 048 points, of categories 3, 19, 20, 20, 39, 5."""
    folder = tmp_path / "modelnet"
    folder.mkdir()
    rng = np.random.default_rng(0)
    with h5py.File(folder / "ply_data_test0.h5", "w") as file:
        file["data"] = rng.uniform(-0.6, 0.6, (6, 2048, 3)).astype(np.float32)
        file["label"] = np.array([[3], [19], [20], [20], [39], [5]], dtype=np.uint8)
    return folder


def distances(points: Tensor, keypoints: Tensor, unit: float) -> Tensor:
    return torch.cdist(keypoints.double(), points.double()).sort(1).values[:, 1:9]


class TestModelNet40:
    right = Method("right", describer=distances)

    def test_same_samples_are_registered_exactly(self, shapes: Path, tmp_path: Path) -> None:
        options = ShapeOptions(protocols=("prnet-clean",), limit=4)
        report = run_modelnet40(shapes, [self.right], options, tmp_path / "out")
        assert report.samples.startswith("n = 4 of 6")
        everything, unseen = report.tables
        assert everything.rows[0][0] == "right"
        assert float(everything.rows[0][1]) < 0.05  # degrees
        assert everything.rows[0][-2] == "4 of 4"
        assert everything.header[-1].startswith("published")
        assert "published" not in unseen.header[-1]
        assert all((tmp_path / "out" / "modelnet40" / plot.file).is_file() for plot in report.plots)

    def test_unseen_are_the_last_twenty_categories(self, shapes: Path, tmp_path: Path) -> None:
        none = Method("none", estimator=lambda source, target, unit: None)
        report = run_modelnet40(shapes, [none], ShapeOptions(protocols=("rpm-45",)), tmp_path / "out")
        assert [table.title[-7:] for table in report.tables] == ["(n = 6)", "(n = 3)"]

    def test_not_found_counts_as_the_identity(self, shapes: Path, tmp_path: Path) -> None:
        none = Method("none", estimator=lambda source, target, unit: None)
        run_modelnet40(shapes, [none], ShapeOptions(protocols=("rpm-180",), limit=2), tmp_path / "out")
        lines = (tmp_path / "out" / "modelnet40" / "none.jsonl").read_text().splitlines()
        for record in map(json.loads, lines[1:]):
            assert record["found"] is False
            truth = np.array(record["T_true"])
            angle = np.degrees(np.arccos((np.trace(truth[:3, :3]) - 1) / 2))
            assert record["rotation_error"] == pytest.approx(angle)
            assert record["translation_error"] == pytest.approx(np.linalg.norm(truth[:3, 3]))

    def test_a_larger_limit_goes_on(self, shapes: Path, tmp_path: Path) -> None:
        asked = []

        def estimate(source: Tensor, target: Tensor, unit: float) -> None:
            asked.append(source)

        method = Method("m", estimator=estimate)
        for limit, new in ((2, 2), (5, 3), (3, 0)):
            before = len(asked)
            options = ShapeOptions(protocols=("prnet-noisy",), limit=limit)
            report = run_modelnet40(shapes, [method], options, tmp_path / "out")
            assert len(asked) - before == new
            assert f"(n = {limit})" in report.tables[0].title
        with pytest.raises(InputError, match="seed 0, now asked for is 1"):
            run_modelnet40(shapes, [method], ShapeOptions(seed=1), tmp_path / "out")

    def test_pairs_are_those_of_their_protocols(self) -> None:
        shape = np.random.default_rng(1).uniform(-1, 1, (2048, 3)).astype(np.float32)
        for protocol in PROTOCOLS:
            first, second = (make_pair(shape, protocol, 7, 0) for _ in range(2))
            np.testing.assert_array_equal(first.source, second.source)
            T = first.T_target_source
            moved = first.source @ T[:3, :3].T + T[:3, 3]
            nearest = torch.cdist(torch.from_numpy(moved).double(), torch.from_numpy(first.target).double())
            exact = float((nearest.min(1).values < 1e-5).double().mean())
            assert len(first.source) == (768 if protocol.startswith("prnet") else 717)
            assert (exact > 0.4) is (protocol == "prnet-clean")

    def test_nan_fails_the_pair(self) -> None:
        shape = np.random.default_rng(1).uniform(-1, 1, (2048, 3)).astype(np.float32)
        nan = Method("nan", lambda points, keys, unit: keys * torch.nan)
        record = judge_shapes(nan, make_pair(shape, "rpm-45", 0, 0), ShapeOptions(), "shape 0")
        assert record["failure"] == "shape 0: 1434 descriptors are not finite"
        assert record["found"] is False

    def test_an_unknown_protocol(self, shapes: Path, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="unknown protocol 'prnet'"):
            run_modelnet40(shapes, [self.right], ShapeOptions(protocols=("prnet",)), tmp_path)


class TestTiming:
    def test_tables_and_growth(self, scene_root: Path, tmp_path: Path) -> None:
        from wsdesc.evaluation.methods import load_methods

        methods = [*load_methods(["untrained-fast"], []), Method("FPFH", describer=distances)]
        asked = []
        methods.append(Method("poses", estimator=lambda p, q, unit: asked.append((len(p), len(q)))))
        options = TimingOptions(
            pairs=2, keypoints=20, repeats=1, sizes=(200, 1000), counts=(10, 20), probes=10
        )
        report = run_timing(scene_root, methods, options, tmp_path / "out")
        descriptor, pair, points, keypoints = report.tables
        ours, peer = descriptor.rows[:2]
        assert ours[:3] == ["untrained-fast", "cpu", "32"]
        assert float(ours[5]) == pytest.approx(float(ours[3]) + float(ours[4]), rel=0.02)
        assert peer[:5] == ["FPFH", "cpu", "8", "–", "–"]
        assert len(descriptor.rows) == 2 + 4  # the paper's own stands beside ours
        assert [row[0] for row in pair.rows[:3]] == ["untrained-fast", "FPFH", "poses"]
        assert pair.rows[2][1:5] == ["cpu", "–", "–", "–"]
        assert asked == [(300, 300)] * 4  # whole fragments; each pair once to warm up, once to time
        parts = 2 * 20 * float(ours[5]) + float(pair.rows[0][3]) + float(pair.rows[0][4])
        assert float(pair.rows[0][5]) == pytest.approx(parts, rel=0.02)
        assert [row[2] for row in points.rows] == ["200", "1000"]
        assert [row[2] for row in keypoints.rows] == ["10", "20"]
        records = json.loads((tmp_path / "out" / "timing" / "timing.json").read_text())
        assert sum(record["what"] == "pair" for record in records) == 3 * 2
        assert {"points.png", "keypoints.png"} == {plot.file for plot in report.plots}

    def test_added_points_are_far_from_all_of_the_cloud(self) -> None:
        cloud = torch.randn(50, 3, generator=torch.Generator().manual_seed(0))
        many = with_far_points(cloud, 1234, seed=0)
        assert many.shape == (1234, 3)
        assert torch.equal(many[:50], cloud)
        extent = (cloud.amax(0) - cloud.amin(0)).max()
        assert torch.cdist(many[50:], cloud).min() > 5 * extent
        assert len(torch.unique(many, dim=0)) == 1234

    def test_nearest_to(self) -> None:
        points = torch.tensor([[3.0, 0, 0], [1, 0, 0], [2, 0, 0]])
        assert nearest_to(points, torch.zeros(3), 2)[:, 0].tolist() == [1, 2]
