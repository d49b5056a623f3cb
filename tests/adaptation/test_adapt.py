"""`wsdesc.adapt`: the whole flow, resumed runs, bad input, and no influence of pose files."""

from __future__ import annotations

import json
import shutil

import pytest

import wsdesc
from adaptation.conftest import reconstruction_of
from wsdesc import WSDesc, WSDescError
from wsdesc.adaptation import pipeline, rounds
from wsdesc.adaptation.options import FULL_WEIGHTS, AdaptOptions, make_plan
from wsdesc.adaptation.weights import find_start

FAST = {"device": "cpu", "keypoints": 32, "distill_steps": 0, "minutes": 60.0}


@pytest.fixture
def fake_reconstruct(monkeypatch, folder, room_of_six):
    """Reconstruct at once, and count the calls."""
    calls = []

    def reconstruct(paths, out, **options):
        assert sorted(path.name for path in paths) == [f"scan_{k}.ply" for k in range(6)]
        calls.append(options["model"])
        return reconstruction_of(folder, room_of_six, names=fake_reconstruct_names(len(calls)))

    def fake_reconstruct_names(call):
        return names.get(call)

    names: dict[int, list[str]] = {}
    monkeypatch.setattr(rounds, "reconstruct", reconstruct)
    monkeypatch.setattr(rounds, "_COMPARED_PAIRS", 3)
    plan = make_plan(AdaptOptions(), on_gpu=False)._replace(registered_pairs=1, scenes=8)
    monkeypatch.setattr(pipeline, "make_plan", lambda o, on_gpu: _with_options(plan, o))
    calls.append(names)
    return calls


def _with_options(plan, o):
    return plan._replace(
        steps=o.steps or 2, distill_steps=o.distill_steps, fast_steps=o.fast_steps or 0, keypoints=o.keypoints
    )


@pytest.fixture
def always_better(monkeypatch):
    monkeypatch.setattr(rounds, "compare", lambda before, after: None)
    monkeypatch.setattr(rounds, "MAX_FORGOTTEN", 1.0)


@pytest.mark.slow
def test_adapts_both_networks_and_the_folder_is_a_model(
    folder, tiny_start, tmp_path, fake_reconstruct, always_better, tiny_scenes
):
    fake_reconstruct.clear()
    out = tmp_path / "mine"
    options = FAST | {"distill_steps": 2, "fast_steps": 1, "orientation_radius": 0.6}
    steps = []

    def progress(name, total):
        steps.append(name)
        return wsdesc.core.progress.no_progress(name, total)

    result = wsdesc.adapt(folder, out, start=tiny_start, steps=3, progress=progress, **options)
    assert result.improved
    assert {"teach", "teach on all scans", "distil", "teach the fast network"} <= set(steps)
    fast, full = WSDesc.from_pretrained(out), WSDesc.from_pretrained(out / FULL_WEIGHTS)
    assert (fast.options.width, full.options.width) == (0.25, 0.125)
    assert fast.options.orientation_radius == full.options.orientation_radius == 0.6
    old = WSDesc.from_pretrained(tiny_start)
    assert any(not (a == b).all() for a, b in zip(fast.parameters(), old.parameters(), strict=True))
    text = result.report.read_text(encoding="utf-8")
    assert "inlier ratio" in text
    assert (out / "report.png").stat().st_size > 1000
    again = wsdesc.adapt(folder, out, start=tiny_start, steps=3, **options)  # finished: read from the folder
    assert again.improved
    assert again.comparison == result.comparison
    assert find_start(str(out)).full == out / FULL_WEIGHTS
    with pytest.raises(WSDescError, match="other steps"):
        wsdesc.adapt(folder, out, start=tiny_start, steps=4, **options)


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(WSDescError, match="nowhere: no such file or folder"):
        wsdesc.adapt(tmp_path / "nowhere", tmp_path / "mine")


def test_keeps_the_old_weights_if_they_are_not_worse(
    folder, tiny_start, tmp_path, fake_reconstruct, monkeypatch, tiny_scenes
):
    monkeypatch.setattr(rounds, "compare", lambda before, after: "the inlier ratio fell")
    out = tmp_path / "mine"
    result = wsdesc.adapt(folder, out, start=tiny_start, steps=3, **FAST)
    assert not result.improved
    assert "old weights are kept" in result.summary() == str(result)
    assert "improved=False, scans=6" in repr(result)
    assert (out / "model.safetensors").read_bytes() == (tiny_start / "model.safetensors").read_bytes()
    assert "not better" in result.report.read_text(encoding="utf-8")


def test_a_folder_may_be_used_again_after_too_few_scans(folder, tmp_path):
    broken = [tmp_path / f"broken_{k}.ply" for k in range(4)]
    for k, path in enumerate(broken):
        path.write_text(f"broken {k}")
    for others in (broken[:3], broken[1:]):
        with pytest.raises(
            WSDescError, match=f"two readable scans are required.*{others[0].name} was left out"
        ):
            wsdesc.adapt([folder / "scan_0.ply", *others], tmp_path / "mine", device="cpu")


class Killed(BaseException):
    """Stands for a killed process."""


