"""`wsdesc remove`: remove scans from a model."""

from __future__ import annotations

from typing import Annotated

import typer

from wsdesc.cli.grow import Fixed, ModelFolder, Voxel, change_model, check_voxel, load_model
from wsdesc.cli.options import AsJson


def remove(
    model: ModelFolder,
    names: Annotated[list[str], typer.Argument(help="Names of scans, as in poses.json.")],
    fixed: Fixed = False,
    as_json: AsJson = False,
    voxel: Voxel = None,
) -> None:
    """Remove scans from a MODEL by NAMES, and place the others again. The files of the scans are kept.

    Exit code: 0 if all scans are placed in one frame, 1 if not, 2 for bad input.
    """
    check_voxel(voxel)
    load_model(model)  # errors appear before the folder is locked
    from wsdesc.reconstruction import growth

    change_model(
        model,
        lambda runner: growth.remove(load_model(model), names, runner, fixed=fixed),
        voxel=voxel,
        as_json=as_json,
    )
