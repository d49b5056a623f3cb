"""The protocols of ModelNet40, on small synthetic shapes."""

from __future__ import annotations

import json
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from torch import Tensor

from benchmark_scenes import sorted_distances
from wsdesc.core.errors import InputError
from wsdesc.evaluation.methods import Method
from wsdesc.evaluation.modelnet40 import make_pair, run_modelnet40, score_shapes, surface_error
from wsdesc.evaluation.options import PROTOCOLS, ShapeOptions
from wsdesc.evaluation.results import BenchmarkResults
from wsdesc.evaluation.shape_tables import shape_tables


@pytest.fixture
def shapes(tmp_path: Path) -> Path:
    """Write six clouds of 2 048 points, of categories 3, 19, 20, 20, 39, 5."""
    folder = tmp_path / "modelnet"
    folder.mkdir()
    rng = np.random.default_rng(0)
    with h5py.File(folder / "ply_data_test0.h5", "w") as file:
        file["data"] = rng.uniform(-0.6, 0.6, (6, 2048, 3)).astype(np.float32)
        file["label"] = np.array([[3], [19], [20], [20], [39], [5]], dtype=np.uint8)
    return folder


EXACT = Method("exact", describer=sorted_distances)


def test_same_samples_are_registered_exactly(shapes: Path, tmp_path: Path) -> None:
    options = ShapeOptions(protocols=("prnet-clean",), limit=4)
    results = run_modelnet40(shapes, [EXACT], options, tmp_path / "out")
    assert results.samples.startswith("n = 4 of 6")
    everything, _ = results.tables
    assert everything.rows[0][0] == "exact"
    assert float(everything.rows[0][1]) < 0.05  # degrees
    assert everything.rows[0][-1] == "4 of 4"
    assert BenchmarkResults.load(tmp_path / "out" / "modelnet40") == results


def test_subsets_of_categories(shapes: Path, tmp_path: Path) -> None:
    none = Method("none", estimator=lambda source, target, unit: None)
    results = run_modelnet40(shapes, [none], ShapeOptions(protocols=("rpm-45",)), tmp_path / "out")
    assert [table.title.rsplit(", ", 1)[1] for table in results.tables] == [
        "all categories (n = 6)",
        "without axial categories (n = 4)",
        "unseen categories (n = 3)",
    ]


def test_missing_pose_counts_as_identity(shapes: Path, tmp_path: Path) -> None:
    none = Method("none", estimator=lambda source, target, unit: None)
    run_modelnet40(shapes, [none], ShapeOptions(protocols=("rpm-180",), limit=2), tmp_path / "out")
    lines = (tmp_path / "out" / "modelnet40" / "none.jsonl").read_text().splitlines()
    for record in map(json.loads, lines[1:]):
        assert record["found"] is False
        truth = np.array(record["T_true"])
        angle = np.degrees(np.arccos((np.trace(truth[:3, :3]) - 1) / 2))
        assert record["rotation_error"] == pytest.approx(angle)
        assert record["translation_error"] == pytest.approx(np.linalg.norm(truth[:3, 3]))


def test_runs_continue_with_another_limit(shapes: Path, tmp_path: Path) -> None:
    calls = []

    def estimate(source: Tensor, target: Tensor, unit: float) -> None:
        calls.append(source)

    method = Method("m", estimator=estimate)
    for limit, new in ((2, 2), (5, 3), (3, 0)):
        before = len(calls)
        options = ShapeOptions(protocols=("prnet-noisy",), limit=limit)
        results = run_modelnet40(shapes, [method], options, tmp_path / "out")
        assert len(calls) - before == new
        assert f"(n = {limit})" in results.tables[0].title
    with pytest.raises(InputError, match="seed 0, this run has 1"):
        run_modelnet40(shapes, [method], ShapeOptions(seed=1), tmp_path / "out")


def test_pairs_follow_their_protocol() -> None:
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


def test_nan_descriptors_fail_the_pair() -> None:
    shape = np.random.default_rng(1).uniform(-1, 1, (2048, 3)).astype(np.float32)
    nan = Method("nan", lambda points, keypoints, unit: keypoints * torch.nan)
    record = score_shapes(nan, make_pair(shape, "rpm-45", 0, 0), ShapeOptions(), "shape 0")
    assert record["failure"] == "shape 0: 1434 descriptors are not finite"
    assert record["found"] is False


def test_unknown_protocol_is_refused(shapes: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="unknown protocol 'prnet'"):
        run_modelnet40(shapes, [EXACT], ShapeOptions(protocols=("prnet",)), tmp_path)


def test_a_method_that_was_not_run_has_no_row() -> None:
    T = np.eye(4).tolist()
    record = {
        "protocol": "rpm-45",
        "label": 3,
        "found": True,
        "rotation_error": 1.0,
        "translation_error": 0.1,
    }
    record |= {"T_target_source": T, "T_true": T}
    tables = shape_tables({"run": [record], "other protocol": [record | {"protocol": "prnet-clean"}]})
    assert [[row[0] for row in table.rows] for table in tables] == [["run"], ["run"], ["other protocol"]]


def test_a_rotation_of_a_symmetric_shape_leaves_its_surface() -> None:
    square = np.stack(np.meshgrid(np.linspace(-1, 1, 9), np.linspace(-1, 1, 9)), -1).reshape(-1, 2)
    plate = np.c_[square, np.zeros(len(square))]
    T_true, quarter = np.eye(4), np.eye(4)
    T_true[:3, 3] = 1, 2, 3
    quarter[:2, :2] = [[0, -1], [1, 0]]
    eighth = np.eye(4)
    eighth[:2, :2] = np.array([[1, -1], [1, 1]]) / np.sqrt(2)

    def error(T: np.ndarray) -> float:
        return surface_error(plate, {"T_true": T_true.tolist(), "T_target_source": (T @ T_true).tolist()})

    assert error(np.eye(4)) == pytest.approx(0, abs=1e-9)
    assert error(quarter) == pytest.approx(0, abs=1e-9)
    assert error(eighth) > 0.05