@pytest.mark.slow
@pytest.mark.parametrize("step", ["find teachers", "teach", "check, after", "teach on all scans"])
def test_continues_after_it_was_killed(
    folder, tiny_start, tmp_path, fake_reconstruct, always_better, tiny_scenes, step
):
    whole = wsdesc.adapt(folder, tmp_path / "whole", start=tiny_start, steps=3, **FAST)

    def progress(name, total):
        if name == step:
            raise Killed
        return wsdesc.core.progress.no_progress(name, total)

    with pytest.raises(Killed):
        wsdesc.adapt(folder, tmp_path / "part", start=tiny_start, steps=3, progress=progress, **FAST)
    part = wsdesc.adapt(folder, tmp_path / "part", start=tiny_start, steps=3, **FAST)
    assert part.comparison == whole.comparison
    weights = [(run.folder / "model.safetensors").read_bytes() for run in (whole, part)]
    assert weights[0] == weights[1]


@pytest.mark.slow
def test_pose_files_change_no_bit(folder, tiny_start, tmp_path, fake_reconstruct, always_better, tiny_scenes):
    results = []
    for variant in ("none", "poses", "shuffled"):
        copy = tmp_path / variant
        shutil.copytree(folder, copy)
        order = {"none": [], "poses": [0, 1, 2, 3, 4, 5], "shuffled": [3, 4, 5, 0, 1, 2]}[variant]
        for k, name in enumerate(order):
            matrix = "\n".join(" ".join(str(float(i == j)) for j in range(4)) for i in range(4))
            (copy / f"scan_{name}.info.txt").write_text(f"scene\tseq-01\t{k}\n{matrix}\n")
            (copy / "gt.log").write_text(f"0 1 2\n{matrix}\n")
        wsdesc.adapt(copy, tmp_path / f"{variant}-out", start=tiny_start, steps=2, **FAST)
        results.append((tmp_path / f"{variant}-out" / "model.safetensors").read_bytes())
    assert results[0] == results[1] == results[2]


@pytest.mark.slow
def test_another_round_if_more_scans_are_placed(
    folder, tiny_start, tmp_path, fake_reconstruct, always_better, tiny_scenes
):
    names = fake_reconstruct.pop()
    names[1] = [f"scan_{k}.ply" for k in range(5)]
    result = wsdesc.adapt(folder, tmp_path / "mine", start=tiny_start, steps=2, rounds=3, **FAST)
    assert [done.placed for done in result.rounds] == [5, 6]
    assert result.rounds[0].neighbours > 0  # the scan without a pose was used by the weakly supervised loss
    assert len(fake_reconstruct) == 2  # complete: nothing can change
    assert fake_reconstruct[1] != fake_reconstruct[0]


def test_few_scans_and_equal_scans_are_refused(folder, tiny_start, tmp_path, fake_reconstruct):
    one = folder / "scan_0.ply"
    with pytest.raises(WSDescError, match="4 different scans that overlap, found 1"):
        wsdesc.adapt([one], tmp_path / "one", start=tiny_start, **FAST)
    copies = tmp_path / "copies"
    copies.mkdir()
    for k in range(3):
        shutil.copy(one, copies / f"{k}.ply")
    with pytest.raises(WSDescError, match="all 3 scans are equal"):
        wsdesc.adapt(copies, tmp_path / "equal", start=tiny_start, **FAST)


def test_scans_without_overlap_are_refused(folder, tiny_start, tmp_path, fake_reconstruct, tiny_scenes):
    fake_reconstruct.pop()[1] = ["scan_0.ply", "scan_1.ply"]
    with pytest.raises(WSDescError, match=r"needs 4 scans that overlap; 2 of 6 .* weights are unchanged"):
        wsdesc.adapt(folder, tmp_path / "two", start=tiny_start, **FAST)


def test_weights_of_another_version_are_refused(folder, tmp_path):
    bad = tmp_path / "bad.safetensors"
    bad.write_bytes(b"something else")
    with pytest.raises(WSDescError, match="not a safetensors file"):
        wsdesc.adapt(folder, tmp_path / "out", start=bad)
    assert bad.read_bytes() == b"something else"


@pytest.mark.slow
def test_full_disk_is_reported_and_the_run_continues(
    folder, tiny_start, tmp_path, fake_reconstruct, always_better, tiny_scenes, monkeypatch
):
    from pathlib import Path

    write = Path.write_bytes

    def full(self, content):
        raise OSError(28, "No space left on device")

    before = (tiny_start / "model.safetensors").read_bytes()
    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(WSDescError, match="No space left"):
        wsdesc.adapt(folder, tmp_path / "mine", start=tiny_start, steps=2, **FAST)
    monkeypatch.setattr(Path, "write_bytes", write)
    assert wsdesc.adapt(folder, tmp_path / "mine", start=tiny_start, steps=2, **FAST).improved
    assert (tiny_start / "model.safetensors").read_bytes() == before


def test_no_gpu(folder, tmp_path):
    import torch

    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    with pytest.raises(WSDescError, match="CUDA"):
        wsdesc.adapt(folder, tmp_path / "out", device="cuda")


def test_plan_on_the_cpu_teaches_the_fast_network_alone():
    plan = make_plan(AdaptOptions(), on_gpu=False)
    assert plan.distill_steps == plan.fast_steps == 0
    assert plan.minutes is not None
    assert plan.limited(0.5).steps == plan.steps / 2
    assert make_plan(AdaptOptions(), on_gpu=True).distill_steps > 0
    assert json.dumps(plan)
