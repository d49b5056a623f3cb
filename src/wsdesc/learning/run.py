"""A training run in a folder: steps, a log, checkpoints, and at the end the weights."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, cast

import torch
from torch import Tensor

from wsdesc.core.atomic import atomic_write
from wsdesc.core.errors import FileFormatError, InputError
from wsdesc.core.folders import check_links
from wsdesc.descriptor.model import WSDesc
from wsdesc.learning import distributed
from wsdesc.learning.checkpoint import load_checkpoint, save_checkpoint
from wsdesc.learning.options import TrainOptions
from wsdesc.learning.prefetch import Feed
from wsdesc.learning.sources import PairSource
from wsdesc.learning.tensorboard import FOLDER, Board
from wsdesc.learning.trainer import StepReport, Trainer

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
    terms: tuple[str, str] = ("orthogonality", "cycle")  # what the report's two figures beside the loss are


Watch = Callable[[Progress], None]
Validate = Callable[[Trainer], dict[str, float]]
Make = Callable[[TrainOptions, torch.device | str], Trainer]


class Source(Protocol):
    """What a trainer prepares its steps from: a `PairSource`, or one whose pairs come with more."""

    def pair(self, number: int) -> tuple[Tensor, ...]:
        """What belongs to this number."""

    def close(self) -> None:
        """Let go of worker processes."""


def train(
    options: TrainOptions,
    source: Source,
    out: Path,
    *,
    device: torch.device | str = "cpu",
    resume: bool = False,
    stop_after: float = math.inf,
    validate: Validate | None = None,
    watch: Watch = lambda progress: None,
    make: Make | None = None,
    tensorboard: bool = False,
) -> Path | None:
    """Train in the folder `out` and return the path of the weights, or None if seconds ran out before.

    A run that was stopped goes on with `resume`, and ends with the same bits on a CPU as one that was not.
    `validate` gives figures for the log; nothing of it flows back. `make` makes the trainer; without it the
    options say which: the paper's, or with `options.oracle` or `options.self_training` one whose source must
    bring matches.
    `tensorboard` keeps curves of the log in a folder of that name.
    """
    with distributed.process_group() as (rank, processes):
        trainer = (make or _maker(options))(options, device)
        run = _Folder(out, rank)
        step = run.open(trainer, resume, tensorboard)
        feed = Feed(cast(PairSource, source), trainer, rank, processes)
        try:
            step = _steps(trainer, feed, run, step, stop_after, validate, watch)
        finally:
            feed.close()
            source.close()
            run.close()
        if step < options.steps:
            return None
        return run.finish(trainer)


def _maker(options: TrainOptions) -> Make:
    if options.oracle is None and options.self_training is None:
        return Trainer
    from wsdesc.learning.match_trainer import MatchedTrainer

    return MatchedTrainer


def _begin(trainer: Trainer) -> None:
    """Take over the weights that the options want to start from."""
    name, options = trainer.options.start, trainer.options.descriptor
    if name is None:
        return
    given = WSDesc.from_pretrained(name)
    free = {"support_start", "support_range"}
    ours, theirs = options.model_dump(exclude=free), given.options.model_dump(exclude=free)
    differ = [key for key in ours if ours[key] != theirs[key]]
    if differ:
        raise InputError(f"{name}: its descriptor is another one: {', '.join(differ)} differ")
    trainer.model.load_state_dict(given.state_dict())


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
        trainer.pace(step)
        report = trainer.step(feed.take(step))
        step += 1
        run.skipped += report.skipped
        recent.append(report)
        now = time.monotonic()
        pairs = (step - first) * options.pairs_per_step * feed.processes
        progress = Progress(
            step, options.steps, report, run.skipped, pairs / (now - began), feed.waited / (now - began)
        )
        progress.terms = getattr(trainer, "terms", progress.terms)
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
    names = dict(zip(("orthogonality", "cycle"), progress.terms, strict=True))
    means = {
        names.get(field, field): sum(getattr(r, field) for r in good) / len(good) if good else None
        for field in ("loss", "orthogonality", "cycle", "gradient")
    }
    return {
        "step": progress.step,
        **means,
        "support": recent[-1].support,
        "skipped": progress.skipped,
        "pairs_per_second": round(progress.pairs_per_second, 3),
        "waiting": round(progress.waiting, 4),
    }


def read_log(path: Path) -> list[dict[str, Any]]:
    """The rows of a run's log; the line that was being written when the run was killed is none."""
    try:
        lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
        return [json.loads(line) for line in lines if line.endswith(b"\n")]
    except (OSError, ValueError) as error:
        raise FileFormatError(f"{path}: not the log of a training ({error})") from error


class _Folder:
    """The files of a run; only the first process writes them."""

    def __init__(self, path: Path, rank: int) -> None:
        self.path, self.writes = path, rank == 0
        self.skipped = 0
        self.board: Board | None = None

    def open(self, trainer: Trainer, resume: bool, tensorboard: bool) -> int:
        """Make the folder ready and return the number of steps that are done."""
        checkpoint = self.path / CHECKPOINT
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            check_links(self.path)
        except OSError as error:
            raise FileFormatError(f"{self.path}: cannot be used as a folder: {error.strerror}") from error
        if checkpoint.exists() and not resume:
            raise InputError(
                f"{self.path}: a training was begun here; go on with --resume or choose another folder"
            )
        step = 0
        if resume and checkpoint.exists():
            step = load_checkpoint(checkpoint, trainer)
        else:
            _begin(trainer)
        if self.writes:
            trainer.options.save(self.path / OPTIONS)
            rows = self._cut_log(step)
            if tensorboard:
                self.board = Board(self.path / FOLDER, rows)
        return step

    def close(self) -> None:
        if self.board is not None:
            self.board.close()

    def _cut_log(self, step: int) -> list[dict[str, Any]]:
        """Forget what was logged after the checkpoint, and take up the count of skipped steps; the rest."""
        path = self.path / LOG
        rows = [row for row in read_log(path) if row["step"] <= step]
        self.skipped = next((row["skipped"] for row in reversed(rows) if "skipped" in row), 0)
        with atomic_write(path) as temporary:
            temporary.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        return rows

    def log(self, row: dict[str, Any]) -> None:
        path = self.path / LOG
        try:
            if self.writes:
                with path.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(row) + "\n")
        except OSError as error:
            raise FileFormatError(f"{path}: cannot be written: {error.strerror or error}") from error
        if self.board is not None:
            self.board.add(row)

    def checkpoint(self, trainer: Trainer, step: int) -> None:
        if self.writes:
            save_checkpoint(self.path / CHECKPOINT, trainer, step)

    def finish(self, trainer: Trainer) -> Path:
        path = self.path / WEIGHTS
        if self.writes:
            trainer.model.save(path)
        return path
