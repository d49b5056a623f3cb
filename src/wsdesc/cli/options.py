"""Options that several commands share. Help texts, limits and defaults come from the option models."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from annotated_types import Ge, Le

from wsdesc.core.errors import InputError
from wsdesc.core.options import Options
from wsdesc.descriptor.options import DescribeOptions
from wsdesc.registration.options import RegisterOptions, Solver


def field_option(model: type[Options], name: str, *flags: str, **settings: Any) -> Any:
    """Build the typer option of a model's field: its description is the help text, its bounds the limits.

    `settings` are further arguments of `typer.Option`. Commands take the default from an instance of the
    model, so that it is written once.
    """
    field = model.model_fields[name]
    for bound in field.metadata:
        if isinstance(bound, Ge):
            settings["min"] = bound.ge
        if isinstance(bound, Le):
            settings["max"] = bound.le
    return typer.Option(*flags, help=field.description, **settings)


def read_counts(text: str, option: str, least: int = 1) -> tuple[int, ...]:
    """Parse the value of an option: whole numbers of at least `least`, separated by commas."""
    try:
        counts = tuple(int(word) for word in text.split(","))
    except ValueError:
        counts = ()
    if not counts or min(counts) < least:
        raise InputError(f"{option}: expected numbers from {least} on, separated by commas, not {text!r}")
    return counts


def join_counts(counts: tuple[int, ...]) -> str:
    """Join numbers by commas, the inverse of `read_counts`."""
    return ",".join(map(str, counts))


ScanFile = Annotated[
    Path,
    typer.Argument(
        help="Scan file: ply, pcd, las, laz, e57, ptx, xyz, csv, txt, pts, asc, bin (KITTI), npy, npz, vtk, "
        "vtp, or a mesh (obj, off, stl, gltf, glb). multi.e57#2 is the second station of a file."
    ),
]
PoseFile = Annotated[
    Path | None,
    typer.Option("--out", "-o", help="File for the pose (.txt) or the complete result (.json)."),
]
AsJson = Annotated[bool, typer.Option("--json", help="JSON on stdout instead of a table.")]
Model = Annotated[str, field_option(RegisterOptions, "model")]
Resolution = Annotated[float | None, field_option(RegisterOptions, "resolution")]
ScanResolution = Annotated[float | None, field_option(DescribeOptions, "resolution")]
RelativeScale = Annotated[
    str,
    typer.Option("--scale", metavar="FACTOR", help=RegisterOptions.model_fields["scale"].description),
]
Device = Annotated[str, field_option(RegisterOptions, "device")]
Seed = Annotated[int, field_option(RegisterOptions, "seed")]
PoseSolver = Annotated[Solver, field_option(RegisterOptions, "solver")]
Refine = Annotated[bool, field_option(RegisterOptions, "refine", "--refine/--no-refine")]
Initial = Annotated[Path | None, field_option(RegisterOptions, "initial")]
SearchRadius = Annotated[float | None, field_option(RegisterOptions, "search_radius")]
MaxAngle = Annotated[float | None, field_option(RegisterOptions, "max_angle")]
Up = Annotated[list[str] | None, field_option(RegisterOptions, "up", metavar="DIRECTION")]
Axis = Annotated[list[str] | None, field_option(RegisterOptions, "axis", metavar="DIRECTION")]
MaxTilt = Annotated[float, field_option(RegisterOptions, "max_tilt")]
OverlapAtLeast = Annotated[float, field_option(RegisterOptions, "overlap_at_least")]
ScanViewpoint = Annotated[
    str | None,
    typer.Option("--viewpoint", metavar="X,Y,Z", help=DescribeOptions.model_fields["viewpoint"].description),
]
View = Annotated[bool, typer.Option("--view", help="Interactive page in a browser, until Ctrl-C.")]
SavePage = Annotated[
    Path | None, typer.Option("--save", help="File (.html) for the interactive page; works offline.")
]
Port = Annotated[
    int | None,
    typer.Option(min=1, max=65535, help="Port of the web page (default: the first free one from 8080)."),
]
Jobs = Annotated[int, typer.Option(min=1, help="Number of processes.")]
Scheduler = Annotated[
    str | None, typer.Option(help="Address of a Dask scheduler that distributes the work: tcp://host:8786.")
]
