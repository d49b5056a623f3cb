"""`wsdesc match`: register two described scans."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from wsdesc.cli.checks import check_inputs, check_outputs
from wsdesc.cli.options import AsJson, PoseFile, PoseSolver, Refine, Seed
from wsdesc.cli.output import exit_unless, progress_bars
from wsdesc.cli.register import print_registration
from wsdesc.registration.options import RegisterOptions

_DEFAULTS = RegisterOptions()


def match(
    source: Annotated[Path, typer.Argument(help="File that `wsdesc describe` wrote.")],
    target: Annotated[
        Path, typer.Argument(help="File of the other scan, with the same resolution and model.")
    ],
    out: PoseFile = None,
    as_json: AsJson = False,
    solver: PoseSolver = _DEFAULTS.solver,
    refine: Refine = _DEFAULTS.refine,
    seed: Seed = _DEFAULTS.seed,
) -> None:
    """Register two described scans.

    Exit code: 0 for a success (confidence of at least 0.9), 1 for no success, 2 for bad input.
    """
    options: dict[str, Any] = {"solver": solver, "refine": refine, "seed": seed}
    RegisterOptions.read(options)
    check_inputs((source, target))
    check_outputs({out: (".txt", ".json")}, (source, target))
    with progress_bars() as progress:
        from wsdesc.descriptor.description import Description
        from wsdesc.registration.pipeline import register_described

        scans = Description.load(source), Description.load(target)
        result = register_described(*scans, progress=progress, **options)
        if out is not None:
            result.save(out)
    print_registration(result, (source, target), [out], as_json)
    if not result.success:
        print("Try `wsdesc describe` with another --resolution or more --keypoints.", file=sys.stderr)
    exit_unless(result.success)
