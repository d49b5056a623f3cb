"""`wsdesc train`: train a descriptor, or a peer to compare with, on unlabelled scans."""

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
    peer_display,
    print_run,
    resume_command,
    resume_hint,
    training_display,
)
from wsdesc.core.errors import InputError
from wsdesc.learning.options import PRESETS, DataOptions, TrainOptions, preset_options


def train(
    scans: Scans = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder of the run (default: runs/wsdesc, runs/PEER).")
    ] = None,
    peer: Annotated[
        str | None,
        typer.Option(
            help="Peer to train instead, for comparisons, for example ppf-foldnet. After --minutes, its "
            "training ends."
        ),
    ] = None,
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
    if peer is not None:
        own = {
            "--preset": preset,
            "--start": start,
            "--pairs": pairs,
            "--window": window,
            "--synthetic": synthetic,
            "--tensorboard": tensorboard or None,
            "--self-training": self_training or None,
            "--oracle": oracle or None,
        }
        for option in (name for name, value in own.items() if value is not None):
            raise InputError(f"{option} is no option of the training of a peer: leave it out")
        _train_peer(peer, scans, out, config, steps, seed, device, minutes, resume)
        return
    out = out or Path("runs/wsdesc")
    if preset is not None:
        preset_options(preset)
    if config is not None and start is None:
        TrainOptions.load(config)
    if pairs is not None:
        DataOptions.read({"pairs": pairs})
    check_arguments(device, scans or [], [start], out)
    command = resume_command(["train"], out, device, tensorboard)
    with resume_hint(out, command), training_display() as display:
        from wsdesc.learning.training import train as run_training

        run = run_training(
            scans,
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


def _train_peer(
    peer: str,
    scans: list[Path] | None,
    out: Path | None,
    config: Path | None,
    steps: int | None,
    seed: int | None,
    device: str,
    minutes: float | None,
    resume: bool,
) -> None:
    out = out or Path("runs") / peer
    check_arguments(device, scans or [], out=out)
    command = resume_command(["train", "--peer", peer], out, device, tensorboard=False)
    with resume_hint(out, command), peer_display() as (progress, on_step):
        from wsdesc.peers.training import train_peer

        run = train_peer(
            peer,
            scans,
            out,
            options=config,
            steps=steps,
            seed=seed,
            device=device,
            minutes=minutes,
            resume=resume,
            progress=progress,
            on_step=on_step,
        )
    print(run.summary())
