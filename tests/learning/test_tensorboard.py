"""Curves for TensorBoard: the numbers of the log, each once, also when a run went on."""

from __future__ import annotations

import json
import sys
from importlib.util import find_spec

import pytest
import torch

from wsdesc import WSDescError
from wsdesc.learning import tensorboard as board
from wsdesc.learning.options import TrainOptions
from wsdesc.learning.run import train
from wsdesc.learning.sources import ScanPairs, drop_sparse
from wsdesc.learning.tensorboard import Board, check_installed

OPTIONS = {"descriptor": {"width": 0.0625, "resolution": 8, "support_start": 1.2}, "keypoints": 32}


class Fake:
    """A writer that keeps its numbers in a file of the name TensorBoard's would have."""

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


def drawn(folder):
    """All points of all files: (tag, step) to values."""
    points = {}
    for path in folder.glob("events*"):
        for line in path.read_text().splitlines():
            tag, step, value = json.loads(line)
            points.setdefault((tag, step), []).append(value)
    return points


def test_rows_become_points(tmp_path):
    made = Board(tmp_path / "tb", [{"step": 1, "loss": 0.5}], Fake)
    made.add({"step": 2, "loss": None, "support": float("nan"), "skipped": 3})
    made.add({"step": 2, "held_out_loss": 0.25})
    made.close()
    assert drawn(tmp_path / "tb") == {
        ("train/loss", 1): [0.5],
        ("train/skipped", 2): [3.0],
        ("held_out/loss", 2): [0.25],
    }


def test_a_run_that_went_on_has_each_point_once(room, tmp_path, monkeypatch):
    monkeypatch.setattr(board, "_writer", Fake)
    monkeypatch.setattr("wsdesc.learning.run._LOG_EVERY", 2)
    clouds = [drop_sparse(torch.as_tensor(c), 0.3, 0.45)[::4] for c in (room.source, room.target)]
    source = ScanPairs(clouds, [(0, 1)], seed=0)
    options = TrainOptions.read({**OPTIONS, "steps": 6, "validate_every": 3})
    look = {"validate": lambda trainer: {"held_out_loss": 1.0}, "tensorboard": True}

    def break_off(progress):
        if progress.step == 5:  # after step 4 was logged; the last checkpoint is of step 1
            raise KeyboardInterrupt

    assert train(options, source, tmp_path, stop_after=0, **look) is None
    with pytest.raises(KeyboardInterrupt):
        train(options, source, tmp_path, resume=True, watch=break_off, **look)
    assert ("train/loss", 4) in drawn(tmp_path / "tensorboard")
    train(options, source, tmp_path, resume=True, **look)
    points = drawn(tmp_path / "tensorboard")
    assert all(len(values) == 1 for values in points.values())
    assert {step for tag, step in points if tag == "train/loss"} == {2, 4, 6}
    assert {step for tag, step in points if tag == "held_out/loss"} == {3, 6}


def test_without_the_extra_it_says_what_to_type(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    monkeypatch.delitem(sys.modules, "torch.utils.tensorboard", raising=False)
    with pytest.raises(WSDescError, match=r'pip install "wsdesc\[logs\]"'):
        check_installed()
    with pytest.raises(WSDescError, match=r'pip install "wsdesc\[logs\]"'):
        Board(tmp_path)


@pytest.mark.skipif(find_spec("tensorboard") is None, reason="the extra `logs` is not installed")
def test_tensorboard_reads_what_was_written(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    for _ in range(2):  # the second draws anew
        made = Board(tmp_path, [{"step": 1, "loss": 0.5}, {"step": 2, "loss": 0.25}])
        made.close()
    read = EventAccumulator(str(tmp_path)).Reload()
    assert [(e.step, e.value) for e in read.Scalars("train/loss")] == [(1, 0.5), (2, 0.25)]
