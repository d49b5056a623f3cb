"""`wsdesc distill`: train a small, fast network to give the descriptors of a large one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from wsdesc.cli.options import Device
from wsdesc.cli.training_output import (
    Minutes,
    Resume,
    Scans,
    Seed,
    Steps,
    Synthetic,
    TensorBoard,
    check_arguments,
    print_run,
    resume_command,
    resume_hint,
    training_display,
)
from wsdesc.learning.options import STUDENT_WIDTH


def distill(
    teacher: Annotated[str, typer.Argument(help="Weights of the teacher: a name, a file or a run's folder.")],
    scans: Scans = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the run.")] = Path("runs/fast"),
    width: Annotated[
        float | None,
        typer.Option(min=0.03, max=4, help=f"Factor on the network's channels (default: {STUDENT_WIDTH})."),
    ] = None,
    steps: Steps = None,
    seed: Seed = None,
    synthetic: Synthetic = None,
    device: Device = "auto",
    minutes: Minutes = None,
    resume: Resume = False,
    tensorboard: TensorBoard = False,
) -> None:
    """Train a small, fast network to imitate a trained one. It needs scans, but no pairs."""
    check_arguments(device, scans or [], [teacher], out)
    command = resume_command(["distill", teacher], out, device, tensorboard)
    with resume_hint(out, command), training_display() as display:
        from wsdesc.learning.distillation import distill as run_distillation

        run = run_distillation(
            teacher,
            scans,
            out,
            width=width,
            steps=steps,
            seed=seed,
            synthetic=synthetic,
            device=device,
            minutes=minutes,
            resume=resume,
            tensorboard=tensorboard,
            progress=display.progress,
            on_step=display.on_step(),
        )
    print_run(run, command)
