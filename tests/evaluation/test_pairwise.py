"""Judging pairs with methods whose answers are known."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from wsdesc.cloud.files import read_points, write_points
from wsdesc.core.errors import FileFormatError, InputError
from wsdesc.evaluation.fragments import load_fragment
from wsdesc.evaluation.methods import Method, as_motion
from wsdesc.evaluation.pairwise import PairwiseOptions, compare, run_pairwise
from wsdesc.evaluation.scenes import PairTruth, read_test_scenes
from wsdesc.evaluation.summary import scene_figures

EXACT = PairwiseOptions(keypoints=(200,), voxel=0)


def test_a_right_descriptor_is_right_everywhere(scene_root: Path, right: Method, tmp_path: Path) -> None:
    scenes = read_test_scenes(scene_root)
    options = EXACT.model_copy(update={"keypoints": (300,)})
    (records,) = run_pairwise("3dmatch", scenes, [right], options, tmp_path / "out").values()
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
    assert [pair for pair, judged in by_r1.items() if judged is None] == [(0, 1), (1, 2), (2, 3)]
    assert all(judged for judged in by_r1.values() if judged is not None)


@pytest.mark.parametrize("scale", [1000.0, 0.001])
def test_any_unit_gives_the_same(
    make_scene_root: Callable[..., Path], right: Method, tmp_path: Path, scale: float
) -> None:
    """Thresholds follow the unit: with that of another scale, matches would all be right, or all wrong."""
    scenes = read_test_scenes(make_scene_root(scale=scale))
    options = EXACT.model_copy(update={"unit": scale})
    (records,) = run_pairwise("pairs", scenes, [right], options, tmp_path / "out").values()
    metres = read_test_scenes(make_scene_root("metres"))
    (other,) = run_pairwise("pairs", metres, [right], EXACT, tmp_path / "other").values()
    (first,), (second,) = scene_figures(records), scene_figures(other)
    assert 0.2 < first.inlier_ratio < 0.99  # 200 of 300 keypoints: not all have their counterpart
    assert first.inlier_ratio == pytest.approx(second.inlier_ratio)
    assert first.r1 == second.r1 == 1
    for record, in_metres in zip(records, other, strict=True):
        assert record["r1_error"] == pytest.approx(in_metres["r1_error"], abs=1e-5)
        assert record["translation_error"] / scale == pytest.approx(in_metres["translation_error"], abs=1e-4)


def test_the_unit_is_found_if_not_given(scene_root: Path, right: Method, tmp_path: Path) -> None:
    options = EXACT.model_copy(update={"unit": None})
    (records,) = run_pairwise("pairs", read_test_scenes(scene_root), [right], options, tmp_path).values()
    (unit,) = {record["unit"] for record in records}
    assert 0.2 < unit < 5  # of a cloud two metres wide


def test_rotating_turns_each_fragment_and_the_truth(scene_root: Path, right: Method, tmp_path: Path) -> None:
    scenes = read_test_scenes(scene_root)
    loaded = [
        load_fragment(scenes[0], k, keypoints=10, voxel=0, rotated=rotated, seed=0)
        for k in (0, 1)
        for rotated in (False, True)
    ]
    turns = [fragment.T_work_file[:3, :3] for fragment in loaded]
    assert torch.equal(turns[0], torch.eye(3, dtype=torch.float64))
    assert not torch.allclose(turns[1], turns[3], atol=0.1)
    options = EXACT.model_copy(update={"rotated": True, "keypoints": (300,)})
    (records,) = run_pairwise("3dmatch", scenes, [right], options, tmp_path / "out").values()
    assert all(record["inlier_ratio"] == 1 and record["rotation_error"] < 1e-3 for record in records)


def test_a_moved_cloud_does_not_have_its_camera_in_the_origin(scene_root: Path) -> None:
    """A peer that orients normals by it must not be told the viewpoint."""
    (scene,) = read_test_scenes(scene_root)
    file_points = read_points(scene.fragments[0])
    extent = np.ptp(file_points, axis=0).max()
    still, moved, other = (
        load_fragment(scene, 0, keypoints=5, voxel=0, rotated=rotated, seed=seed).T_work_file.numpy()
        for rotated, seed in ((False, 0), (True, 0), (True, 1))
    )
    np.testing.assert_array_equal(still, np.eye(4))
    for T in (moved, other):
        assert np.linalg.norm(T[:3, 3]) == pytest.approx(extent)
        np.testing.assert_allclose(T[:3, :3] @ T[:3, :3].T, np.eye(3), atol=1e-12)
    assert np.linalg.norm(moved - other) > 0.1


@pytest.mark.parametrize("rotated", [False, True])
def test_digits_are_kept_far_from_the_origin(scene_root: Path, rotated: bool) -> None:
    """Geographic coordinates, in float32, would be off by half a metre."""
    (scene,) = read_test_scenes(scene_root)
    path = scene.fragments[0]
    points = read_points(path)
    write_points(path, points + np.array([4e5, 5e6, 0]))
    far = load_fragment(scene, 0, keypoints=5, voxel=0, rotated=rotated, seed=0)
    assert far.points.abs().max() < 10
    back = far.file_motion(torch.eye(4, dtype=torch.float64))
    file_points = far.points.double() @ back[:3, :3].T + back[:3, 3]
    np.testing.assert_allclose(file_points.numpy() - np.array([4e5, 5e6, 0]), points, atol=1e-5)


def test_fewer_keypoints_are_some_of_the_more(scene_root: Path, counting: Callable, tmp_path: Path) -> None:
    scenes = read_test_scenes(scene_root)
    few, many = (
        load_fragment(scenes[0], 0, keypoints=n, voxel=0, rotated=False, seed=0).keys for n in (20, 200)
    )
    assert torch.equal(few, many[:20])
    double = counting()
    options = EXACT.model_copy(update={"keypoints": (50, 300)})
    (records,) = run_pairwise("3dmatch", scenes, [Method("m", double)], options, tmp_path / "out").values()
    assert double.calls == 4  # fragments, whatever the numbers of keypoints
    assert [f.keypoints for f in scene_figures(records)] == [300, 50]
    alone = EXACT.model_copy(update={"keypoints": (50,)})
    (only,) = run_pairwise("3dmatch", scenes, [Method("m", counting())], alone, tmp_path / "alone").values()
    assert [r["matches"] for r in records if r["keypoints"] == 50] == [r["matches"] for r in only]


def test_official_keypoints_are_used(scene_root: Path) -> None:
    folder = scene_root / "room" / "01_Keypoints"
    folder.mkdir()
    chosen = [7, 100, 3]
    (folder / "cloud_bin_1Keypoints.txt").write_text("\n".join(map(str, chosen)))
    (scene,) = read_test_scenes(scene_root)
    fragment = load_fragment(scene, 1, keypoints=5000, voxel=0.5, rotated=True, seed=3)
    whole = load_fragment(scene, 1, keypoints=5000, voxel=0, rotated=True, seed=3)
    expected = {tuple(row) for row in whole.points[chosen].tolist()}
    assert {tuple(row) for row in fragment.keys.tolist()} == expected
    for wrong in ("1\n300\n", "-1\n", "0.5\n", "one\n"):
        (folder / "cloud_bin_1Keypoints.txt").write_text(wrong)
        with pytest.raises(FileFormatError, match="cloud_bin_1Keypoints"):
            load_fragment(scene, 1, keypoints=5, voxel=0, rotated=False, seed=0)


def test_a_killed_run_goes_on_with_the_same_result(
    scene_root: Path, counting: Callable, tmp_path: Path
) -> None:
    scenes = read_test_scenes(scene_root)
    options = EXACT.model_copy(update={"keypoints": (60, 200), "rotated": True})
    run_pairwise("3dmatch", scenes, [Method("m", counting())], options, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        run_pairwise("3dmatch", scenes, [Method("m", counting(stop_at=4))], options, tmp_path / "cut")
    part = (tmp_path / "cut" / "m.jsonl").read_bytes()
    whole = (tmp_path / "whole" / "m.jsonl").read_bytes()
    assert part.count(b"\n") == 5  # settings, and two pairs with two numbers of keypoints
    assert whole.startswith(part)
    (tmp_path / "cut" / "m.jsonl").write_bytes(part + whole[len(part) : len(part) + 40])  # torn on top
    run_pairwise("3dmatch", scenes, [Method("m", counting())], options, tmp_path / "cut")
    assert (tmp_path / "cut" / "m.jsonl").read_bytes() == whole
    idle = counting()
    run_pairwise("3dmatch", scenes, [Method("m", idle)], options, tmp_path / "cut")
    assert idle.calls == 0


def test_a_nan_fails_the_pairs_of_its_fragment(scene_root: Path, counting: Callable, tmp_path: Path) -> None:
    bad = Method("bad", counting(nan_at=2))  # fragment 1
    (records,) = run_pairwise("3dmatch", read_test_scenes(scene_root), [bad], EXACT, tmp_path).values()
    failed = [record for record in records if record["failure"]]
    assert [(r["i"], r["j"]) for r in failed] == [(0, 1), (1, 2), (1, 3)]
    assert failed[0]["failure"] == "room/cloud_bin_1: 1 of 200 descriptors are not finite"
    assert all(not r["r2"] and r["inlier_ratio"] == 0 and not r["found"] for r in failed)
    (figures,) = scene_figures(records)
    assert (figures.failures, figures.pairs, figures.r1_pairs) == (3, 6, 3)
    assert figures.r2 == 0.5


def test_a_wrong_shape_names_method_and_fragment(scene_root: Path, tmp_path: Path) -> None:
    wrong = Method("wrong", lambda points, keypoints, unit: keypoints[:5])
    with pytest.raises(InputError, match="wrong, room/cloud_bin_0"):
        run_pairwise("3dmatch", read_test_scenes(scene_root), [wrong], EXACT, tmp_path)


def test_no_match_at_all_is_no_division_by_zero(scene_root: Path, tmp_path: Path, monkeypatch) -> None:
    from wsdesc.evaluation import score as judge

    monkeypatch.setattr(judge, "mutual", lambda p, q: torch.empty(0, 2, dtype=torch.int64))
    for solver in ("ransac", "consensus"):
        options = EXACT.model_copy(update={"solver": solver})
        same = Method("same", lambda points, keypoints, unit: torch.ones(len(keypoints), 4))
        out = tmp_path / solver
        (records,) = run_pairwise("3dmatch", read_test_scenes(scene_root), [same], options, out).values()
        assert {r["inlier_ratio"] for r in records} == {0.0}
        assert not any(r["found"] or r["r2"] or r["r1"] for r in records)


def test_the_other_solver(scene_root: Path, right: Method, tmp_path: Path) -> None:
    options = EXACT.model_copy(update={"solver": "consensus"})
    (records,) = run_pairwise("3dmatch", read_test_scenes(scene_root), [right], options, tmp_path).values()
    assert all(record["r2"] for record in records)
    assert all(record["rotation_error"] < 1 for record in records)


class TestPoseEstimators:
    def test_is_given_clouds_and_judged_by_its_pose(self, scene_root: Path, tmp_path: Path) -> None:
        (scene,) = read_test_scenes(scene_root)
        truths = {(p.i, p.j): p.T_i_j for p in scene.pairs}
        seen = []

        def estimate(source: torch.Tensor, target: torch.Tensor, unit: float) -> np.ndarray:
            """The truth of the pair, as pairs are asked for in their order."""
            i, j = list(truths)[len(seen)]
            seen.append(unit)
            frames = [load_fragment(scene, k, keypoints=1, voxel=0, rotated=True, seed=0) for k in (i, j)]
            T_target_i, T_source_j = (frame.T_work_file.numpy() for frame in frames)
            assert torch.equal(source, frames[1].points)
            assert torch.equal(target, frames[0].points)
            return T_target_i @ truths[i, j] @ np.linalg.inv(T_source_j)

        method = Method("truth", estimator=estimate)
        options = PairwiseOptions(keypoints=(100, 50), rotated=True, unit=1.5)  # clouds come not thinned
        (records,) = run_pairwise("3dmatch", [scene], [method], options, tmp_path).values()
        assert seen == [1.5] * 6  # once a pair, not once a number of keypoints
        assert all(r["r2"] and r["rotation_error"] < 1e-4 and r["inlier_ratio"] is None for r in records)
        (figures,) = scene_figures(records)
        assert figures.inlier_ratio is figures.recall_02 is figures.matches is None

    @pytest.mark.parametrize(
        ("answer", "failed"),
        [(None, False), (np.full((4, 4), np.nan), True), (np.diag([1, 1, -1, 1]), True), (np.eye(3), True)],
    )
    def test_no_pose_or_none_that_is_one(
        self, scene_root: Path, tmp_path: Path, answer: np.ndarray | None, failed: bool
    ) -> None:
        method = Method("m", estimator=lambda source, target, unit: answer)
        (records,) = run_pairwise("3dmatch", read_test_scenes(scene_root), [method], EXACT, tmp_path).values()
        assert not any(record["found"] or record["r2"] for record in records)
        assert {record["failure"] is not None for record in records} == {failed}

    def test_as_motion(self, make_motion: Callable) -> None:
        T = make_motion(np.random.default_rng(0))
        np.testing.assert_array_equal(as_motion(torch.from_numpy(T)), T)
        assert as_motion(2 * T) is None


def test_a_method_is_one_of_two() -> None:
    with pytest.raises(InputError, match="either"):
        Method("neither")


def test_r1_at_its_limit_in_closed_form() -> None:
    """Two points at c ± a on the x axis, turned by θ about z and shifted by d along y: the error is
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
        assert compare(PairTruth(0, 2, np.eye(4), Lambda), T, 1.0)["r1"] is success
        assert compare(PairTruth(0, 1, np.eye(4), Lambda), T, 1.0)["r1"] is None
        assert compare(PairTruth(0, 2, np.eye(4)), T, 1.0)["r1"] is None
