"""`wsdesc ablate`: train and evaluate the rows of the paper's ablation table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wsdesc.cli.options import Device
from wsdesc.cli.output import progress_bars
from wsdesc.cli.training_output import (
    Scans,
    Seed,
    Synthetic,
    check_arguments,
    training_display,
)
from wsdesc.learning.options import ABLATION_STEPS

if TYPE_CHECKING:
    from wsdesc.learning.run import StepHook


def ablate(
    scans: Scans = None,
    test: Annotated[
        Path | None,
        typer.Option(help="Folder of test scenes in the layout of 3DMatch, to evaluate all rows on."),
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the runs and the tables.")] = Path(
        "runs/ablation"
    ),
    only: Annotated[
        list[str] | None,
        typer.Option(
            help='Row to train, for example "w/o LRF" or 3DSmoothNet; repeatable (default: all of the paper).'
        ),
    ] = None,
    config: Annotated[Path | None, typer.Option(help="YAML file of options that all rows share.")] = None,
    steps: Annotated[int, typer.Option(min=1, help="Number of training steps per row.")] = ABLATION_STEPS,
    keypoints: Annotated[int, typer.Option(min=8, help="Keypoints per test scan.")] = 5000,
    synthetic: Synthetic = None,
    seed: Seed = None,
    minutes: Annotated[
        float | None,
        typer.Option(min=0, help="Minutes until the training stops; the same command continues it."),
    ] = None,
    device: Device = "auto",
) -> None:
    """Train and evaluate the rows of the paper's ablation table.

    All rows and the oracle are trained on the same pairs. Test scenes are evaluated as they are, and rotated
    at random.

    The same command continues a stopped run; finished rows are not trained again.
    """
    check_arguments(device, [*(scans or []), *([] if test is None else [test])], out=out)
    with training_display() as display:
        from wsdesc.learning.ablations import ablate as run_ablation

        def on_row(row: str, folder: Path) -> StepHook:
            print(f"{row}: {folder}", flush=True)
            return display.on_step()

        runs = run_ablation(
            scans,
            out,
            rows=only,
            options=config,
            steps=steps,
            seed=seed,
            synthetic=synthetic,
            device=device,
            minutes=minutes,
            progress=display.progress,
            on_row=on_row,
        )
    for row, run in runs.items():
        print(
            f"{row}: {'trained' if run.finished else f'step {run.step} of {run.options.steps}'}, {run.folder}"
        )
    unfinished = [row for row, run in runs.items() if not run.finished]
    if unfinished:
        print(f"not finished: {', '.join(unfinished)}; continue with the same command")
    if test is None or len(unfinished) == len(runs):
        return
    with progress_bars() as progress:
        from wsdesc.learning.ablations import evaluate_rows

        folder = out / "results"
        tables = evaluate_rows(runs, test, folder, keypoints=keypoints, device=device, progress=progress)
    for results in tables:
        print(results.markdown())
        print(f"written: {folder / results.name}")
