"""`wsdesc register`: the pose of one scan in the frame of another."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wsdesc.cli.checks import (
    check_inputs,
    check_model_and_device,
    check_outputs,
    check_view,
    read_directions,
    read_viewpoints,
)
from wsdesc.cli.options import (
    AsJson,
    Axis,
    Device,
    Initial,
    MaxAngle,
    MaxTilt,
    Model,
    OverlapAtLeast,
    Port,
    PoseFile,
    PoseSolver,
    Refine,
    RelativeScale,
    Resolution,
    SavePage,
    ScanFile,
    SearchRadius,
    Seed,
    Up,
    View,
    field_option,
    join_counts,
    read_counts,
)
from wsdesc.cli.output import (
    exit_unless,
    matrix_rows,
    print_table,
    print_warnings,
    print_written,
    progress_bars,
    seconds_text,
)
from wsdesc.core.startup import frozen_imports, preload_torch
from wsdesc.descriptor.options import DEFAULT_MODEL
from wsdesc.registration.compile_ahead import start_helpers
from wsdesc.registration.options import RegisterOptions

if TYPE_CHECKING:
    from wsdesc.cloud.cloud import Cloud
    from wsdesc.registration.result import Registration
    from wsdesc.view.scene import SceneView

_DEFAULTS = RegisterOptions()


def register(
    source: ScanFile,
    target: ScanFile,
    out: PoseFile = None,
    aligned: Annotated[
        Path | None,
        typer.Option(help="File for the source in the target's frame, with its attributes and types."),
    ] = None,
    picture: Annotated[Path | None, typer.Option(help="File (.png) for a picture before and after.")] = None,
    view: View = False,
    save: SavePage = None,
    port: Port = None,
    as_json: AsJson = False,
    all_poses: Annotated[
        bool, typer.Option("--all", help="Other plausible poses too, with their matrices and probabilities.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Write pose and aligned source even without success.")
    ] = False,
    model: Model = _DEFAULTS.model,
    resolution: Resolution = _DEFAULTS.resolution,
    keypoints: Annotated[str, field_option(RegisterOptions, "keypoints", metavar="N,…")] = join_counts(
        _DEFAULTS.keypoints
    ),
    scale: RelativeScale = "1",
    viewpoint: Annotated[
        list[str] | None,
        typer.Option(
            metavar="X,Y,Z",
            help="Position of the scanner of both scans, in their coordinates; given twice: of source, then "
            "target (default: from the file, or detected at the origin). none: no free space.",
        ),
    ] = None,
    initial: Initial = None,
    search_radius: SearchRadius = _DEFAULTS.search_radius,
    max_angle: MaxAngle = _DEFAULTS.max_angle,
    up: Up = None,
    axis: Axis = None,
    max_tilt: MaxTilt = _DEFAULTS.max_tilt,
    overlap_at_least: OverlapAtLeast = _DEFAULTS.overlap_at_least,
    solver: PoseSolver = _DEFAULTS.solver,
    refine: Refine = _DEFAULTS.refine,
    device: Device = _DEFAULTS.device,
    seed: Seed = _DEFAULTS.seed,
) -> None:
    """Find the pose of SOURCE in the frame of TARGET. Lengths are in the unit of the files.

    Exit code: 0 for a success (confidence of at least 0.9), 1 for no success, 2 for bad input.
    """
    options: dict[str, Any] = {"model": model, "resolution": resolution, "solver": solver}
    options |= {"scale": scale, "refine": refine, "device": device, "seed": seed}
    options["keypoints"] = read_counts(keypoints, "--keypoints", least=3)
    options |= read_viewpoints(viewpoint)
    if initial is not None:
        from wsdesc.registration.pose_file import read_pose

        options["initial"] = read_pose(initial)
    options |= {"search_radius": search_radius, "max_angle": max_angle, "max_tilt": max_tilt}
    options |= {"up": read_directions(up), "axis": read_directions(axis)}
    options["overlap_at_least"] = overlap_at_least
    RegisterOptions.read(options)
    check_inputs((source, target))
    preload_torch()
    check_outputs(
        {out: (".txt", ".json"), picture: (".png",), save: (".html",), aligned: None}, (source, target)
    )
    check_model_and_device(model, device)
    check_view(view, port)
    start_helpers()
    with progress_bars() as progress:
        with progress("read files", 0):
            from wsdesc.cloud.convert import as_cloud

            clouds = [as_cloud(path) for path in (source, target)]
        with frozen_imports():
            from wsdesc.registration.pipeline import register as run

        result = run(*clouds, progress=progress, **options).of_files(source, target)
        shown = replace(result, warnings=list(result.warnings))  # not those about files to write
        scene = None
        if not (result.success or force):  # a JSON file says that it is no success; these files cannot
            skipped = [path for path in (out, aligned) if path is not None and path.suffix.lower() != ".json"]
            out, aligned = (None if path in skipped else path for path in (out, aligned))
            result.warnings.extend(
                f"Without success, {path} is not written. Use --force." for path in skipped
            )
        with progress("write", 0):
            if out is not None:
                result.save(out, all_poses=all_poses)
            if aligned is not None:
                from wsdesc.cloud.write import write_cloud

                source_aligned = clouds[0].transformed(result.T_target_source)
                result.warnings.extend(write_cloud(aligned, source_aligned, frame_of=clouds[1]))
            if picture is not None:
                from wsdesc.view.pictures import before_after

                title = f"after: confidence {result.confidence:.2f}"
                rigid, scaled = result.as_rigid(), result.factor * clouds[0].points
                before_after(scaled, clouds[1].points, rigid.T_target_source, picture, title)
            if view or save is not None:
                scene = _draw(shown, clouds, (source, target), save)
    print_registration(result, (source, target), [out, aligned, picture, save], as_json, all_poses)
    if not result.success and result.matches:
        print(_suggestion(result, model, options["keypoints"]), file=sys.stderr)
    if view and scene is not None:
        from wsdesc.cli.view import serve_page

        serve_page(scene, port)
    exit_unless(result.success)


def print_registration(
    result: Registration,
    files: tuple[Path, Path],
    written: list[Path | None],
    as_json: bool,
    all_poses: bool = False,
) -> None:
    """Print a result on stdout, as JSON or as a table, and its warnings on stderr."""
    if as_json:
        print(json.dumps(result.to_dict()))
    else:
        _print_table(result, files)
        if all_poses:
            print_alternatives(result)
        print_written(written)
    print_warnings(result.warnings)


def _print_table(result: Registration, files: tuple[Path, Path]) -> None:
    import numpy as np

    from wsdesc.core.rotations import rotation_angle

    rows = [("source", str(files[0])), ("target", str(files[1]))]
    if result.evidence is None:
        print_table("registration", [*rows, ("result", "no alignment found")])
        return
    T = result.T_target_source
    degrees = float(np.degrees(rotation_angle(result.rotation)))
    print(f"T_target_source\n{matrix_rows(T)}\n")
    verdict = "success" if result.success else "NO success"
    rows += [
        ("confidence", f"{result.confidence:.3f} ({verdict})"),
        (
            "pose",
            f"rotation {degrees:.2f}°, translation {result.displacement:.4g} at the middle of the source",
        ),
        ("deviation", f"{result.deviation_text} at the overlap, if the pose is right"),
        ("overlap", f"{result.overlap:.0%} of the source, rmse {result.rmse:.3g}"),
        ("matches", f"{result.matches}, {result.inliers} of them inliers"),
        ("resolution", f"{result.resolution:.4g}"),
        ("scale", f"{result.scale:.4g} ± {result.scale_deviation:.2g}"),
        *([("tilt", f"{result.tilt:.2f}° between the known directions")] if result.tilt is not None else []),
        ("viewpoints", result.viewpoints_text),
        ("alternatives", result.alternatives_text),
        ("seconds", seconds_text(result.timings)),
    ]
    print_table("registration", rows)


def print_alternatives(result: Registration) -> None:
    """Print each other plausible pose with its matrix."""
    for number, pose in enumerate(result.alternatives, 2):
        print(
            f"pose {number}: probability {pose.probability:.3f}, overlap {pose.overlap:.0%} of the source, "
            f"rmse {pose.rmse:.3g}\n{matrix_rows(pose.T_target_source)}\n"
        )


def _suggestion(result: Registration, model: str, keypoints: tuple[int, ...]) -> str:
    """Say which options to try after a result without success."""
    more = (*(keypoints[:-1] or keypoints), 2 * keypoints[-1])  # the last of several rounds searches more
    options = [
        f"--resolution {result.resolution / 2:.2g} (was {result.resolution:.2g})",
        f"--keypoints {join_counts(more)}",
    ]
    if model == DEFAULT_MODEL:
        options.append("--model indoor, which is slower")
    return "Try " + ", or ".join(options) + "."


def _draw(
    result: Registration, clouds: list[Cloud], files: tuple[Path, Path], save: Path | None
) -> SceneView:
    """Build the interactive page of a result, and save it if a file is given."""
    from wsdesc.view.page import save_page
    from wsdesc.view.results import registration_scene, short_names

    names = short_names([str(path) for path in files])
    scene = registration_scene(result, (clouds[0], clouds[1]), (names[0], names[1]))
    if save is not None:
        save_page(scene, save)
    return scene
