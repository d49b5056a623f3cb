"""`wsdesc train`: train a descriptor on unlabelled scans."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from wsdesc.cli.options import Device, field_option
from wsdesc.cli.training_output import (
    Config,
    Minutes,
    Resume,
    Scans,
    Seed,
    Steps,
    Synthetic,
    TensorBoard,
    Window,
    check_arguments,
    print_run,
    resume_command,
    resume_hint,
    training_display,
)
from wsdesc.learning.options import PRESETS, DataOptions, TrainOptions, preset_options


def train(
    scans: Scans = None,
    out: Annotated[Path, typer.Option(help="Folder of the run.")] = Path("runs/wsdesc"),
    preset: Annotated[
        str | None, typer.Option(help=f"Preset of options: {', '.join(PRESETS)} (default: indoor).")
    ] = None,
    config: Config = None,
    start: Annotated[str | None, field_option(TrainOptions, "start")] = None,
    steps: Steps = None,
    seed: Seed = None,
    pairs: Annotated[str | None, field_option(DataOptions, "pairs")] = None,
    window: Window = None,
    synthetic: Synthetic = None,
    device: Device = "auto",
    minutes: Minutes = None,
    resume: Resume = False,
    tensorboard: TensorBoard = False,
    self_training: Annotated[
        bool,
        typer.Option("--self-training", help="Self-training on matches that the --start weights propose."),
    ] = False,
    oracle: Annotated[
        bool, typer.Option("--oracle", help="Supervision by the poses beside the scans, for comparison.")
    ] = False,
    oracle_loss: Annotated[
        str, typer.Option(help="Loss of the oracle: batch-hard or infonce.")
    ] = "batch-hard",
) -> None:
    """Train a descriptor on unlabelled scans that overlap. A stopped training can be continued."""
    if preset is not None:
        preset_options(preset)
    if config is not None and start is None:
        TrainOptions.load(config)
    check_arguments(device, scans or [], [start])
    command = resume_command(["train"], out, device, tensorboard)
    with resume_hint(out, command), training_display() as display:
        from wsdesc.learning.training import train as run_training

        run = run_training(
            scans or (),
            out,
            preset=preset,
            options=config,
            start=start,
            steps=steps,
            seed=seed,
            pairs=pairs,  # type: ignore[arg-type]  # checked by the options
            window=window,
            synthetic=synthetic,
            self_training="infonce" if self_training else None,
            oracle=oracle_loss if oracle else None,  # type: ignore[arg-type]  # checked by the options
            device=device,
            minutes=minutes,
            resume=resume,
            tensorboard=tensorboard,
            progress=display.progress,
            on_step=display.on_step(),
        )
    print_run(run, command)
