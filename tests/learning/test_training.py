"""`wsdesc.train`: from folders to weights, without ground truth; resuming; the command."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

import wsdesc
from tiny_training import DESCRIPTOR, tiny, write_scene
from wsdesc import WSDesc, WSDescError
from wsdesc.cli.app import app
from wsdesc.core.errors import InputError
from wsdesc.datasets.synthetic import room_scans
from wsdesc.learning.options import TrainOptions
from wsdesc.learning.training import change, resolve_options

POSE_FIGURES = {"held_out_inlier_ratio", "held_out_recall_005", "held_out_recall_02"}


@pytest.fixture(scope="module")
def coarse_scene(tmp_path_factory):
    """Three scans of a room with few points, and poses beside them."""
    folder = tmp_path_factory.mktemp("coarse") / "scene"
    return write_scene(folder, room_scans(3, 3, resolution=0.08))


def quick(**changes):
    data = {"unit": 1.0, "min_coverage": 0.0}
    return tiny(**{"steps": 2, "keypoints": 24, "data": data, **changes})


def test_training_writes_weights_that_the_folder_names(coarse_scene, tmp_path):
    steps = []
    run = wsdesc.train(coarse_scene, tmp_path / "mine", options=quick(), device="cpu", on_step=steps.append)
    assert run.finished
    assert [state.step for state in steps] == [1, 2]
    assert WSDesc.from_pretrained(tmp_path / "mine").options.width == DESCRIPTOR["width"]
    assert len(json.loads((tmp_path / "mine" / "pairs.json").read_text())["pairs"]) == 3
    saved = TrainOptions.load(tmp_path / "mine" / "options.yaml")
    assert saved.scans == (str(coarse_scene),)


def test_resume_uses_the_options_and_scans_of_the_run(coarse_scene, tmp_path):
    whole = wsdesc.train([coarse_scene], tmp_path / "whole", options=quick(steps=3), device="cpu")
    first = wsdesc.train([coarse_scene], tmp_path / "mine", options=quick(steps=3), device="cpu", minutes=0)
    assert not first.finished
    run = wsdesc.train(out=tmp_path / "mine", resume=True, device="cpu")
    assert run.step == 3
    assert run.weights.read_bytes() == whole.weights.read_bytes()
    more = wsdesc.train(out=tmp_path / "mine", resume=True, device="cpu", steps=4)
    assert (more.step, more.options.keypoints) == (4, 24)


def test_nothing_to_resume(tmp_path):
    with pytest.raises(InputError, match="no training to resume"):
        wsdesc.distill("indoor-fast", out=tmp_path / "none", resume=True, device="cpu")
    assert not (tmp_path / "none").exists()
    with pytest.raises(WSDescError, match=r"options\.yaml is missing"):
        wsdesc.train(out=tmp_path / "none", resume=True)
    with pytest.raises(WSDescError, match="not both"):
        wsdesc.train(out=tmp_path, preset="small", options=quick())
    assert list(tmp_path.iterdir()) == []


def test_arguments_replace_options(tmp_path):
    changes = {"steps": 7, "seed": None, "data": {"synthetic": 0.25, "window": None}}
    options = resolve_options([Path("scans")], tmp_path, options=quick(seed=3), changes=changes)
    assert (options.steps, options.seed, options.data.synthetic, options.data.unit) == (7, 3, 0.25, 1.0)
    assert options.data.window == 4
    assert options.scans[0].endswith("scans")
    assert change(TrainOptions(), {"steps": None}) == TrainOptions()


def test_command_prints_how_to_continue(coarse_scene, tmp_path, monkeypatch):
    """The printed command is complete: it runs as it is."""
    quick(steps=3).save(tmp_path / "quick.yaml")
    out = tmp_path / "my run"
    command = ["train", str(coarse_scene), "--config", str(tmp_path / "quick.yaml"), "--out", str(out)]
    stopped = CliRunner().invoke(app, [*command, "--device", "cpu", "--minutes", "0"])
    assert stopped.exit_code == 0, stopped.output
    (line,) = (line for line in stopped.output.splitlines() if line.startswith("stopped; continue with: "))
    words = shlex.split(line.removeprefix("stopped; continue with: "))
    assert words == ["wsdesc", "train", "--out", str(out), "--resume", "--device", "cpu"]
    finished = CliRunner().invoke(app, words[1:])
    assert finished.exit_code == 0, finished.output
    assert f"weights: {out / 'model.safetensors'}" in finished.output
    assert (out / "model.safetensors").is_file()


def test_interrupted_command_prints_how_to_continue(tmp_path, monkeypatch):
    def interrupt(scans, out, **options):
        out.mkdir()
        (out / "checkpoint.safetensors").touch()
        raise KeyboardInterrupt

    monkeypatch.setattr("wsdesc.learning.training.train", interrupt)
    done = CliRunner().invoke(app, ["train", "--out", str(tmp_path / "run"), "--tensorboard"])
    assert done.exit_code == 130
    assert f"continue from the last checkpoint with: wsdesc train --out {tmp_path / 'run'}" in done.stderr
    assert done.stderr.rstrip().endswith("--resume --tensorboard")


@pytest.mark.slow
def test_poses_do_not_change_a_training(tmp_path, six_scans):
    """Poses beside the scans are shuffled, then deleted.

    Weights and all figures without poses keep their bits; only the figures of the poses change, then vanish.
    """
    options = tiny(keypoints=128, steps=3, validate_every=2, data={"hold_out": 0.4})
    scene = write_scene(tmp_path / "scene", six_scans)
    runs = {"a": wsdesc.train(scene, tmp_path / "a", options=options, device="cpu")}
    poses = sorted(scene.glob("*.info.txt"))
    texts = [p.read_text() for p in poses]
    for path, text in zip(poses, texts[1::2] + texts[::2], strict=True):
        path.write_text(text)
    runs["b"] = wsdesc.train(scene, tmp_path / "b", options=options, device="cpu")
    for path in poses:
        path.unlink()
    runs["c"] = wsdesc.train(scene, tmp_path / "c", options=options, device="cpu")
    weights = [run.weights.read_bytes() for run in runs.values()]
    assert weights[0] == weights[1] == weights[2]
    logs = [read_timeless_log(tmp_path / name / "log.jsonl") for name in "abc"]
    without = [[{k: v for k, v in row.items() if k not in POSE_FIGURES} for row in log] for log in logs]
    assert without[0] == without[1] == without[2]
    assert [row["step"] for row in logs[0] if "held_out_loss" in row] == [2, 3]
    figures = [
        [{k: row[k] for k in POSE_FIGURES & set(row)} for row in log if "held_out_loss" in row]
        for log in logs
    ]
    assert all(set(row) == POSE_FIGURES for row in figures[0] + figures[1])
    assert figures[0] != figures[1]
    assert figures[2] == [{}, {}]
    check_summary(runs["a"], runs["c"])


def check_summary(with_poses, without_poses):
    """The shipped weights are validated on the same held-out pairs, and both figures are printed."""
    assert with_poses.validation.pairs == with_poses.shipped.pairs == 6
    assert with_poses.shipped.poses.inlier_ratio > with_poses.validation.poses.inlier_ratio
    assert without_poses.shipped.poses is None
    assert without_poses.shipped.rigidity == with_poses.shipped.rigidity
    lines = with_poses.summary().splitlines()
    assert lines[1].split() == ["6", "held-out", "pairs", "this", "run", "indoor-fast"]
    both = [with_poses.validation.rigidity.loss, with_poses.shipped.rigidity.loss]
    assert lines[2].split() == ["loss", *(f"{loss:.4f}" for loss in both)]
    assert any(line.strip().startswith("inlier ratio") for line in lines)


def read_timeless_log(path):
    """Read a log without the figures that depend on the clock."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return [{k: v for k, v in row.items() if k not in ("pairs_per_second", "waiting")} for row in rows]


