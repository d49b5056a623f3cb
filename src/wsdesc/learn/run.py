"""A training run in a folder: steps, a log, checkpoints, and at the end the weights."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from wsdesc.errors import FileFormatError, InputError
from wsdesc.learn import distributed
from wsdesc.learn.checkpoint import load_checkpoint, save_checkpoint
from wsdesc.learn.feed import Feed
from wsdesc.learn.options import TrainOptions
from wsdesc.learn.sources import PairSource
from wsdesc.learn.trainer import StepReport, Trainer

OPTIONS, CHECKPOINT, LOG, WEIGHTS = "options.yaml", "checkpoint.safetensors", "log.jsonl", "model.safetensors"
_LOG_EVERY = 50  # steps


@dataclass
class Progress:
    """Where a run stands, for whoever watches."""

    step: int  # finished ones
    steps: int
    report: StepReport
    skipped: int  # since the start
    pairs_per_second: float  # since this process began
    waiting: float  # share of the time spent on waiting for data


Watch = Callable[[Progress], None]
Validate = Callable[[Trainer], dict[str, float]]


def train(
    options: TrainOptions,
    source: PairSource,
    out: Path,
    *,
    device: torch.device | str = "cpu",
    resume: bool = False,
    stop_after: float = math.inf,
    validate: Validate | None = None,
    watch: Watch = lambda progress: None,
) -> Path | None:
    """Train in the folder `out` and return the path of the weights, or None if seconds ran out before.

    A run that was stopped goes on with `resume`, and ends with the same bits on a CPU as one that was not.
    `validate` gives figures for the log; nothing of it flows back.
    """
    with distributed.process_group() as (rank, processes):
        trainer = Trainer(options, device)
        run = _Folder(out, rank)
        step = run.open(trainer, resume)
        feed = Feed(source, trainer, rank, processes)
        try:
            step = _steps(trainer, feed, run, step, stop_after, validate, watch)
        finally:
            feed.close()
            source.close()
        if step < options.steps:
            return None
        return run.finish(trainer)


def _steps(
    trainer: Trainer,
    feed: Feed,
    run: _Folder,
    first: int,
    stop_after: float,
    validate: Validate | None,
    watch: Watch,
) -> int:
    """Steps from `first` on; returns how many are behind when all are done or the time is up."""
    options = trainer.options
    began = saved = time.monotonic()
    recent: list[StepReport] = []
    step = first
    while step < options.steps:
        report = trainer.step(feed.take(step))
        step += 1
        run.skipped += report.skipped
        recent.append(report)
        now = time.monotonic()
        pairs = (step - first) * options.pairs_per_step * feed.processes
        progress = Progress(
            step, options.steps, report, run.skipped, pairs / (now - began), feed.waited / (now - began)
        )
        watch(progress)
        if step % _LOG_EVERY == 0 or step == options.steps:
            run.log(_summary(recent, progress))
            recent = []
        if validate and (step % options.validate_every == 0 or step == options.steps):
            run.log({"step": step, **validate(trainer)})
        late = now - began > stop_after
        if late or step == options.steps or now - saved > 60 * options.checkpoint_minutes:
            run.checkpoint(trainer, step)
            saved = time.monotonic()
        if late:
            break
    return step


def _summary(recent: list[StepReport], progress: Progress) -> dict[str, Any]:
    good = [r for r in recent if not r.skipped]
    means = {
        name: sum(getattr(r, name) for r in good) / len(good) if good else None
        for name in ("loss", "orthogonality", "cycle", "gradient")
    }
    return {
        "step": progress.step,
        **means,
        "support": recent[-1].support,
        "skipped": progress.skipped,
        "pairs_per_second": round(progress.pairs_per_second, 3),
        "waiting": round(progress.waiting, 4),
    }


class _Folder:
    """The files of a run; only the first process writes them."""

    def __init__(self, path: Path, rank: int) -> None:
        self.path, self.writes = path, rank == 0
        self.skipped = 0

    def open(self, trainer: Trainer, resume: bool) -> int:
        """Make the folder ready and return the number of steps that are done."""
        checkpoint = self.path / CHECKPOINT
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise FileFormatError(f"{self.path}: cannot be used as a folder: {error.strerror}") from error
        if checkpoint.exists() and not resume:
            raise InputError(
                f"{self.path}: a training was begun here; go on with --resume or choose another folder"
            )
        step = load_checkpoint(checkpoint, trainer) if resume and checkpoint.exists() else 0
        if self.writes:
            trainer.options.save(self.path / OPTIONS)
            self._cut_log(step)
        return step

    def _cut_log(self, step: int) -> None:
        """Forget what was logged after the checkpoint, and take up the count of skipped steps."""
        path = self.path / LOG
        rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        rows = [row for row in rows if row["step"] <= step]
        self.skipped = next((row["skipped"] for row in reversed(rows) if "skipped" in row), 0)
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))

    def log(self, row: dict[str, Any]) -> None:
        if self.writes:
            with (self.path / LOG).open("a") as file:
                file.write(json.dumps(row) + "\n")

    def checkpoint(self, trainer: Trainer, step: int) -> None:
        if self.writes:
            save_checkpoint(self.path / CHECKPOINT, trainer, step)

    def finish(self, trainer: Trainer) -> Path:
        path = self.path / WEIGHTS
        if self.writes:
            trainer.model.save(path)
        return path
