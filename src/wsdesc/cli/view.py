"""`wsdesc view`: two scans and a pose in a browser."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wsdesc.cli.checks import check_inputs, check_outputs, check_view
from wsdesc.cli.options import Port
from wsdesc.cli.output import print_written, progress_bars
from wsdesc.core.errors import InputError

if TYPE_CHECKING:
    from wsdesc.view.scene import SceneView

_KEYPOINTS = 1200  # described for --matches


def view(
    source: Annotated[Path, typer.Argument(help="Scan file, drawn in orange.")],
    target: Annotated[Path, typer.Argument(help="Scan file, drawn in blue.")],
    pose: Annotated[
        Path | None,
        typer.Argument(help="Pose of the source in the target: .json of `wsdesc register`, or 4×4 as text."),
    ] = None,
    matches: Annotated[
        bool, typer.Option("--matches", help="Matches of both scans, inliers and outliers of the pose.")
    ] = False,
    save: Annotated[
        Path | None, typer.Option(help="File (.html) for the page, instead of a server; works offline.")
    ] = None,
    port: Port = None,
    host: Annotated[
        str, typer.Option(help="Address that the server listens on; 0.0.0.0 admits other machines.")
    ] = "localhost",
) -> None:
    """Show two scans and a pose in a browser, until Ctrl-C."""
    inputs = (source, target, *([pose] if pose else []))
    check_inputs(inputs)
    check_outputs({save: (".html",)}, inputs)
    check_view(save is None, port, host)
    if matches and pose is None:
        raise InputError("--matches needs a pose: give its file after the two scans")
    with progress_bars() as progress:
        with progress("read files", 0):
            from wsdesc.cloud.convert import as_cloud
            from wsdesc.view.pose_file import read_alternatives, read_pose

            T = None if pose is None else read_pose(pose)
            alternatives, confidence = ([], 0.0) if pose is None else read_alternatives(pose)
            clouds = (as_cloud(source).points, as_cloud(target).points)
        with progress("prepare", 0):
            from wsdesc.view.results import files_scene, pose_choices, short_names

            names = short_names([str(source), str(target)])
            choices = [] if T is None else pose_choices(T, alternatives, confidence)
            scene = files_scene(clouds, T, (names[0], names[1]), _KEYPOINTS if matches else 0, choices)
    if save is None:
        serve_page(scene, port, host)
        return
    from wsdesc.view.page import save_page

    save_page(scene, save)
    print(scene.point_count)
    print_written([save])


def serve_page(scene: SceneView, port: int | None = None, host: str = "localhost") -> None:
    """Serve a page until Ctrl-C. Its address goes to stderr: stdout is for results."""
    from wsdesc.view.server import serve

    def announce(address: str) -> None:
        print(f"{scene.point_count}: open {address} (Ctrl-C ends)", file=sys.stderr, flush=True)

    serve(scene, host, port, announce)
