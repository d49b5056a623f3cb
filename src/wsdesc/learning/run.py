"""Run a training in a folder: steps, log, checkpoints and the final weights."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, cast

import torch
from torch import Tensor

from wsdesc.learning import distributed
from wsdesc.learning.options import TrainOptions
from wsdesc.learning.prefetch import Prefetcher
from wsdesc.learning.run_folder import RunFolder
from wsdesc.learning.sources import PairSource
from wsdesc.learning.trainer import StepResult, Trainer
from wsdesc.learning.validation import TeacherAgreement, Validation, comparison_table

_LOG_EVERY = 50  # steps


@dataclass(frozen=True)
class TrainingProgress:
    """The state of a training after a step."""

    step: int  # finished steps
    steps: int
    result: StepResult
    skipped: int  # steps since the start of the training
    pairs_per_second: float  # since the start of this process
    waiting: float  # share of the time spent waiting for data


StepHook = Callable[[TrainingProgress], None]
"""Called after each step."""

ValidationHook = Callable[[Trainer], dict[str, float]]
"""Compute figures on held-out pairs for the log; the training does not use them."""

MakeTrainer = Callable[[TrainOptions, torch.device | str], Trainer]


@dataclass(frozen=True)
class TrainingRun:
    """The result of a training: its folder, weights, and figures on held-out scans."""

    folder: Path
    options: TrainOptions
    step: int  # finished steps
    weights: Path | None  # None if the training stopped before its last step
    validation: Validation | None = None  # figures of the trained weights; None without held-out pairs
    shipped: Validation | None = None  # figures of the shipped weights on the same pairs
    shipped_name: str = ""  # name of the shipped weights
    agreement: TeacherAgreement | None = None  # agreement of a distilled student with its teacher

    @property
    def finished(self) -> bool:
        """True if all steps are done."""
        return self.weights is not None

    def summary(self) -> str:
        """Describe the run in a few lines, with the shipped weights' figures for comparison."""
        lines = [f"{self.folder}: step {self.step} of {self.options.steps}"]
        if self.weights is not None:
            lines = [f"weights: {self.weights}"]
        if self.validation is not None:
            columns = {"this run": self.validation}
            if self.shipped is not None:
                columns[self.shipped_name] = self.shipped
            lines += comparison_table(columns)
        if self.agreement is not None:
            lines.append(f"held-out scans: {self.agreement}")
        return "\n".join(lines)


class TrainingSource(Protocol):
    """Pairs for a trainer: a `PairSource`, or a source whose pairs have matches for a `MatchTrainer`."""

    def pair(self, index: int) -> tuple[Tensor, ...]:
        """Return the arguments of `Trainer.prepare` at this index."""

    def close(self) -> None:
        """End worker processes."""


def run_training(
    options: TrainOptions,
    source: TrainingSource,
    out: Path,
    *,
    device: torch.device | str = "cpu",
    resume: bool = False,
    stop_after: float = math.inf,
    validate: ValidationHook | None = None,
    on_step: StepHook = lambda progress: None,
    make_trainer: MakeTrainer | None = None,
    tensorboard: bool = False,
) -> TrainingRun:
    """Train in the folder `out`.

    A resumed run on the CPU gives the same weights, bit for bit, as an uninterrupted one.

    Args:
        options: Options of the training.
        source: Training pairs; closed at the end.
        out: Folder of the run.
        device: Device of the model.
        resume: Continue from the checkpoint in `out`, if it has one.
        stop_after: Seconds after which the training stops with a checkpoint.
        validate: Figures for the log.
        on_step: Called after each step.
        make_trainer: Creates the trainer; None: `Trainer`, or `MatchTrainer` if the options set `oracle` or
            `self_training`.
        tensorboard: Write curves for TensorBoard.

    Raises:
        InputError: `out` has a checkpoint and `resume` is False, or the checkpoint has other options.
        FileFormatError: The folder cannot be written or read.
    """
    with distributed.process_group() as (rank, processes):
        trainer = (make_trainer or _trainer_class(options))(options, device)
        folder = RunFolder(out, writes=rank == 0)
        first = folder.open(trainer, resume, tensorboard)
        prefetcher = Prefetcher(cast(PairSource, source), trainer, rank, processes)
        try:
            step = _run_steps(trainer, prefetcher, folder, first, stop_after, validate, on_step)
        finally:
            prefetcher.close()
            source.close()
            folder.close()
        weights = folder.save_weights(trainer) if step >= options.steps else None
        return TrainingRun(out, options, step, weights)


def _trainer_class(options: TrainOptions) -> MakeTrainer:
    if options.oracle is None and options.self_training is None:
        return Trainer
    from wsdesc.learning.match_trainer import MatchTrainer

    return MatchTrainer


def _run_steps(
    trainer: Trainer,
    prefetcher: Prefetcher,
    folder: RunFolder,
    first: int,
    stop_after: float,
    validate: ValidationHook | None,
    on_step: StepHook,
) -> int:
    """Run steps from `first` until all are done or the time is over; return the number of finished steps."""
    options = trainer.options
    start = saved = time.monotonic()
    recent: list[StepResult] = []
    step = first
    while step < options.steps:
        trainer.set_learning_rates(step)
        result = trainer.step(prefetcher.take(step))
        step += 1
        folder.skipped += result.skipped
        recent.append(result)
        now = time.monotonic()
        seconds = max(now - start, 1e-9)
        pairs = (step - first) * options.pairs_per_step * prefetcher.processes
        progress = TrainingProgress(
            step, options.steps, result, folder.skipped, pairs / seconds, prefetcher.waited / seconds
        )
        on_step(progress)
        if step % _LOG_EVERY == 0 or step == options.steps:
            folder.log(_log_row(recent, progress))
            recent = []
        if validate and (step % options.validate_every == 0 or step == options.steps):
            folder.log({"step": step, **validate(trainer)})
        time_over = now - start > stop_after
        if time_over or step == options.steps or now - saved > 60 * options.checkpoint_minutes:
            folder.save_checkpoint(trainer, step)
            saved = time.monotonic()
        if time_over:
            break
    return step


def _log_row(recent: list[StepResult], progress: TrainingProgress) -> dict[str, Any]:
    """Average the steps since the last row; skipped steps do not count."""
    counted = [r for r in recent if not r.skipped]

    def mean(values: list[float]) -> float | None:
        return sum(values) / len(values) if values else None

    return {
        "step": progress.step,
        "loss": mean([r.loss for r in counted]),
        **{name: mean([r.terms[name] for r in counted]) for name in progress.result.terms},
        "gradient_norm": mean([r.gradient_norm for r in counted]),
        "support": progress.result.support,
        "skipped": progress.skipped,
        "pairs_per_second": round(progress.pairs_per_second, 3),
        "waiting": round(progress.waiting, 4),
    }
