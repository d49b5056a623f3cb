"""What `wsdesc reconstruct`, `add`, `remove` and `merge` share: change a model, save it, print it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wsdesc.cli.output import (
    continue_hint,
    exit_unless,
    print_table,
    print_warnings,
    print_written,
    progress_bars,
)

if TYPE_CHECKING:
    from wsdesc.reconstruction.result import Reconstruction
    from wsdesc.reconstruction.runner import Runner

ModelFolder = Annotated[Path, typer.Argument(help="Folder that `wsdesc reconstruct` wrote.")]
Fixed = Annotated[bool, typer.Option("--fixed", help="Keep the poses of scans that are already placed.")]
Voxel = Annotated[
    float | None,
    typer.Option(help="Voxel size of the merged cloud (default: half the working resolution)."),
]


def check_voxel(voxel: float | None) -> None:
    """Refuse an invalid voxel size before any work."""
    if voxel is not None:
        from wsdesc.core.geometry import check_length

        check_length(voxel, "--voxel")


def change_model(
    folder: Path,
    change: Callable[[Runner], Reconstruction],
    *,
    voxel: float | None,
    as_json: bool,
    jobs: int = 1,
    scheduler: str | None = None,
) -> None:
    """Change the model in a folder, which is locked from reading to writing, and print the result."""
    with continue_hint(), progress_bars() as progress:
        from wsdesc.core.executors import choose_executor
        from wsdesc.reconstruction.runner import open_runner

        with (
            closing(choose_executor(jobs, scheduler, "auto")) as executor,
            open_runner(folder, executor, progress) as runner,
        ):
            result = change(runner)
            written = result.save(folder, voxel=voxel, progress=progress)
    print_model(result, written, as_json)
    exit_unless(result.complete)


def load_model(folder: Path) -> Reconstruction:
    """Read a model; a folder that does not exist is not created."""
    from wsdesc.core.errors import FileFormatError
    from wsdesc.reconstruction.result import Reconstruction

    if not folder.is_dir():
        problem = (
            "is a file, not a folder that `wsdesc reconstruct` wrote" if folder.exists() else "no such folder"
        )
        raise FileFormatError(f"{folder}: {problem}")
    return Reconstruction.load(folder)


def print_model(result: Reconstruction, written: Sequence[Path | None], as_json: bool) -> None:
    """Print a model on stdout, as JSON or as a table, and its warnings on stderr."""
    if as_json:
        print(json.dumps(result.to_dict()))
    else:
        _print_table(result)
        print_written(written)
    _warn(result)


def _print_table(result: Reconstruction) -> None:
    """Print the numbers of scans, frames and edges."""
    accepted = sum(edge.accepted for edge in result.edges)
    rows = [
        ("scans", f"{len(result.T_world_scan)} placed, {len(result.not_placed)} not placed"),
        ("frames", ", ".join(f"{len(scans)} scans" for scans in result.components) or "none"),
        ("edges", f"{accepted} accepted of {len(result.edges)} registered pairs"),
        ("resolution", f"{result.resolution:.4g}"),
    ]
    print_table("reconstruction", rows)


def _warn(result: Reconstruction) -> None:
    """Print a warning for each scan or known item that was not used."""
    print_warnings(f"{name} was not placed: {reason}" for name, reason in result.not_placed.items())
    left_out = result.may_repeat
    if left_out and not (result.state and result.state.options.distinct):
        number = "1 scan was" if len(left_out) == 1 else f"{len(left_out)} scans were"
        advice = "If you know that none are, reconstruct again with --distinct."
        print_warnings([f"{number} left out because parts of the place may be equal. {advice}"])
    print_warnings(f"{name} was left out: it equals {other}" for name, other in result.duplicates.items())
    print_warnings(f"left out: {item}" for item in result.known if not item.accepted)
