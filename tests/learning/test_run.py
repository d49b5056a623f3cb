"""Runs in a folder: files, resuming, kills, skipped steps."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from tiny_training import DESCRIPTOR, tiny
from wsdesc import WSDesc, WSDescError
from wsdesc.core.errors import FileFormatError
from wsdesc.learning.checkpoint import load_checkpoint
from wsdesc.learning.options import TrainOptions
from wsdesc.learning.prefetch import Prefetcher
from wsdesc.learning.run import run_training
from wsdesc.learning.run_folder import read_log
from wsdesc.learning.trainer import Trainer


def test_run_writes_weights_options_and_log(source, tmp_path):
    steps = []
    run = run_training(tiny(steps=3), source, tmp_path / "run", on_step=steps.append)
    assert run.finished
    assert [p.step for p in steps] == [1, 2, 3]
    assert set(steps[0].result.terms) == {"orthogonality", "cycle"}
    model = WSDesc.from_pretrained(run.weights)
    assert model.options.width == 0.0625
    assert TrainOptions.load(tmp_path / "run" / "options.yaml") == tiny(steps=3)
    rows = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    assert rows[-1]["step"] == 3
    assert rows[-1]["support"] == pytest.approx(model.support.size.item())
    assert rows[-1]["support"] != 1.2
    assert {"loss", "orthogonality", "cycle", "gradient_norm", "skipped"} <= set(rows[-1])


def test_model_is_found_by_the_folder_of_its_run(source, tmp_path):
    run = run_training(tiny(steps=1), source, tmp_path / "mine")
    by_folder, by_file = (WSDesc.from_pretrained(path) for path in (run.folder, run.weights))
    assert all(torch.equal(a, b) for a, b in zip(by_folder.parameters(), by_file.parameters(), strict=True))


def test_resumed_run_gives_equal_bits(source, tmp_path):
    whole = run_training(tiny(steps=4), source, tmp_path / "whole")
    first = run_training(tiny(steps=4), source, tmp_path / "parts", stop_after=0)
    assert (first.finished, first.step) == (False, 1)
    parts = run_training(tiny(steps=4), source, tmp_path / "parts", resume=True)
    assert whole.weights.read_bytes() == parts.weights.read_bytes()


def test_equal_seeds_give_equal_bits_and_other_seeds_do_not(source, tmp_path):
    bits = [
        run_training(tiny(steps=1, seed=seed), source, tmp_path / name).weights.read_bytes()
        for name, seed in (("a", 0), ("b", 0), ("c", 1))
    ]
    assert bits[0] == bits[1] != bits[2]


def test_existing_training_is_continued_only_with_resume(source, tmp_path):
    run_training(tiny(steps=1), source, tmp_path)
    with pytest.raises(WSDescError, match="resume"):
        run_training(tiny(steps=1), source, tmp_path)


def test_checkpoint_with_other_options_is_refused(source, tmp_path):
    run_training(tiny(steps=1), source, tmp_path)
    with pytest.raises(WSDescError, match="learning_rate"):
        run_training(tiny(steps=2, learning_rate=0.1), source, tmp_path, resume=True)


def test_incomplete_log_line_is_dropped(source, tmp_path):
    run_training(tiny(steps=2), source, tmp_path)
    log = tmp_path / "log.jsonl"
    rows = read_log(log)
    with log.open("a") as file:
        file.write('{"step": 1, "lo')
    assert read_log(log) == rows
    run_training(tiny(steps=3), source, tmp_path, resume=True)
    assert [row["step"] for row in read_log(log)] == [row["step"] for row in rows] + [3]
    log.write_text("nonsense\n")
    with pytest.raises(FileFormatError, match=r"log\.jsonl"):
        run_training(tiny(steps=4), source, tmp_path, resume=True)


KILLED_PROGRAM = """
import torch
from pathlib import Path
from wsdesc.learning.options import TrainOptions
from wsdesc.learning.run import run_training
from wsdesc.learning.sources import ScanPairs

clouds = torch.load({clouds!r}, weights_only=True)
options = TrainOptions.load({options!r})
run_training(options, ScanPairs(clouds, [(0, 1), (1, 0)], seed=0), Path({out!r}), resume=True)
"""


@pytest.mark.slow
def test_killed_run_continues_from_its_checkpoint(source, tmp_path):
    options = tiny(steps=25, checkpoint_minutes=1e-3)
    options.save(tmp_path / "options.yaml")
    torch.save([c.contiguous() for c in source.clouds], tmp_path / "clouds.pt")
    out = tmp_path / "run"
    program = KILLED_PROGRAM.format(
        clouds=str(tmp_path / "clouds.pt"), options=str(tmp_path / "options.yaml"), out=str(out)
    )
    process = subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not (out / "checkpoint.safetensors").exists():
        assert process.poll() is None, "the training ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (out / "model.safetensors").exists()
    finished = load_checkpoint(out / "checkpoint.safetensors", Trainer(options))
    assert 1 <= finished < 25
    resumed = run_training(options, source, out, resume=True)
    whole = run_training(options, source, tmp_path / "whole")
    assert resumed.weights.read_bytes() == whole.weights.read_bytes()


def test_step_with_a_large_loss_is_skipped_and_counted(source, tmp_path):
    trainer = Trainer(tiny(max_loss=1e-9))
    before = {name: p.clone() for name, p in trainer.model.state_dict().items()}
    result = trainer.step(Prefetcher(source, trainer).take(0))
    assert result.skipped
    assert all(torch.equal(p, before[name]) for name, p in trainer.model.state_dict().items())
    steps = []
    run_training(tiny(steps=2, max_loss=1e-9), source, tmp_path, on_step=steps.append)
    assert steps[-1].skipped == 2


def test_training_starts_from_given_weights(source, tmp_path):
    torch.manual_seed(5)
    given = WSDesc(**{**DESCRIPTOR, "support_start": 1.0})
    given.save(tmp_path / "given.safetensors")
    options = tiny(steps=1, max_loss=1e-9, start=str(tmp_path / "given.safetensors"))
    run = run_training(options, source, tmp_path / "run")  # its one step is skipped
    trained = WSDesc.from_pretrained(run.weights).state_dict()
    assert all(torch.equal(t, trained[name]) for name, t in given.state_dict().items())
    other = tiny(start=options.start, descriptor={**DESCRIPTOR, "width": 0.125})
    with pytest.raises(WSDescError, match="width"):
        run_training(other, source, tmp_path / "other")


def test_summary_names_weights_or_progress(source, tmp_path):
    stopped = run_training(tiny(steps=2), source, tmp_path, stop_after=0)
    assert "step 1 of 2" in stopped.summary()
    finished = run_training(tiny(steps=2), source, Path(tmp_path), resume=True)
    assert finished.summary() == f"weights: {tmp_path / 'model.safetensors'}"
