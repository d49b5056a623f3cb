"""`wsdesc view`, and what other commands offer to look at their results."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wsdesc.cli.output import progress

if TYPE_CHECKING:
    from wsdesc.view.geometry import Floats
    from wsdesc.view.scene import Scene

View = Annotated[bool, typer.Option("--view", help="Show the result in a browser, until Ctrl-C.")]
Save = Annotated[Path | None, typer.Option(help="Write such a page into this .html, which works offline.")]
Port = Annotated[
    int | None,
    typer.Option(min=1, max=65535, help="Of the page; the first free one from 8080 on if not given."),
]
_KEYPOINTS = 1200  # described where matches are wanted


def view(
    source: Annotated[Path, typer.Argument(help="A scan, shown in orange.")],
    target: Annotated[Path, typer.Argument(help="Another one, in blue.")],
    pose: Annotated[
        Path | None,
        typer.Argument(help="Pose of the first in the second: a .json of `register`, or 4×4 as text."),
    ] = None,
    matches: Annotated[
        bool,
        typer.Option("--matches", help="Describe both scans, and show which matches agree with the pose."),
    ] = False,
    save: Annotated[
        Path | None, typer.Option(help="Write the page into this .html, which works offline, and end.")
    ] = None,
    port: Port = None,
    host: Annotated[str, typer.Option(help="0.0.0.0 lets other machines look, too.")] = "localhost",
) -> None:
    """Look at two scans and a pose in a browser, until Ctrl-C."""
    from wsdesc.cli.register import check_outputs
    from wsdesc.core.errors import InputError

    check_outputs({save: (".html",)}, (source, target, *([pose] if pose else [])))
    check_view(save is None, port, host)
    if matches and pose is None:
        raise InputError("matches are judged by a pose: name its file after the scans")
    with progress() as watch:
        with watch("read files", 0):
            from wsdesc.cloud.files import read_points

            T = None if pose is None else read_pose(pose)
            clouds = (read_points(source, nonfinite="drop"), read_points(target, nonfinite="drop"))
        with watch("prepare", 0):
            from wsdesc.view.results import files_scene, short_names

            names = short_names([str(source), str(target)])
            scene = files_scene(clouds, T, (names[0], names[1]), _KEYPOINTS if matches else 0)
    if save is None:
        look(scene, port, host)
        return
    from wsdesc.view.page import save_page

    save_page(scene, save)
    print(f"written: {save}, {scene.counted}")


def check_view(wanted: bool, port: int | None = None, host: str = "localhost") -> None:
    """Find out before the work whether its result could be shown, if that is wanted."""
    if wanted:
        from wsdesc.view.server import check_server

        check_server(host, port)


def look(scene: Scene, port: int | None = None, host: str = "localhost") -> None:
    """Serve a page until Ctrl-C. What is said about it goes to stderr: stdout is for results."""
    from wsdesc.view.server import serve

    def ready(address: str) -> None:
        print(f"{scene.counted}: look at {address} (Ctrl-C ends)", file=sys.stderr, flush=True)

    serve(scene, host, port, ready)


def read_pose(path: Path) -> Floats:
    """A rigid motion (4, 4): of a .json that `wsdesc register` wrote, or rows of numbers in text."""
    import numpy as np

    from wsdesc.core.errors import FileFormatError, InputError
    from wsdesc.view.scene import rigid

    try:
        text = path.read_text(encoding="utf-8")
        found: Any = json.loads(text) if path.suffix.lower() == ".json" else _rows(text)
    except OSError as error:
        raise FileFormatError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:  # of JSON, of numbers, of text that is none
        raise FileFormatError(f"{path}: holds no pose: {error}") from error
    if isinstance(found, dict):
        if "T_target_source" not in found:
            raise FileFormatError(f"{path}: holds no pose: there is no T_target_source in it")
        found = found["T_target_source"]
    try:
        return rigid(np.array(found, dtype=np.float64))
    except (InputError, ValueError, TypeError, OverflowError) as error:
        raise FileFormatError(f"{path}: holds no pose: {error}") from error


def _rows(text: str) -> list[list[float]]:
    return [[float(word) for word in line.split()] for line in text.splitlines() if line.strip()]
