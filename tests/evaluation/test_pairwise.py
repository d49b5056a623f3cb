"""Scores of methods with known results on pairs of scans."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmark_scenes import CountingDescriber, random_pose
from wsdesc.cloud.files import read_points, write_points
from wsdesc.core.errors import FileFormatError, InputError
from wsdesc.evaluation.methods import Method, as_pose
from wsdesc.evaluation.options import PairwiseOptions
from wsdesc.evaluation.pairwise import evaluate_pairs
from wsdesc.evaluation.scans import load_scan
from wsdesc.evaluation.scenes import PairTruth, read_scenes
from wsdesc.evaluation.score import compare_with_truth
from wsdesc.evaluation.summary import scene_figures

EXACT = PairwiseOptions(keypoints=(200,), voxel=0)


def test_exact_descriptors_register_all_pairs(scene_root: Path, exact_method: Method, tmp_path: Path) -> None:
    scenes = read_scenes(scene_root)
    options = EXACT.model_copy(update={"keypoints": (300,)})
    (records,) = evaluate_pairs("3dmatch", scenes, [exact_method], options, tmp_path / "out").values()
    assert [(r["i"], r["j"]) for r in records] == [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]
    for record in records:
        assert record["matches"] == 300
        assert record["inlier_ratio"] == 1
        assert record["dimension"] == 8
        assert record["rotation_error"] < 1e-3
        assert record["translation_error"] < 1e-4
        assert record["r2"] is True
        assert record["failure"] is None
    by_r1 = {(r["i"], r["j"]): r["r1"] for r in records}
    assert [pair for pair, success in by_r1.items() if success is None] == [(0, 1), (1, 2), (2, 3)]
    assert all(success for success in by_r1.values() if success is not None)


@pytest.mark.parametrize("scale", [1000.0, 0.001])
def test_scores_do_not_depend_on_the_unit(
    make_scene_root: Callable[..., Path], exact_method: Method, tmp_path: Path, scale: float
) -> None:
    """Without scaled thresholds, all matches would be correct, or none."""
    scenes = read_scenes(make_scene_root(scale=scale))
    options = EXACT.model_copy(update={"unit": scale})
    (records,) = evaluate_pairs("pairs", scenes, [exact_method], options, tmp_path / "out").values()
    metres = read_scenes(make_scene_root("metres"))
    (other,) = evaluate_pairs("pairs", metres, [exact_method], EXACT, tmp_path / "other").values()
    (first,), (second,) = scene_figures(records), scene_figures(other)
    assert 0.2 < first.inlier_ratio < 0.99  # 200 of 300 keypoints: some have no counterpart
    assert first.inlier_ratio == pytest.approx(second.inlier_ratio)
    assert first.r1 == second.r1 == 1
    for record, in_metres in zip(records, other, strict=True):
        assert record["r1_error"] == pytest.approx(in_metres["r1_error"], abs=1e-5)
        assert record["translation_error"] / scale == pytest.approx(in_metres["translation_error"], abs=1e-4)


def test_unit_is_measured_if_not_given(scene_root: Path, exact_method: Method, tmp_path: Path) -> None:
    options = EXACT.model_copy(update={"unit": None})
    (records,) = evaluate_pairs("pairs", read_scenes(scene_root), [exact_method], options, tmp_path).values()
    (unit,) = {record["unit"] for record in records}
    assert 0.2 < unit < 5  # for a cloud two metres wide


def test_rotated_scans_keep_their_ground_truth(
    scene_root: Path, exact_method: Method, tmp_path: Path
) -> None:
    scenes = read_scenes(scene_root)
    loaded = [
        load_scan(scenes[0], k, keypoints=10, voxel=0, rotated=rotated, seed=0)
        for k in (0, 1)
        for rotated in (False, True)
    ]
    rotations = [scan.T_work_file[:3, :3] for scan in loaded]
    assert torch.equal(rotations[0], torch.eye(3, dtype=torch.float64))
    assert not torch.allclose(rotations[1], rotations[3], atol=0.1)
    options = EXACT.model_copy(update={"rotated": True, "keypoints": (300,)})
    (records,) = evaluate_pairs("3dmatch", scenes, [exact_method], options, tmp_path / "out").values()
    assert all(record["inlier_ratio"] == 1 and record["rotation_error"] < 1e-3 for record in records)


def test_rotated_scans_are_shifted_by_their_extent(scene_root: Path) -> None:
    """A peer that orients normals towards the origin must not know the sensor position."""
    (scene,) = read_scenes(scene_root)
    file_points = read_points(scene.scans[0])
    extent = np.ptp(file_points, axis=0).max()
    still, moved, other = (
        load_scan(scene, 0, keypoints=5, voxel=0, rotated=rotated, seed=seed).T_work_file.numpy()
        for rotated, seed in ((False, 0), (True, 0), (True, 1))
    )
    np.testing.assert_array_equal(still, np.eye(4))
    for T in (moved, other):
        assert np.linalg.norm(T[:3, 3]) == pytest.approx(extent)
        np.testing.assert_allclose(T[:3, :3] @ T[:3, :3].T, np.eye(3), atol=1e-12)
    assert np.linalg.norm(moved - other) > 0.1


@pytest.mark.parametrize("rotated", [False, True])
def test_coordinates_far_from_the_origin_keep_their_digits(scene_root: Path, rotated: bool) -> None:
    """Geographic coordinates in float32 would be wrong by half a metre."""
    (scene,) = read_scenes(scene_root)
    path = scene.scans[0]
    points = read_points(path)
    write_points(path, points + np.array([4e5, 5e6, 0]))
    far = load_scan(scene, 0, keypoints=5, voxel=0, rotated=rotated, seed=0)
    assert far.points.abs().max() < 10
    back = far.pose_in_file(torch.eye(4, dtype=torch.float64))
    file_points = far.points.double() @ back[:3, :3].T + back[:3, 3]
    np.testing.assert_allclose(file_points.numpy() - np.array([4e5, 5e6, 0]), points, atol=1e-5)


def test_small_keypoint_counts_are_subsets_of_large_ones(scene_root: Path, tmp_path: Path) -> None:
    scenes = read_scenes(scene_root)
    few, many = (
        load_scan(scenes[0], 0, keypoints=n, voxel=0, rotated=False, seed=0).keypoints for n in (20, 200)
    )
    assert torch.equal(few, many[:20])
    describer = CountingDescriber()
    options = EXACT.model_copy(update={"keypoints": (50, 300)})
    (records,) = evaluate_pairs(
        "3dmatch", scenes, [Method("m", describer)], options, tmp_path / "out"
    ).values()
    assert describer.calls == 4  # once per scan, for all keypoint counts
    assert [f.keypoints for f in scene_figures(records)] == [300, 50]
    alone = EXACT.model_copy(update={"keypoints": (50,)})
    (only,) = evaluate_pairs(
        "3dmatch", scenes, [Method("m", CountingDescriber())], alone, tmp_path / "alone"
    ).values()
    assert [r["matches"] for r in records if r["keypoints"] == 50] == [r["matches"] for r in only]


def test_official_keypoints_are_used_where_listed(scene_root: Path) -> None:
    folder = scene_root / "room" / "01_Keypoints"
    folder.mkdir()
    chosen = [7, 100, 3]
    (folder / "cloud_bin_1Keypoints.txt").write_text("\n".join(map(str, chosen)))
    (scene,) = read_scenes(scene_root)
    scan = load_scan(scene, 1, keypoints=5000, voxel=0.5, rotated=True, seed=3)
    whole = load_scan(scene, 1, keypoints=5000, voxel=0, rotated=True, seed=3)
    expected = {tuple(row) for row in whole.points[chosen].tolist()}
    assert {tuple(row) for row in scan.keypoints.tolist()} == expected
    for wrong in ("1\n300\n", "-1\n", "0.5\n", "one\n"):
        (folder / "cloud_bin_1Keypoints.txt").write_text(wrong)
        with pytest.raises(FileFormatError, match="cloud_bin_1Keypoints"):
            load_scan(scene, 1, keypoints=5, voxel=0, rotated=False, seed=0)


def without_times(path: Path) -> str:
    return re.sub(r', "seconds": [^}]*', "", path.read_text(encoding="utf-8"))


def test_interrupted_run_continues_to_the_same_result(scene_root: Path, tmp_path: Path) -> None:
    scenes = read_scenes(scene_root)
    options = EXACT.model_copy(update={"keypoints": (60, 200), "rotated": True})
    evaluate_pairs("3dmatch", scenes, [Method("m", CountingDescriber())], options, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        evaluate_pairs(
            "3dmatch", scenes, [Method("m", CountingDescriber(stop_at=4))], options, tmp_path / "interrupted"
        )
    part = (tmp_path / "interrupted" / "m.jsonl").read_bytes()
    whole = without_times(tmp_path / "whole" / "m.jsonl")
    assert part.count(b"\n") == 5  # settings, and two pairs with two keypoint counts
    assert whole.startswith(without_times(tmp_path / "interrupted" / "m.jsonl"))
    (tmp_path / "interrupted" / "m.jsonl").write_bytes(part + b'{"scene": "room", "i"')  # an unfinished line
    evaluate_pairs("3dmatch", scenes, [Method("m", CountingDescriber())], options, tmp_path / "interrupted")
    assert without_times(tmp_path / "interrupted" / "m.jsonl") == whole
    idle = CountingDescriber()
    evaluate_pairs("3dmatch", scenes, [Method("m", idle)], options, tmp_path / "interrupted")
    assert idle.calls == 0


def test_nan_descriptors_fail_the_pairs_of_their_scan(scene_root: Path, tmp_path: Path) -> None:
    bad = Method("bad", CountingDescriber(nan_at=2))  # scan 1
    (records,) = evaluate_pairs("3dmatch", read_scenes(scene_root), [bad], EXACT, tmp_path).values()
    failed = [record for record in records if record["failure"]]
    assert [(r["i"], r["j"]) for r in failed] == [(0, 1), (1, 2), (1, 3)]
    assert failed[0]["failure"] == "room/cloud_bin_1: 1 of 200 descriptors are not finite"
    assert all(not r["r2"] and r["inlier_ratio"] == 0 and not r["found"] for r in failed)
    (figures,) = scene_figures(records)
    assert (figures.failures, figures.pairs, figures.r1_pairs) == (3, 6, 3)
    assert figures.r2 == 0.5


def test_an_error_of_a_peer_fails_its_pairs_and_other_rows_finish(
    scene_root: Path, exact_method: Method, tmp_path: Path
) -> None:
    def fails(*_: object) -> torch.Tensor:
        raise RuntimeError("too few points")

    methods = [Method("bad", fails), Method("bad poses", estimator=fails), exact_method]
    records = evaluate_pairs("3dmatch", read_scenes(scene_root), methods, PairwiseOptions(), tmp_path)
    for name in ("bad", "bad poses"):
        assert not any(record["found"] for record in records[name])
        assert all("too few points" in record["failure"] for record in records[name])
    assert all(record["found"] for record in records[exact_method.name])


def test_wrong_descriptor_shape_names_method_and_scan(scene_root: Path, tmp_path: Path) -> None:
    wrong = Method("wrong", lambda points, keypoints, unit: keypoints[:5])
    with pytest.raises(InputError, match="wrong, room/cloud_bin_0"):
        evaluate_pairs("3dmatch", read_scenes(scene_root), [wrong], EXACT, tmp_path)


def test_pairs_without_matches_fail_without_error(scene_root: Path, tmp_path: Path, monkeypatch) -> None:
    from wsdesc.evaluation import score

    monkeypatch.setattr(score, "mutual_matches", lambda p, q: torch.empty(0, 2, dtype=torch.int64))
    for solver in ("ransac", "consensus"):
        options = EXACT.model_copy(update={"solver": solver})
        same = Method("same", lambda points, keypoints, unit: torch.ones(len(keypoints), 4))
        out = tmp_path / solver
        (records,) = evaluate_pairs("3dmatch", read_scenes(scene_root), [same], options, out).values()
        assert {r["inlier_ratio"] for r in records} == {0.0}
        assert not any(r["found"] or r["r2"] or r["r1"] for r in records)


def test_consensus_solver_registers_all_pairs(scene_root: Path, exact_method: Method, tmp_path: Path) -> None:
    options = EXACT.model_copy(update={"solver": "consensus"})
    (records,) = evaluate_pairs(
        "3dmatch", read_scenes(scene_root), [exact_method], options, tmp_path
    ).values()
    assert all(record["r2"] for record in records)
    assert all(record["rotation_error"] < 1 for record in records)


class TestPoseEstimators:
    def test_estimators_get_full_scans_and_are_scored_by_their_pose(
        self, scene_root: Path, tmp_path: Path
    ) -> None:
        (scene,) = read_scenes(scene_root)
        truths = {(p.i, p.j): p.T_i_j for p in scene.pairs}
        seen = []

        def estimate(source: torch.Tensor, target: torch.Tensor, unit: float) -> np.ndarray:
            """Return the true pose; pairs come in their order."""
            i, j = list(truths)[len(seen)]
            seen.append(unit)
            frames = [load_scan(scene, k, keypoints=1, voxel=0, rotated=True, seed=0) for k in (i, j)]
            T_target_i, T_source_j = (frame.T_work_file.numpy() for frame in frames)
            assert torch.equal(source, frames[1].points)
            assert torch.equal(target, frames[0].points)
            return T_target_i @ truths[i, j] @ np.linalg.inv(T_source_j)

        method = Method("truth", estimator=estimate)
        options = PairwiseOptions(keypoints=(100, 50), rotated=True, unit=1.5)  # scans are not downsampled
        (records,) = evaluate_pairs("3dmatch", [scene], [method], options, tmp_path).values()
        assert seen == [1.5] * 6  # once per pair, not per keypoint count
        assert all(r["r2"] and r["rotation_error"] < 1e-4 and r["inlier_ratio"] is None for r in records)
        (figures,) = scene_figures(records)
        assert figures.inlier_ratio is figures.recall_02 is figures.matches is None

    @pytest.mark.parametrize(
        ("estimate", "failed"),
        [(None, False), (np.full((4, 4), np.nan), True), (np.diag([1, 1, -1, 1]), True), (np.eye(3), True)],
    )
    def test_missing_or_invalid_pose_fails_the_pair(
        self, scene_root: Path, tmp_path: Path, estimate: np.ndarray | None, failed: bool
    ) -> None:
        method = Method("m", estimator=lambda source, target, unit: estimate)
        (records,) = evaluate_pairs("3dmatch", read_scenes(scene_root), [method], EXACT, tmp_path).values()
        assert not any(record["found"] or record["r2"] for record in records)
        assert {record["failure"] is not None for record in records} == {failed}

    def test_as_pose_refuses_what_is_not_rigid(self) -> None:
        T = random_pose(np.random.default_rng(0))
        np.testing.assert_array_equal(as_pose(torch.from_numpy(T)), T)
        assert as_pose(2 * T) is None


def test_method_needs_describer_or_estimator() -> None:
    with pytest.raises(InputError, match="either"):
        Method("neither")


def test_r1_matches_its_closed_form() -> None:
    """Two points at c ± a on the x axis, rotated by θ about z and shifted by d along y: the error is
    d² + 2 d s c + s² (c² + a²), s = sin θ/2."""
    from wsdesc.evaluation import information_matrix, r1_error

    a, c = 1.5, 0.7
    points = torch.tensor([[c - a, 0, 0], [c + a, 0, 0]], dtype=torch.float64)
    Lambda = information_matrix(points).numpy()
    for theta, d in ((0.3, 0.0), (0.3, -0.11), (np.pi, 0.0), (-2.0, 0.4)):
        T = torch.eye(4, dtype=torch.float64)
        T[:2, :2] = torch.tensor([[np.cos(theta), -np.sin(theta)], [np.sin(theta), np.cos(theta)]])
        T[1, 3] = d
        s = np.sin(theta / 2)
        expected = d * d + 2 * d * s * c + s * s * (c * c + a * a)
        assert r1_error(T, np.eye(4), Lambda).item() == pytest.approx(expected, rel=1e-9)
    for factor, success in ((0.999, True), (1.001, False)):
        s = factor * 0.2 / np.hypot(a, c)
        theta = 2 * np.arcsin(s)
        T = torch.eye(4, dtype=torch.float64)
        T[:2, :2] = torch.tensor([[np.cos(theta), -np.sin(theta)], [np.sin(theta), np.cos(theta)]])
        assert compare_with_truth(PairTruth(0, 2, np.eye(4), Lambda), T, 1.0)["r1"] is success
        assert compare_with_truth(PairTruth(0, 1, np.eye(4), Lambda), T, 1.0)["r1"] is None
        assert compare_with_truth(PairTruth(0, 2, np.eye(4)), T, 1.0)["r1"] is None
