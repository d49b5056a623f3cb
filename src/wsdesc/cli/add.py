"""`wsdesc add`: add scans to a model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from wsdesc.cli.grow import Fixed, ModelFolder, Voxel, change_model, check_voxel, load_model
from wsdesc.cli.options import AsJson, Jobs, Scheduler


def add(
    model: ModelFolder,
    scans: Annotated[list[Path], typer.Argument(help="Scan files, or folders of scans.")],
    fixed: Fixed = False,
    as_json: AsJson = False,
    voxel: Voxel = None,
    jobs: Jobs = 1,
    scheduler: Scheduler = None,
) -> None:
    """Add SCANS to a MODEL. Only pairs with new scans are registered; options are those of the model.

    A scan that contradicts the others is named and not placed. The same command continues an interrupted run.

    Exit code: 0 if all scans are placed in one frame, 1 if not, 2 for bad input.
    """
    check_voxel(voxel)
    load_model(model)  # errors appear before the folder is locked
    from wsdesc.reconstruction import growth
    from wsdesc.reconstruction.inputs import find_scans

    paths = find_scans(scans, model)
    change_model(
        model,
        lambda runner: growth.add(load_model(model), paths, runner, fixed=fixed),
        voxel=voxel,
        as_json=as_json,
        jobs=jobs,
        scheduler=scheduler,
    )
