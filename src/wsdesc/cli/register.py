"""The commands around one pair of scans: `wsdesc register`, `describe` and `match`."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from wsdesc.cli.output import print_table, progress
from wsdesc.cli.view import Port, Save, View, check_view, look

if TYPE_CHECKING:
    from wsdesc.registration.result import Registration

Scan = Annotated[Path, typer.Argument(help="A scan: ply, pcd, las, laz, e57, npy, text, or a mesh.")]
Out = Annotated[
    Path | None,
    typer.Option("--out", "-o", help="Write the pose to this .txt, or all results to this .json."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Results as JSON on stdout, nothing else.")]
Model = Annotated[str, typer.Option(help="Weights by name or path.")]
Resolution = Annotated[
    float | None, typer.Option(help="Working resolution in the scans' unit; found from them if not given.")
]
Device = Annotated[str, typer.Option(help="cpu, cuda, or auto.")]
Seed = Annotated[int, typer.Option(min=0, help="Same seed, same bits.")]
Solver = Annotated[Literal["consensus", "ransac"], typer.Option(help="How matches become poses.")]
Refine = Annotated[bool, typer.Option("--refine/--no-refine", help="Move the pose to where surfaces meet.")]


def register(
    source: Scan,
    target: Scan,
    out: Out = None,
    aligned: Annotated[
        Path | None, typer.Option(help="Write the source, moved, with all its attributes, to this file.")
    ] = None,
    picture: Annotated[Path | None, typer.Option(help="Draw before and after into this .png.")] = None,
    view: View = False,
    save: Save = None,
    port: Port = None,
    as_json: AsJson = False,
    model: Model = "indoor-fast",
    resolution: Resolution = None,
    keypoints: Annotated[
        int | None, typer.Option(min=3, help="Of each scan; chosen by need if not given.")
    ] = None,
    solver: Solver = "consensus",
    refine: Refine = True,
    device: Device = "auto",
    seed: Seed = 0,
) -> None:
    """Find the pose of SOURCE in the frame of TARGET, in the files' own unit.

    Exits with 0 if the result can be trusted, with 1 if it cannot, with 2 for bad input.
    """
    outputs: dict[Path | None, tuple[str, ...] | None]
    outputs = {out: (".txt", ".json"), picture: (".png",), save: (".html",), aligned: None}
    check_outputs(outputs, (source, target))
    check_view(view, port)
    options: dict[str, Any] = {"model": model, "resolution": resolution, "solver": solver}
    options |= {"refine": refine, "device": device, "seed": seed}
    if keypoints is not None:
        options["keypoints"] = (keypoints,)
    with progress() as watch:
        from wsdesc.cloud.files import read_cloud
        from wsdesc.registration.options import RegisterOptions
        from wsdesc.registration.pipeline import register as find

        RegisterOptions.read(options)  # before files are read
        with watch("read files", 0):
            clouds = [read_cloud(path, nonfinite="drop") for path in (source, target)]
        result = find(*clouds, progress=watch, **options)
        for path, cloud in zip((source, target), clouds, strict=True):
            if cloud.dropped:
                result.warnings.append(f"{path}: {cloud.dropped} points that are not finite were left out")
        with watch("write", 0):
            _write_pose(out, result)
            if aligned is not None:
                from wsdesc.cloud.files import write_points

                moved = clouds[0].transformed(result.T_target_source)
                write_points(aligned, moved.points, moved.attributes)
            if picture is not None:
                from wsdesc.view.pictures import before_after

                title = f"after: confidence {result.confidence:.2f}"
                before_after(clouds[0].points, clouds[1].points, result.T_target_source, picture, title)
            if view or save is not None:
                from wsdesc.view.results import registration_scene, short_names

                names = short_names([str(source), str(target)])
                scene = registration_scene(result, (clouds[0].points, clouds[1].points), (names[0], names[1]))
                if save is not None:
                    from wsdesc.view.page import save_page

                    save_page(scene, save)
    files = [("source", str(source)), ("target", str(target))]
    _tell(result, as_json, files, [out, aligned, picture, save])
    if view:
        look(scene, port)
    _leave(result)


def describe(
    scan: Scan,
    out: Annotated[Path, typer.Option("--out", "-o", help="The .npz file to write.")],
    model: Model = "indoor-fast",
    resolution: Resolution = None,
    keypoints: Annotated[int, typer.Option(min=3, help="How many, spread over the scan.")] = 1500,
    device: Device = "auto",
    seed: Seed = 0,
) -> None:
    """Describe keypoints of a scan, to be matched later or used elsewhere.

    Scans that shall be matched need the same --resolution.
    """
    check_outputs({out: (".npz",)}, (scan,))
    with progress() as watch:
        from wsdesc.descriptor.description import describe as run

        found = run(
            scan,
            model=model,
            keypoints=keypoints,
            resolution=resolution,
            device=device,
            seed=seed,
            progress=watch,
        )
        found.save(out)
    count, length = found.descriptors.shape
    print(f"{count} keypoints, {length} numbers each, at the resolution {found.resolution:.4g}: {out}")


def match(
    source: Annotated[Path, typer.Argument(help="Written by `wsdesc describe`.")],
    target: Annotated[Path, typer.Argument(help="Another one, of the same resolution and model.")],
    out: Out = None,
    as_json: AsJson = False,
    solver: Solver = "consensus",
    refine: Refine = True,
    seed: Seed = 0,
) -> None:
    """Register two scans that are described already. Exits as `wsdesc register` does."""
    check_outputs({out: (".txt", ".json")}, (source, target))
    from wsdesc.descriptor.description import Description
    from wsdesc.registration.pipeline import register_described

    descriptions = Description.load(source), Description.load(target)
    result = register_described(*descriptions, solver=solver, refine=refine, seed=seed)
    _write_pose(out, result)
    _tell(result, as_json, [("source", str(source)), ("target", str(target))], [out])
    _leave(result)


def as_dict(result: Registration) -> dict[str, Any]:
    """What a program wants to know; infinity, which JSON does not have, becomes None."""
    return {
        "T_target_source": result.T_target_source.tolist(),
        "success": result.success,
        "confidence": result.confidence,
        "overlap": result.overlap,
        "rmse": result.rmse if math.isfinite(result.rmse) else None,
        "inliers": result.inliers,
        "matches": result.matches,
        "resolution": result.resolution,
        "warnings": result.warnings,
        "timings": {name: round(seconds, 4) for name, seconds in result.timings.items()},
    }


def check_outputs(wanted: dict[Path | None, tuple[str, ...] | None], inputs: tuple[Path, ...]) -> None:
    """Find out before the work whether its result can be kept, and that it replaces no input."""
    from wsdesc.cloud.formats import WRITABLE
    from wsdesc.core.errors import FileFormatError, InputError

    taken = {path.resolve() for path in inputs}
    for path, kinds in wanted.items():
        if path is None:
            continue
        kinds = kinds or tuple(f".{kind.lstrip('.')}" for kind in WRITABLE)
        if path.suffix.lower() not in kinds:
            raise FileFormatError(f"{path}: should end in {', '.join(kinds)}")
        if not path.parent.is_dir():
            raise FileFormatError(f"{path}: cannot be written: there is no folder {path.parent}")
        if path.is_dir():
            raise FileFormatError(f"{path}: cannot be written: it is a folder")
        if path.resolve() in taken:
            raise InputError(f"{path}: would replace an input or another output; choose another name")
        taken.add(path.resolve())


def _write_pose(out: Path | None, result: Registration) -> None:
    if out is None:
        return
    from wsdesc.core.atomic import atomic_write

    lines = [" ".join(f"{value:.12g}" for value in row) for row in result.T_target_source]
    text = json.dumps(as_dict(result), indent=2) if out.suffix.lower() == ".json" else "\n".join(lines)
    with atomic_write(out) as temporary:
        temporary.write_text(text + "\n", encoding="utf-8")


def _tell(
    result: Registration, as_json: bool, files: list[tuple[str, str]], written: list[Path | None]
) -> None:
    if as_json:
        print(json.dumps(as_dict(result)))
    else:
        _print(result, files)
        if any(written):
            print("written:", ", ".join(str(path) for path in written if path))
    for warning in result.warnings:
        print("warning:", warning, file=sys.stderr)


def _leave(result: Registration) -> None:
    if not result.success:
        raise typer.Exit(1)


def _print(result: Registration, files: list[tuple[str, str]]) -> None:
    import numpy as np
    from scipy.spatial.transform import Rotation

    T = result.T_target_source
    degrees = float(np.degrees(Rotation.from_matrix(T[:3, :3]).magnitude()))
    rows = "\n".join(" ".join(f"{value:12.6f}" for value in row) for row in T)
    print(f"T_target_source\n{rows}\n")
    verdict = "trust it" if result.success else "do NOT trust it"
    print_table(
        "registration",
        [
            *files,
            ("motion", f"turned by {degrees:.2f}°, moved by {np.linalg.norm(T[:3, 3]):.4g}"),
            ("confidence", f"{result.confidence:.3f}: {verdict}"),
            ("overlap", f"{result.overlap:.0%} of the source, {result.rmse:.3g} apart there"),
            ("matches", f"{result.inliers} of {result.matches} agree"),
            ("resolution", f"{result.resolution:.4g}"),
            (
                "seconds",
                f"{sum(result.timings.values()):.2f}: "
                + ", ".join(f"{name} {seconds:.2f}" for name, seconds in result.timings.items()),
            ),
        ],
    )