def test_oracle_learns_from_poses_and_needs_them(coarse_scene, tmp_path):
    run = wsdesc.train(coarse_scene, tmp_path / "a", options=quick(steps=1), oracle="infonce", device="cpu")
    assert TrainOptions.load(tmp_path / "a" / "options.yaml").oracle == "infonce"
    started = wsdesc.train(
        coarse_scene, tmp_path / "b", options=quick(steps=1), start=run.folder, device="cpu"
    )
    assert started.options.start == str(run.folder)
    unposed = write_scene(tmp_path / "unposed", room_scans(3, 2, resolution=0.08))
    for path in unposed.glob("*.info.txt"):
        path.unlink()
    with pytest.raises(WSDescError, match="poses"):
        wsdesc.train(unposed, tmp_path / "c", options=quick(), oracle="infonce", device="cpu")


def test_recipe_with_self_training_is_read_with_its_start(coarse_scene, tmp_path, monkeypatch):
    def stop(scans, options, **hooks):
        raise LookupError(options)

    monkeypatch.setattr("wsdesc.learning.training.load_training_data", stop)
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(yaml.safe_dump({"self_training": "infonce", "data": {"window": 8}}))
    with pytest.raises(LookupError) as raised:
        wsdesc.train(coarse_scene, tmp_path, options=recipe, start="indoor", steps=7, synthetic=0.25)
    (options,) = raised.value.args
    assert (options.start, options.steps, options.data.synthetic) == ("indoor", 7, 0.25)
    assert (options.self_training, options.data.window) == ("infonce", 8)


@pytest.mark.parametrize(
    "arguments", [["nowhere"], ["--preset", "outdoor"], ["--config", "missing.yaml"], ["--start", "nothing"]]
)
def test_command_reports_wrong_arguments_before_torch_is_imported(arguments, tmp_path):
    program = (
        "import sys\nfrom wsdesc.cli.app import app\n"
        "try:\n    app(sys.argv[1:])\nfinally:\n    assert 'torch' not in sys.modules\n"
    )
    line = [sys.executable, "-c", program, "train", *arguments, "--out", str(tmp_path / "out")]
    done = subprocess.run(line, capture_output=True, text=True, timeout=60, cwd=tmp_path, check=False)
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith("error: ")
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_empty_folder_is_refused(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(WSDescError, match="empty"):
        wsdesc.train(tmp_path / "empty", tmp_path / "out", device="cpu")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("scans", [np.zeros((9, 3)), [np.zeros((9, 3))], 3, [None]])
def test_scans_in_memory_are_refused(scans, tmp_path):
    with pytest.raises(InputError, match=r"not (ndarray|int|NoneType): write scans"):
        wsdesc.train(scans, tmp_path / "run")
    with pytest.raises(InputError, match="write scans"):
        wsdesc.pairs(scans)
    assert not list(tmp_path.iterdir())
