"""Options, progress bars and messages of the training commands."""

from __future__ import annotations

import logging
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from wsdesc.cli.options import field_option
from wsdesc.learning.options import DataOptions, TrainOptions

if TYPE_CHECKING:
    from wsdesc.core.progress import ProgressHook
    from wsdesc.learning.run import StepHook, TrainingProgress, TrainingRun
    from wsdesc.peers.training import PeerProgress, PeerStepHook


Scans = Annotated[list[Path] | None, typer.Argument(help=TrainOptions.model_fields["scans"].description)]
Steps = Annotated[int | None, field_option(TrainOptions, "steps")]
Seed = Annotated[int | None, field_option(TrainOptions, "seed")]
Synthetic = Annotated[float | None, field_option(DataOptions, "synthetic")]
Window = Annotated[int | None, field_option(DataOptions, "window")]
Minutes = Annotated[
    float | None, typer.Option(min=0, help="Minutes until the training stops; the same run can be continued.")
]
Resume = Annotated[
    bool, typer.Option("--resume", help="Continuation of the run in --out, with its options and scans.")
]
TensorBoard = Annotated[
    bool, typer.Option("--tensorboard", help="Curves for TensorBoard in the run's folder.")
]
Config = Annotated[Path | None, typer.Option(help="YAML file of options, instead of a preset.")]


def check_arguments(
    device: str, scans: Sequence[Path], weights: Sequence[str | None] = (), out: Path | None = None
) -> None:
    """Check device, scans, weights and the folder for results before torch is imported."""
    from wsdesc.cli.checks import check_exist, check_new_folder
    from wsdesc.core.devices import check_device
    from wsdesc.descriptor.pretrained import find

    check_device(device)
    check_exist(scans)
    for name in weights:
        if name is not None:
            find(name)
    if out is not None:
        check_new_folder(out)


@dataclass(frozen=True)
class TrainingDisplay:
    """The hooks of a training that a terminal shows."""

    progress: ProgressHook
    on_step: Callable[[], StepHook]  # starts a new bar


@contextmanager
def training_display() -> Iterator[TrainingDisplay]:
    """Show progress bars on a terminal, and print the messages of the library."""
    with _progress_bars() as (bars, progress), printed_messages():
        yield TrainingDisplay(progress, lambda: _show_steps(bars))


@contextmanager
def peer_display() -> Iterator[tuple[ProgressHook, PeerStepHook]]:
    """Show the training of a peer, and print its messages; without a terminal, print lines."""
    with _progress_bars() as (bars, progress), printed_messages("wsdesc.peers"):
        task = bars.add_task("train", total=1.0)

        def show(state: PeerProgress) -> None:
            text = f"step {state.step}  loss {state.loss:.4g}  {state.samples_per_second:.0f} samples/s"
            bars.update(task, completed=state.share, description=text)
            if bars.disable:
                print(f"{state.share:.0%}: {text}", file=sys.stderr, flush=True)

        yield progress, show


@contextmanager
def _progress_bars() -> Iterator[tuple[Any, ProgressHook]]:
    """Yield rich's bars on the standard error, and a hook that draws one of them."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, disable=not console.is_terminal) as bars:

        @contextmanager
        def progress(name: str, total: int) -> Iterator[Any]:
            task = bars.add_task(name, total=total)
            yield lambda items: bars.advance(task, items)
            bars.remove_task(task)

        yield bars, progress


@contextmanager
def printed_messages(package: str = "wsdesc.learning", stream: TextIO | None = None) -> Iterator[None]:
    """Print the log messages of a package to the standard output, or to another stream."""
    logger = logging.getLogger(package)
    handler = logging.StreamHandler(stream or sys.stdout)
    level, propagate = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = propagate


def _show_steps(bars: Any) -> StepHook:
    """Show losses, support and speed in a bar; without a terminal, print a line every 50 steps."""
    task = bars.add_task("train", total=None)

    def show(state: TrainingProgress) -> None:
        terms = ", ".join(f"{name} {value:.4f}" for name, value in state.result.terms.items())
        text = (
            f"loss {state.result.loss:.4f} ({terms})  support {state.result.support:.3f}"
            f"  skipped {state.skipped}  {state.pairs_per_second:.1f} pairs/s, waiting {state.waiting:.0%}"
        )
        bars.update(task, total=state.steps, completed=state.step, description=text)
        if bars.disable and (state.step % 50 == 0 or state.step == state.steps):
            print(f"step {state.step} of {state.steps}: {text}", file=sys.stderr, flush=True)

    return show


def resume_command(arguments: Sequence[str], out: Path, device: str, tensorboard: bool) -> str:
    """Return the full command that continues a training; its folder holds the other options and the scans."""
    words = ["wsdesc", *arguments, "--out", str(out), "--resume"]
    words += [] if device == "auto" else ["--device", device]
    words += ["--tensorboard"] if tensorboard else []
    return shlex.join(words)


@contextmanager
def resume_hint(out: Path, command: str) -> Iterator[None]:
    """Print the command that continues a training when the user interrupts it."""
    from wsdesc.learning.run_folder import CHECKPOINT_FILE

    try:
        yield
    except KeyboardInterrupt:
        if (out / CHECKPOINT_FILE).is_file():
            print(f"interrupted; continue from the last checkpoint with: {command}", file=sys.stderr)
        raise


def print_run(run: TrainingRun, command: str) -> None:
    """Print the summary of a finished run, or the command that continues a stopped one."""
    print(run.summary())
    if not run.finished:
        print(f"stopped; continue with: {command}")
