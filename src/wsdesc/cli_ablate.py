"""`wsdesc ablate`: the paper's ablation study, trained and judged."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from wsdesc.cli_learn import Device, Scans, Seed, Synthetic


def ablate(
    scans: Scans = None,
    test: Annotated[
        Path | None,
        typer.Option(help="Folder of test scenes in the layout of 3DMatch, to judge all rows on."),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder of the runs and the table.")] = Path("runs/ablation"),
    only: Annotated[
        list[str] | None, typer.Option(help='A row, such as "w/o LRF"; repeatable. All if not given.')
    ] = None,
    config: Annotated[Path | None, typer.Option(help="YAML file of the options that all rows share.")] = None,
    steps: Annotated[int, typer.Option(min=1, help="Of each row, the same for all.")] = 4000,
    keypoints: Annotated[int, typer.Option(min=8, help="Of a test fragment.")] = 2000,
    synthetic: Synthetic = None,
    seed: Seed = None,
    device: Device = "auto",
) -> None:
    """Train every row of the paper's ablation table alike, and the oracle, then judge them on rotated scans.

    A run that was stopped goes on where it was; finished rows are not trained again.
    """
    from wsdesc.errors import InputError
    from wsdesc.learn.ablations import ORACLE, VARIANTS, folder_name, variant
    from wsdesc.learn.options import TrainOptions
    from wsdesc.learn.run import WEIGHTS

    rows = list(only or [*VARIANTS, ORACLE])
    unknown = [row for row in rows if row not in VARIANTS and row != ORACLE]
    if unknown:
        raise InputError(f"no row {unknown[0]!r}: choose of {', '.join([*VARIANTS, ORACLE])}")
    base = TrainOptions.load(config) if config else TrainOptions()
    values = {**base.model_dump(), "steps": steps}
    if seed is not None:
        values["seed"] = seed
    if synthetic is not None:
        values["data"]["synthetic"] = synthetic
    base = TrainOptions.read(values)

    from wsdesc.cli_learn import train

    for row in rows:
        folder = out / folder_name(row)
        if (folder / WEIGHTS).is_file():
            print(f"{row}: trained already, {folder}")
            continue
        print(f"{row}: {folder}", flush=True)
        folder.mkdir(parents=True, exist_ok=True)
        options = folder / "asked.yaml"
        variant(row, base).save(options)
        train(scans, out=folder, config=options, device=device, resume=True)
    if test is None:
        return
    from wsdesc.cli_benchmark import threedmatch

    models = [f"{row}={out / folder_name(row) / WEIGHTS}" for row in rows]
    threedmatch(
        test, model=models, out=out / "results", keypoints=str(keypoints), rotated=True, device=device
    )
