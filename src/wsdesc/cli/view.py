"""`wsdesc view`: scans and results in a browser."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wsdesc.cli.checks import check_inputs, check_outputs, check_view
from wsdesc.cli.options import Port
from wsdesc.cli.output import print_warnings, print_written, progress_bars
from wsdesc.core.errors import InputError

if TYPE_CHECKING:
    from wsdesc.view.scene import SceneView


def view(
    items: Annotated[
        list[Path],
        typer.Argument(
            help="Scans: one, several, or a folder of them. Two scans and a pose: SOURCE TARGET POSE. "
            "An object, a scene and the .json file of `wsdesc find -o`. Or a result: the .json file of "
            "`wsdesc register -o`, the folder of `wsdesc reconstruct -o`.",
            metavar="SCANS|RESULT",
        ),
    ],
    matches: Annotated[
        bool, typer.Option("--matches", help="Matches of two scans, inliers and outliers of the pose.")
    ] = False,
    save: Annotated[
        Path | None, typer.Option(help="File (.html) for the page, instead of a server; works offline.")
    ] = None,
    up: Annotated[
        str,
        typer.Option(help="Direction that points up: x, -x, y, -y, z, -z (auto: -y of depth cameras, or z)."),
    ] = "auto",
    unit: Annotated[
        str | None, typer.Option(help="Unit of length, such as m (default: from the file, if it states one).")
    ] = None,
    points: Annotated[int, typer.Option(min=1, help="Largest number of points that are drawn.")] = 120_000,
    port: Port = None,
    host: Annotated[
        str, typer.Option(help="Address that the server listens on; 0.0.0.0 admits other machines.")
    ] = "localhost",
) -> None:
    """Show scans and results in a browser, until Ctrl-C."""
    from wsdesc.cloud.scan_files import is_folder
    from wsdesc.registration.pose_file import is_pose_file

    files = [path for path in items if not is_folder(path)]
    check_inputs(files, "file or folder")
    check_outputs({save: (".html",)}, files)
    if matches and not any(map(is_pose_file, files)):
        raise InputError("--matches needs a pose: give its file after the two scans")
    check_view(save is None, port, host)
    with progress_bars() as progress, progress("read and prepare", 0):
        from wsdesc.view.open_scene import open_scene

        scene = open_scene(*items, matches=matches, up=up, unit=unit, max_points=points)  # type: ignore[arg-type]
    print_warnings(scene.warnings)
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
