"""Show a scene in a browser: a web server with an interactive page."""

from __future__ import annotations

import errno
import socket
import threading
from collections.abc import Callable
from contextlib import redirect_stdout
from functools import partial
from importlib.util import find_spec
from io import StringIO
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation

from wsdesc.core.errors import InputError, MissingExtraError
from wsdesc.core.geometry import Floats
from wsdesc.view.geometry import QuaternionPose, interpolate
from wsdesc.view.pick import PickedKeypoint, pick_keypoint, support_cells
from wsdesc.view.scene import BAD, GOOD, RADIUS, ScanView, SceneView, Supports, confidence_colour

HOST, PORT = "localhost", 8080
_EYE = np.array([-0.6, -0.82, 0.62])  # direction of the first view, and of the light
_CUBE = np.array([[x, y, z] for x in (-0.5, 0.5) for y in (-0.5, 0.5) for z in (-0.5, 0.5)])
_FACES = np.array([[0, 1, 3], [0, 3, 2], [4, 6, 7], [4, 7, 5], [0, 4, 5], [0, 5, 1],
                   [2, 3, 7], [2, 7, 6], [0, 2, 6], [0, 6, 4], [1, 5, 7], [1, 7, 3]])  # fmt: skip
_CUBE_EDGES = np.array([[a, a | bit] for a in range(8) for bit in (1, 2, 4) if not a & bit])  # (12, 2)
_VIOLET = (140, 84, 191)
_POINT_SIZE = 1.2  # of the median spacing: surfaces look closed


LineEnds = Callable[[list[QuaternionPose]], Floats]  # poses of all scans → ends of lines (L, 2, 3)


class _Lines(NamedTuple):
    handle: Any  # of viser
    ends: LineEnds


def check_server(host: str = HOST, port: int | None = None) -> None:
    """Check that a page can be served, before any work.

    Raises:
        MissingExtraError: viser is not installed.
        InputError: The port is in use, or the host is not an address of this machine.
    """
    if find_spec("viser") is None:
        raise MissingExtraError("the interactive page", "view")
    try:
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port or 0))
    except (OSError, OverflowError) as error:
        if getattr(error, "errno", None) == errno.EADDRINUSE:
            raise InputError(f"port {port} is in use: choose another port") from error
        address = host if port is None else f"{host}:{port}"
        raise InputError(f"{address}: cannot serve a page: {error}") from error


def serve(
    scene: SceneView, host: str = HOST, port: int | None = None, announce: Callable[[str], None] = print
) -> None:
    """Show a scene until Ctrl-C.

    Args:
        scene: The scene.
        host: Address that the server listens on.
        port: Its port; None takes the first free one from 8080.
        announce: Called with the address once the page is available.
    """
    check_server(host, port)
    view = LiveView(scene, host, port)
    try:
        announce(view.address)
        threading.Event().wait()
    except KeyboardInterrupt:
        pass
    finally:
        view.stop()


