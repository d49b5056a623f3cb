"""`wsdesc ablate`: the paper's ablation study, trained and judged."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from wsdesc.cli.train import Device, Minutes, Scans, Seed, Synthetic

_ALL_ROOMS = 1_000_000  # keep those that were made: the next row asks for them again


def ablate(
    scans: Scans = None,
    test: Annotated[
        Path | None,
        typer.Option(help="Folder of test scenes in the layout of 3DMatch, to judge all rows on."),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder of the runs and the tables.")] = Path("runs/ablation"),
    only: Annotated[
        list[str] | None,
        typer.Option(help='A row, "w/o LRF" say, or 3DSmoothNet; repeatable. None: all but this.'),
    ] = None,
    config: Annotated[Path | None, typer.Option(help="YAML file of the options that all rows share.")] = None,
    steps: Annotated[int, typer.Option(min=1, help="Of each row, the same for all.")] = 4000,
    keypoints: Annotated[int, typer.Option(min=8, help="Of a test fragment.")] = 5000,
    synthetic: Synthetic = None,
    seed: Seed = None,
    minutes: Minutes = None,
    device: Device = "auto",
) -> None:
    """Train every row of the paper's ablation table alike, and the oracle, then judge them on test scans, as
    these stand and moved at random.

    A run that was stopped goes on where it was; finished rows are not trained again.
    """
    from wsdesc.core.errors import InputError
    from wsdesc.learning.ablations import EXTRA, ROWS, folder_name, train_rows
    from wsdesc.learning.options import TrainOptions
    from wsdesc.learning.run import WEIGHTS

    rows = list(only or ROWS)
    unknown = [row for row in rows if row not in (*ROWS, *EXTRA)]
    if unknown:
        raise InputError(f"no row {unknown[0]!r}: choose of {', '.join((*ROWS, *EXTRA))}")
    base = TrainOptions.load(config) if config else TrainOptions()
    values: dict[str, Any] = {**base.model_dump(), "steps": steps}
    values["seed"] = base.seed if seed is None else seed
    values["data"]["rooms"] = _ALL_ROOMS
    if synthetic is not None:
        values["data"]["synthetic"] = synthetic
    base = TrainOptions.read(values)

    trained = [row for row in rows if (out / folder_name(row) / WEIGHTS).is_file()]
    for row in trained:
        print(f"{row}: trained already, {out / folder_name(row)}")
    unfinished = [row for row in rows if row not in trained]
    if unfinished:
        from wsdesc.cli.train import bars_and_watch, say, show_steps
        from wsdesc.core.devices import choose_device
        from wsdesc.learning.data import gather

        with bars_and_watch() as (bars, watch):

            def begin(row: str, folder: Path) -> Any:
                say(f"{row}: {folder}")
                return show_steps(bars, steps)

            unfinished = train_rows(
                rows,
                base,
                gather(list(scans or []), base, say=say, progress=watch),
                out,
                device=choose_device(device),
                stop_after=60 * minutes if minutes is not None else float("inf"),
                begin=begin,
            )
    if unfinished:
        print(f"not finished: {', '.join(unfinished)}; go on with the same command")
    finished = [row for row in rows if row not in unfinished]
    if test is not None and finished:
        _judge(finished, test, out, keypoints, device)


def _judge(rows: list[str], test: Path, out: Path, keypoints: int, device: str) -> None:
    from wsdesc.cli.benchmark import threedmatch
    from wsdesc.learning.ablations import folder_name
    from wsdesc.learning.run import WEIGHTS

    models = [f"{row}={out / folder_name(row) / WEIGHTS}" for row in rows]
    for rotated in (False, True):
        threedmatch(
            test,
            model=models,
            out=out / "results",
            keypoints=str(keypoints),
            rotated=rotated,
            device=device,
        )
