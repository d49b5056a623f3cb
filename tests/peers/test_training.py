"""Trainings of peers: files, resumption, seeds, poses that nobody opens, and bad input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor, nn
from typer.testing import CliRunner

from wsdesc import peers, write_points
from wsdesc.cli.app import app
from wsdesc.core.errors import FileFormatError, InputError
from wsdesc.peers import training
from wsdesc.peers.training import PeerTask, PeerTrainOptions, TrainingClouds, task_of, train_peer


class MeanOptions(PeerTrainOptions):
    """Options of the task below."""

    width: int = 4
    fails_at: int = -1


class MeanTask(PeerTask):
    """A small task: learn the mean of random points."""

    options_type = MeanOptions

    def __init__(self, options: MeanOptions, clouds: TrainingClouds, device: torch.device) -> None:
        super().__init__(options, clouds, device)
        self.points = torch.cat(clouds.clouds).to(device)
        self.network = nn.Sequential(nn.Linear(3, options.width), nn.BatchNorm1d(options.width)).to(device)
        self.calls = 0

    def batch(self, generator: torch.Generator) -> Tensor:
        index = torch.randint(len(self.points), (self.options.batch,), generator=generator)
        return self.points[index]

    def loss(self, batch: Tensor, generator: torch.Generator) -> Tensor:
        self.calls += 1
        noise = torch.rand(len(batch), self.options.width, generator=generator)
        loss = (self.network(batch) - noise).square().mean()
        return loss * float("nan") if self.calls == self.options.fails_at else loss


@pytest.fixture
def scans(tmp_path: Path) -> Path:
    folder = tmp_path / "scans"
    folder.mkdir()
    rng = np.random.default_rng(0)
    for k in range(2):
        write_points(folder / f"cloud_bin_{k}.ply", rng.uniform(0, 3, (300, 3)))
        (folder / f"cloud_bin_{k}.info.txt").write_text("not a pose\n")
    return folder


@pytest.fixture(autouse=True)
def mean_task(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(training._TASKS, "mean", ("tests", "MeanTask"))
    real = training.task_of
    monkeypatch.setattr(training, "task_of", lambda name: MeanTask if name == "mean" else real(name))


def options(**changes: Any) -> MeanOptions:
    return MeanOptions.read({"unit": 1.0, "batch": 8, "steps": 6, **changes})


def train_mean(scans: Path, out: Path, **arguments: Any) -> Any:
    return train_peer("mean", scans, out, **{"options": options(), "device": "cpu", **arguments})


def test_a_run_writes_weights_with_their_options(scans: Path, tmp_path: Path) -> None:
    reports = []
    run = train_mean(scans, tmp_path / "run", on_step=reports.append, seed=3)
    assert run.weights == tmp_path / "run" / "mean.safetensors"
    assert [report.step for report in reports] == [6]
    assert reports[0].share == 1.0
    with safe_open(str(run.weights), framework="pt") as file:
        header = json.loads(file.metadata()["wsdesc-peer"])
    assert header["peer"] == "mean"
    assert header["options"]["seed"] == 3
    assert "scans" not in header["options"]  # paths of the machine are nobody's business
    rows = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [6]
    assert "--peer-weights" in run.summary()


def test_the_same_seed_gives_the_same_weights(scans: Path, tmp_path: Path) -> None:
    first, again, other = (
        load_file(train_mean(scans, tmp_path / name, seed=seed).weights)
        for name, seed in (("a", 1), ("b", 1), ("c", 2))
    )
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["0.weight"], other["0.weight"])


def test_a_resumed_run_equals_an_uninterrupted_one(scans: Path, tmp_path: Path) -> None:
    whole = load_file(train_mean(scans, tmp_path / "whole").weights)

    def interrupt(progress: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):  # the checkpoint of step 1 is written before step 2 reports
        train_mean(
            scans,
            tmp_path / "parts",
            options=options(checkpoint_minutes=1e-9),
            on_step=lambda progress: interrupt(progress) if progress.step == 4 else None,
        )
    run = train_peer("mean", out=tmp_path / "parts", resume=True, device="cpu")
    parts = load_file(run.weights)
    assert all(torch.equal(whole[name], parts[name]) for name in whole)
    rows = [json.loads(line)["step"] for line in (tmp_path / "parts" / "log.jsonl").read_text().splitlines()]
    assert rows == sorted(set(rows))
    assert train_peer("mean", out=tmp_path / "parts", resume=True, device="cpu").last is None


def test_minutes_end_the_training_with_weights(scans: Path, tmp_path: Path) -> None:
    run = train_mean(scans, tmp_path / "run", steps=10**9, minutes=0.002)
    assert run.weights.is_file()
    assert run.last.step < 10**9
    assert run.last.share == 1.0


def test_poses_are_never_opened(scans: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import io

    opened: list[str] = []
    real = io.open

    def watch(file: Any, *arguments: Any, **named: Any) -> Any:
        opened.append(str(file))
        return real(file, *arguments, **named)

    monkeypatch.setattr("builtins.open", watch)
    monkeypatch.setattr("io.open", watch)
    train_mean(scans, tmp_path / "run")
    assert any(name.endswith("cloud_bin_0.ply") for name in opened)
    assert not any(name.endswith(".info.txt") for name in opened)


def test_a_loss_that_is_not_finite(scans: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"loss is not finite at step 6: lower learning_rate \(0.001\)"):
        train_mean(scans, tmp_path / "run", options=options(fails_at=3))
    assert not (tmp_path / "run" / "mean.safetensors").exists()
    assert not (tmp_path / "run" / "checkpoint.safetensors").exists()


def test_a_folder_with_a_training_is_kept(scans: Path, tmp_path: Path) -> None:
    train_mean(scans, tmp_path / "run")
    with pytest.raises(InputError, match=r"contains a training; continue it with --resume"):
        train_mean(scans, tmp_path / "run")
    with pytest.raises(InputError, match=r"saved with other options: width differ"):
        train_mean(scans, tmp_path / "run", options=options(width=5), resume=True)
    (tmp_path / "run" / "checkpoint.safetensors").write_bytes(b"rubbish")
    with pytest.raises(FileFormatError, match=r"not a training checkpoint"):
        train_peer("mean", out=tmp_path / "run", resume=True, device="cpu")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"peer": "fpfh"}, r"peer 'fpfh' cannot be trained: choose ppf-foldnet"),
        ({"scans": ()}, r"scans is an empty list"),
        ({"scans": None}, r"no scans were given"),
        ({"minutes": 0}, r"minutes must be above 0"),
        ({"steps": 0}, r"steps: "),
        ({"resume": True, "options": None}, r"no training to resume"),
        ({"device": "tpu"}, r"unknown device 'tpu'"),
        ({"options": PeerTrainOptions()}, r"options must be MeanOptions"),
        ({"scans": [np.zeros((5, 3))]}, r"training reads files and folders of scans, not ndarray"),
    ],
)
def test_bad_arguments(scans: Path, tmp_path: Path, arguments: dict[str, Any], message: str) -> None:
    given = {"peer": "mean", "scans": scans, "out": tmp_path / "run", "options": options(), "device": "cpu"}
    with pytest.raises(InputError, match=message):
        train_peer(**{**given, **arguments})


def test_without_a_gpu(scans: Path, tmp_path: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    with pytest.raises(InputError, match="choose device cpu"):
        train_mean(scans, tmp_path / "run", device="cuda")


@pytest.mark.parametrize("peer", training.trainable())
def test_scans_that_are_too_small(peer: str, tmp_path: Path) -> None:
    folder = tmp_path / "scans"
    folder.mkdir()
    write_points(folder / "small.ply", np.random.default_rng(0).uniform(0, 1, (20, 3)))
    with pytest.raises(InputError, match=r"too small|ModelNet40|pose of each scan"):
        train_peer(peer, folder, tmp_path / "run", device="cpu", steps=1)
    assert not (tmp_path / "run" / f"{peer}.safetensors").exists()


@pytest.mark.parametrize("peer", training.trainable())
def test_every_trainable_peer_is_a_peer_with_a_recipe(peer: str) -> None:
    assert peer in peers.names()
    recipe = Path(__file__).parents[2] / "recipes" / "peers" / f"{peer}.yaml"
    task_of(peer).options_type.load(recipe)


def test_the_command(scans: Path, tmp_path: Path) -> None:
    config = tmp_path / "mean.yaml"
    options().save(config)
    out = tmp_path / "run"
    command = ["train", "--peer", "mean", str(scans), "-o", str(out), "--device", "cpu"]
    result = CliRunner().invoke(app, [*command, "--config", str(config), "--steps", "3"])
    assert result.exit_code == 0, result.output
    assert f"--peer-weights {out}" in result.output.replace("\n", " ")
    result = CliRunner().invoke(app, ["train", "--peer", "mean", str(scans), "--preset", "small"])
    assert result.exit_code == 2
    assert "--preset is no option of the training of a peer" in result.output
