"""Show scans or results in a browser: a pose of two scans, a registration, a finding, a reconstruction."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from numpy.typing import ArrayLike

from wsdesc.cloud.convert import Scan
from wsdesc.core.errors import FileFormatError
from wsdesc.core.file_parts import as_path
from wsdesc.view.frame import Up
from wsdesc.view.open_scene import open_scene
from wsdesc.view.page import save_page
from wsdesc.view.scene import MAX_POINTS, SceneView
from wsdesc.view.server import HOST, check_server, serve

if TYPE_CHECKING:
    from wsdesc.finding.result import Finding
    from wsdesc.reconstruction.result import Reconstruction
    from wsdesc.registration.result import Registration


def show(
    *items: Scan | Registration | Reconstruction,
    pose: ArrayLike | Finding | str | os.PathLike[str] | None = None,
    save: str | os.PathLike[str] | None = None,
    matches: bool = False,
    up: Up = "auto",
    unit: str | None = None,
    max_points: int = MAX_POINTS,
    host: str = HOST,
    port: int | None = None,
    announce: Callable[[str], None] = print,
) -> SceneView:
    """Show scans or a result on a page in a browser, until Ctrl-C, or save the page.

    Args:
        items: Scans: files, folders of scans, or any other form that `as_cloud` takes. Or one result: a
            `Registration` or its .json file, a `Reconstruction` or its folder. Or two scans and the file of
            their pose.
        pose: Pose `T_target_source` (4, 4) of two scans, or its file. For a `Finding` or its file, the scans
            are the object and the scene.
        save: File (.html) for the page, which works offline. Without it, a server shows the page.
        matches: Match keypoints of two scans, if the result has no matches.
        up: Direction that points up: "x", "-x", "y", "-y", "z" or "-z"; "auto" takes -y or y for depth
            cameras, and z for others.
        unit: Name of the unit of length, such as "m". None takes it from the files, where they state it.
        max_points: Largest number of points that are drawn.
        host: Address that the server listens on.
        port: Its port; None takes the first free one from 8080.
        announce: Called with the address once the page is available.

    Returns:
        The scene on the page.

    Raises:
        WSDescError: A file cannot be read, the items do not fit together, or the page cannot be served.
    """
    if save is None:
        check_server(host, port)
    elif as_path(save, "save").suffix.lower() != ".html":
        raise FileFormatError(f"{save}: the name must end in .html")
    scene = open_scene(*items, pose=pose, matches=matches, up=up, unit=unit, max_points=max_points)
    if save is None:
        serve(scene, host, port, announce)
    else:
        save_page(scene, save)
    return scene