class LiveView:
    """A running server with a scene and its controls."""

    def __init__(self, scene: SceneView, host: str = HOST, port: int | None = None) -> None:
        import viser

        self.scene = scene
        self.picked: PickedKeypoint | None = None
        self._updating = threading.RLock()  # controls may change during an update
        self._support: list[Any] = []
        with redirect_stdout(StringIO()):  # stdout is for results
            self.server = viser.ViserServer(
                host, PORT if port is None else port, label=scene.title, verbose=False
            )
        if port and self.server.get_port() != port:  # another process took the port since `check_server`
            self.stop()
            raise InputError(f"port {port} is in use: choose another port")
        name = "localhost" if host in ("0.0.0.0", "::") else host
        self.address = f"http://{name}:{self.server.get_port()}"
        self.server.gui.configure_theme(show_logo=False, show_share_button=False)
        self.server.scene.set_up_direction("+z")
        self.server.initial_camera.position = tuple(1.3 * RADIUS * _EYE)
        self.server.initial_camera.look_at = (0.0, 0.0, 0.0)
        self._clouds = [self._add_cloud(number, scan) for number, scan in enumerate(scene.scans)]
        self._lines = self._add_lines()
        self._add_controls()
        self.update()
        if any(scan.supports is not None for scan in scene.scans):
            self.server.scene.on_click()(lambda event: self.pick(event.ray_origin, event.ray_direction))

    def stop(self) -> None:
        """End the server."""
        with redirect_stdout(StringIO()):
            self.server.stop()

    @property
    def share(self) -> float:
        """Position of the slider between the input poses (0) and the result (1)."""
        return float(self._share.value) if self._share else 1.0

    def update(self) -> None:
        """Draw scans, lines and keypoints as the controls are set."""
        with self._updating, self.server.atomic():
            poses = [interpolate(scan.start, scan.end, self.share) for scan in self.scene.scans]
            for cloud, pose, box in zip(self._clouds, poses, self._scan_boxes, strict=True):
                cloud.wxyz, cloud.position, cloud.visible = pose.wxyz, pose.position, box.value
                cloud.point_size = _POINT_SIZE * self.scene.spacing * self._size.value
            for name, lines in self._lines.items():
                lines.handle.points = lines.ends(poses)
                lines.handle.visible = self._line_boxes[name].value
            for dots in self._keypoint_dots:
                dots.visible = self._keypoint_box.value

    def pick(self, origin: Any, direction: Any) -> None:
        """Show the support of the keypoint that a ray hits; hide it if the ray hits nothing."""
        with self._updating, self.server.atomic():
            for handle in self._support:
                handle.remove()
            visible = [bool(box.value) for box in self._scan_boxes]
            ray = np.asarray(origin), np.asarray(direction)
            self.picked = pick_keypoint(self.scene, self.share, visible, *ray)
            self._support = self._add_support(self.picked) if self.picked else []

    def _add_cloud(self, number: int, scan: ScanView) -> Any:
        light = 0.45 + 0.55 * np.abs(scan.normals @ scan.end.rotation.T @ (_EYE / np.linalg.norm(_EYE)))
        colours = np.rint(light[:, None] * scan.colour).astype(np.uint8)  # (N, 3)
        return self.server.scene.add_point_cloud(
            f"/scan{number}",
            scan.points.astype(np.float32),
            colours,
            point_size=_POINT_SIZE * self.scene.spacing,
            point_shape="circle",
            precision="float32",
            point_shading="flat",
        )

    def _add_lines(self) -> dict[str, _Lines]:
        """Add matches and edges, by the labels of their checkboxes."""
        groups: dict[str, _Lines] = {}
        if (matches := self.scene.matches) is not None:
            kinds = zip(("inliers", "outliers"), (True, False), (GOOD, BAD), (1.5, 0.8), strict=True)
            for total, (word, kind, colour, width) in zip(self.scene.match_counts, kinds, strict=True):
                chosen = np.flatnonzero(matches.inlier == kind)
                if not len(chosen):
                    continue
                ends = partial(_match_ends, matches.source[chosen], matches.target[chosen])
                colours = np.tile(colour, (len(chosen), 1))
                lines = self._add_segments(f"/{word}", ends, colours, width)
                groups[f"{word}: {len(chosen)} of {total}"] = lines
        for word, kind in (("accepted", True), ("rejected", False)):
            if edges := [edge for edge in self.scene.edges if edge.accepted is kind]:
                colours = np.array([confidence_colour(edge.confidence) for edge in edges])
                scans = np.array([(edge.source, edge.target) for edge in edges])
                ends = partial(_edge_ends, scans, _graph_offset(self.scene))
                groups[f"{len(edges)} {word} edges"] = self._add_segments(f"/{word}", ends, colours, 4.0)
        return groups

    def _add_segments(self, name: str, ends: LineEnds, colours: NDArray, width: float) -> _Lines:
        points = ends([scan.end for scan in self.scene.scans])  # (L, 2, 3)
        # viser takes colours per end as linear: without the conversion they look pale.
        linear = 255 * (colours / 255) ** 2.2
        both = np.repeat(np.rint(linear)[:, None].astype(np.uint8), 2, axis=1)
        handle = self.server.scene.add_line_segments(
            name, points, both, thickness=width, thickness_units="screen"
        )
        return _Lines(handle, ends)

    def _add_controls(self) -> None:
        gui, scene = self.server.gui, self.scene
        gui.add_markdown("  \n".join([f"**{scene.title}**", *scene.facts, scene.point_count]))
        for number, scan in enumerate(scene.scans):
            if scan.choices:
                self._add_chooser(number, scan)
        self._share = gui.add_slider("input → result", 0.0, 1.0, 0.01, 1.0) if scene.moves else None
        self._size = gui.add_slider("point size", 0.2, 4.0, 0.05, 1.0)
        self._scan_boxes = [gui.add_checkbox(scan.name, True) for scan in scene.scans]
        self._line_boxes = {name: gui.add_checkbox(name, "rejected" not in name) for name in self._lines}
        self._keypoint_dots = [
            self._add_keypoints(k, scan.supports) for k, scan in enumerate(scene.scans) if scan.supports
        ]
        handles = [self._size, *self._scan_boxes, *self._line_boxes.values()]
        if self._share:
            handles.append(self._share)
        if self._keypoint_dots:
            self._keypoint_box = gui.add_checkbox("keypoints", False)
            gui.add_markdown("Click on a scan to show the support of the nearest keypoint.")
            handles.append(self._keypoint_box)
        for handle in handles:
            handle.on_update(lambda _: self.update())

    def _add_chooser(self, number: int, scan: ScanView) -> None:
        """Add a list of the poses of a scan."""
        names = [choice.name for choice in scan.choices]
        chooser = self.server.gui.add_dropdown("pose", names)

        @chooser.on_update
        def _(_: Any) -> None:
            with self._updating:
                self.scene = self.scene.with_choice(number, names.index(chooser.value))
            self.update()

    def _add_keypoints(self, number: int, supports: Supports) -> Any:
        return self.server.scene.add_point_cloud(
            f"/scan{number}/keypoints",
            supports.keypoints.astype(np.float32),
            (40, 40, 40),
            point_size=0.012 * RADIUS,
            point_shape="circle",
            precision="float32",
            visible=False,
        )

    def _add_support(self, picked: PickedKeypoint) -> list[Any]:
        """Add the occupied cells of a support as cubes, and its outline."""
        cells = support_cells(self.scene, picked)
        (centre, side), name = cells.cube, f"/scan{picked.scan}/support"
        x, y, z, w = Rotation.from_matrix(cells.axes).as_quat()
        outline = centre + side * (_CUBE @ cells.axes.T)[_CUBE_EDGES]  # (12, 2, 3)
        api = self.server.scene
        cube = api.add_line_segments(
            f"{name}/cube", outline, _VIOLET, thickness=2.0, thickness_units="screen"
        )
        if not len(cells.centres):
            return [cube]
        shades = np.rint((0.55 + 0.45 * cells.values[:, None]) * _VIOLET).astype(np.uint8)
        cubes = api.add_batched_meshes_simple(
            f"{name}/cells",
            0.94 * cells.cell_side * _CUBE,  # with small gaps
            _FACES,
            np.tile([w, x, y, z], (len(cells.centres), 1)),
            cells.centres,
            batched_colors=shades,
            opacity=0.6,
            flat_shading=True,
            cast_shadow=False,
            receive_shadow=False,
        )
        return [cube, cubes]


def _match_ends(source: Floats, target: Floats, poses: list[QuaternionPose]) -> Floats:
    return np.stack([poses[0].apply(source), poses[1].apply(target)], axis=1)


def _edge_ends(scans: NDArray, offset: Floats, poses: list[QuaternionPose]) -> Floats:
    return np.asarray((np.stack([pose.position for pose in poses]) + offset)[scans])


def _graph_offset(scene: SceneView) -> Floats:
    """Return the offset (3,) that lifts edges above the scans: viser would hide them behind points."""
    highest = max(float(scan.end.apply(scan.points)[:, 2].max()) for scan in scene.scans)
    lowest = min(float(scan.end.position[2]) for scan in scene.scans)
    return np.array([0.0, 0.0, 1.1 * (highest - lowest)])
