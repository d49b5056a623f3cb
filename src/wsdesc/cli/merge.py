"""`wsdesc merge`: merge models."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wsdesc.cli.grow import Fixed, Voxel, change_model, check_voxel, load_model
from wsdesc.cli.options import AsJson, Jobs, Scheduler
from wsdesc.core.errors import InputError

if TYPE_CHECKING:
    from wsdesc.reconstruction.result import Reconstruction
    from wsdesc.reconstruction.runner import Runner


def merge(
    models: Annotated[
        list[Path], typer.Argument(help="Two or more folders that `wsdesc reconstruct` wrote.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the merged model.")],
    fixed: Fixed = False,
    as_json: AsJson = False,
    voxel: Voxel = None,
    jobs: Jobs = 1,
    scheduler: Scheduler = None,
) -> None:
    """Merge MODELS into one. Only pairs between models are registered; options are those of the first model.

    Exit code: 0 if all scans are placed in one frame, 1 if not, 2 for bad input.
    """
    check_voxel(voxel)
    if len(models) < 2:
        raise InputError("at least two models are required")
    loaded = [load_model(folder) for folder in models]
    from wsdesc.reconstruction import growth

    def merge_all(runner: Runner) -> Reconstruction:
        merged = loaded[0]
        for other in loaded[1:]:
            merged = growth.merge(merged, other, runner, fixed=fixed)
        return merged

    change_model(out, merge_all, voxel=voxel, as_json=as_json, jobs=jobs, scheduler=scheduler)
