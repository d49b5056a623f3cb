"""TensorBoard files: the numbers of the log, each once, also in a resumed run."""

from __future__ import annotations

import json
import sys
from importlib.util import find_spec

import pytest

from tiny_training import tiny
from wsdesc import WSDescError
from wsdesc.learning import tensorboard
from wsdesc.learning.run import run_training
from wsdesc.learning.tensorboard import TensorBoardLog, check_installed


class FakeWriter:
    """A writer of text files that are named as those of TensorBoard."""

    def __init__(self, folder):
        count = len(list(folder.iterdir()))
        self.path = folder / f"events.out.tfevents.{count}"
        self.path.touch()
        self.closed = False

    def add_scalar(self, tag, scalar_value, global_step):
        with self.path.open("a") as file:
            file.write(json.dumps([tag, global_step, scalar_value]) + "\n")

    def flush(self):
        pass

    def close(self):
        self.closed = True


def read_points(folder):
    """Read all values of all files by (tag, step)."""
    points = {}
    for path in folder.glob("events*"):
        for line in path.read_text().splitlines():
            tag, step, value = json.loads(line)
            points.setdefault((tag, step), []).append(value)
    return points


def test_rows_become_scalars(tmp_path):
    log = TensorBoardLog(tmp_path / "tb", [{"step": 1, "loss": 0.5}], FakeWriter)
    log.add({"step": 2, "loss": None, "support": float("nan"), "skipped": 3})
    log.add({"step": 2, "held_out_loss": 0.25})
    log.close()
    assert read_points(tmp_path / "tb") == {
        ("train/loss", 1): [0.5],
        ("train/skipped", 2): [3.0],
        ("held_out/loss", 2): [0.25],
    }


@pytest.mark.slow
def test_resumed_run_has_each_value_once(source, tmp_path, monkeypatch):
    monkeypatch.setattr(tensorboard, "_open_writer", FakeWriter)
    monkeypatch.setattr("wsdesc.learning.run._LOG_EVERY", 2)
    options = tiny(keypoints=32, steps=6, validate_every=3)
    hooks = {"validate": lambda trainer: {"held_out_loss": 1.0}, "tensorboard": True}

    def interrupt(progress):
        if progress.step == 5:  # step 4 is logged, but the last checkpoint is that of step 1
            raise KeyboardInterrupt

    assert not run_training(options, source, tmp_path, stop_after=0, **hooks).finished
    with pytest.raises(KeyboardInterrupt):
        run_training(options, source, tmp_path, resume=True, on_step=interrupt, **hooks)
    assert ("train/loss", 4) in read_points(tmp_path / "tensorboard")
    run_training(options, source, tmp_path, resume=True, **hooks)
    points = read_points(tmp_path / "tensorboard")
    assert all(len(values) == 1 for values in points.values())
    assert {step for tag, step in points if tag == "train/loss"} == {2, 4, 6}
    assert {step for tag, step in points if tag == "held_out/loss"} == {3, 6}


def test_missing_extra_is_named_with_its_install_line(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    monkeypatch.delitem(sys.modules, "torch.utils.tensorboard", raising=False)
    with pytest.raises(WSDescError, match='pip install "tensorboard'):
        check_installed()
    with pytest.raises(WSDescError, match='pip install "tensorboard'):
        TensorBoardLog(tmp_path)


@pytest.mark.skipif(find_spec("tensorboard") is None, reason="the extra `logs` is not installed")
def test_tensorboard_reads_the_files(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    for _ in range(2):  # the second replaces the first
        log = TensorBoardLog(tmp_path, [{"step": 1, "loss": 0.5}, {"step": 2, "loss": 0.25}])
        log.close()
    events = EventAccumulator(str(tmp_path)).Reload()
    assert [(e.step, e.value) for e in events.Scalars("train/loss")] == [(1, 0.5), (2, 0.25)]
