"""`wsdesc find`: the instances of an object in a scene."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wsdesc.cli.checks import check_inputs, check_outputs, read_viewpoint
from wsdesc.cli.options import AsJson, ScanFile, field_option
from wsdesc.cli.output import (
    exit_unless,
    matrix_rows,
    print_table,
    print_warnings,
    print_written,
    progress_bars,
    seconds_text,
)
from wsdesc.finding.options import FindOptions

if TYPE_CHECKING:
    from wsdesc.finding.result import Finding, Instance

_DEFAULTS = FindOptions()


def find(
    object: ScanFile,
    scene: ScanFile,
    instances: Annotated[
        str, typer.Option(metavar="N|all", help=FindOptions.model_fields["instances"].description)
    ] = str(_DEFAULTS.instances),
    out: Annotated[Path | None, typer.Option("--out", "-o", help="File for the result (.json).")] = None,
    aligned: Annotated[
        Path | None,
        typer.Option(
            help="File for the object in the scene's frame; of several instances, object-1.ply, "
            "object-2.ply, …"
        ),
    ] = None,
    as_json: AsJson = False,
    resolution: Annotated[float | None, field_option(FindOptions, "resolution")] = _DEFAULTS.resolution,
    viewpoint: Annotated[
        str | None, typer.Option(metavar="X,Y,Z", help=FindOptions.model_fields["viewpoint"].description)
    ] = None,
    hypotheses: Annotated[int, field_option(FindOptions, "hypotheses")] = _DEFAULTS.hypotheses,
    refined: Annotated[int, field_option(FindOptions, "refined")] = _DEFAULTS.refined,
) -> None:
    """Find all instances of OBJECT in SCENE. Lengths are in the unit of the files.

    Exit code: 0 if an instance was found (confidence of at least 0.9), 1 if none was, 2 for bad input.
    """
    options: dict[str, Any] = {
        "instances": int(instances) if instances.isdecimal() else instances,
        "resolution": resolution,
        "viewpoint": read_viewpoint(viewpoint),
        "hypotheses": hypotheses,
        "refined": refined,
    }
    FindOptions.read(options)
    check_inputs((object, scene))
    check_outputs({out: (".json",), aligned: None}, (object, scene))
    with progress_bars() as progress:
        with progress("read files", 0):
            from wsdesc.cloud.convert import as_cloud

            clouds = [as_cloud(path) for path in (object, scene)]
        from wsdesc.finding.pipeline import find as run

        result = run(*clouds, progress=progress, **options)
        written = []
        with progress("write", 0):
            if out is not None:
                result.save(out)
                written.append(out)
            if aligned is not None:
                from wsdesc.cloud.write import write_cloud

                for path, instance in zip(
                    _numbered(aligned, len(result.instances)), result.instances, strict=True
                ):
                    moved = clouds[0].transformed(instance.T_scene_object)
                    result.warnings.extend(write_cloud(path, moved, frame_of=clouds[1]))
                    written.append(path)
    if as_json:
        print(json.dumps(result.to_dict()))
    else:
        _print_result(result, object, scene)
        print_written(written)
    print_warnings(result.warnings)
    exit_unless(result.success)


def _numbered(path: Path, count: int) -> list[Path]:
    """Return the path itself for one file, or numbered paths for several."""
    if count <= 1:
        return [path] * count
    return [path.with_name(f"{path.stem}-{number}{path.suffix}") for number in range(1, count + 1)]


def _print_result(result: Finding, object: Path, scene: Path) -> None:
    for number, instance in enumerate(result.instances, 1):
        print(f"T_scene_object of instance {number}\n{matrix_rows(instance.T_scene_object)}\n")
    print_table(
        "finding",
        [
            ("object", f"{object}, diameter {result.diameter:.4g}"),
            ("scene", str(scene)),
            *((f"instance {k}", _line(instance)) for k, instance in enumerate(result.instances, 1)),
            *([] if result.instances else [("instances", "none")]),
            *((f"alternative {k}", _line(instance)) for k, instance in enumerate(result.alternatives, 1)),
            ("resolution", f"{result.resolution:.4g}"),
            ("viewpoint", "unknown" if result.viewpoint is None else str(result.viewpoint)),
            ("seconds", seconds_text(result.timings)),
        ],
    )


def _line(instance: Instance) -> str:
    at = ", ".join(f"{value:.4g}" for value in instance.T_scene_object[:3, 3])
    return (
        f"confidence {instance.confidence:.3f}, {instance.visible:.0%} of the object visible, "
        f"rmse {instance.rmse:.3g}, origin at ({at})"
    )
