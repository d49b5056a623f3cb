"""A scene as a live page: a small server on this machine, looked at with any browser."""

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
from wsdesc.view.geometry import Floats, Placement, between
from wsdesc.view.pick import Picked, cells, pick
from wsdesc.view.scene import BAD, GOOD, RADIUS, Scan, Scene, Supports, confidence_colour

HOST, PORT = "localhost", 8080
_EYE = np.array([-0.6, -0.82, 0.62])  # direction of the first look; light comes from there too
_CUBE = np.array([[x, y, z] for x in (-0.5, 0.5) for y in (-0.5, 0.5) for z in (-0.5, 0.5)])
_FACES = np.array([[0, 1, 3], [0, 3, 2], [4, 6, 7], [4, 7, 5], [0, 4, 5], [0, 5, 1],
                   [2, 3, 7], [2, 7, 6], [0, 2, 6], [0, 6, 4], [1, 5, 7], [1, 7, 3]])  # fmt: skip
_RIMS = np.array([[a, a | bit] for a in range(8) for bit in (1, 2, 4) if not a & bit])  # (12, 2)
_VIOLET = (140, 84, 191)
_POINT = 1.2  # of the usual spacing: surfaces look closed


Ends = Callable[[list[Placement]], Floats]  # of lines, (L, 2, 3), when scans are placed like this


class _Lines(NamedTuple):
    handle: Any
    ends: Ends


def check_server(host: str = HOST, port: int | None = None) -> None:
    """Find out before any work whether a page could be served."""
    if find_spec("viser") is None:
        raise MissingExtraError("the live page", "view")
    try:
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port or 0))
    except (OSError, OverflowError) as error:
        if getattr(error, "errno", None) == errno.EADDRINUSE:
            raise InputError(f"port {port} is in use: name another with --port, or none") from error
        where = host if port is None else f"{host}:{port}"
        raise InputError(f"{where}: no page can be served there: {error}") from error


def serve(
    scene: Scene, host: str = HOST, port: int | None = None, ready: Callable[[str], None] = print
) -> None:
    """Show a scene until somebody presses Ctrl-C. `ready` is told the address once it can be looked at."""
    check_server(host, port)
    view = LiveView(scene, host, port)
    try:
        ready(view.address)
        threading.Event().wait()
    except KeyboardInterrupt:
        pass
    finally:
        view.stop()


class LiveView:
    """A running server, the scene on it, and the controls that change it."""

    def __init__(self, scene: Scene, host: str = HOST, port: int | None = None) -> None:
        import viser

        self.scene = scene
        self.picked: Picked | None = None
        self._changing = threading.RLock()  # controls may be moved faster than they are followed
        self._support: list[Any] = []
        with redirect_stdout(StringIO()):  # of which a program may want to read what was found
            self.server = viser.ViserServer(
                host, PORT if port is None else port, label=scene.title, verbose=False
            )
        if port and self.server.get_port() != port:  # somebody was faster
            self.stop()
            raise InputError(f"port {port} is in use: name another with --port, or none")
        shown = "localhost" if host in ("0.0.0.0", "::") else host
        self.address = f"http://{shown}:{self.server.get_port()}"
        self.server.gui.configure_theme(show_logo=False, show_share_button=False)
        self.server.scene.set_up_direction("+z")
        self.server.initial_camera.position = tuple(1.3 * RADIUS * _EYE)
        self.server.initial_camera.look_at = (0.0, 0.0, 0.0)
        self._clouds = [self._add_cloud(number, scan) for number, scan in enumerate(scene.scans)]
        self._lines = self._add_lines()
        self._controls()
        self.move()
        if any(scan.supports is not None for scan in scene.scans):
            self.server.scene.on_click()(lambda event: self.click(event.ray_origin, event.ray_direction))

    def stop(self) -> None:
        """End the server; pages that are open say so."""
        with redirect_stdout(StringIO()):
            self.server.stop()

    @property
    def share(self) -> float:
        """How far the scans are on their ways, 0 … 1."""
        return float(self._share.value) if self._share else 1.0

    def move(self) -> None:
        """Bring scans, and the lines between them, to where the slider says, and show what is switched on."""
        with self._changing, self.server.atomic():
            places = [between(scan.start, scan.end, self.share) for scan in self.scene.scans]
            for cloud, place, box in zip(self._clouds, places, self._shown, strict=True):
                cloud.wxyz, cloud.position, cloud.visible = place.wxyz, place.position, box.value
                cloud.point_size = _POINT * self.scene.spacing * self._size.value
            for name, lines in self._lines.items():
                lines.handle.points = lines.ends(places)
                lines.handle.visible = self._line_boxes[name].value
            for dots in self._dots:
                dots.visible = self._keypoints.value

    def click(self, origin: Any, direction: Any) -> None:
        """Show the support of the keypoint that a ray meets; none if it meets nothing."""
        with self._changing, self.server.atomic():
            for handle in self._support:
                handle.remove()
            shown = [bool(box.value) for box in self._shown]
            self.picked = pick(self.scene, self.share, shown, np.asarray(origin), np.asarray(direction))
            self._support = self._add_support(self.picked) if self.picked else []

    def _add_cloud(self, number: int, scan: Scan) -> Any:
        light = 0.45 + 0.55 * np.abs(scan.normals @ scan.end.rotation.T @ (_EYE / np.linalg.norm(_EYE)))
        colours = np.rint(light[:, None] * scan.colour).astype(np.uint8)  # (N, 3)
        return self.server.scene.add_point_cloud(
            f"/scan{number}",
            scan.points.astype(np.float32),
            colours,
            point_size=_POINT * self.scene.spacing,
            point_shape="circle",
            precision="float32",
            point_shading="flat",
        )

    def _add_lines(self) -> dict[str, _Lines]:
        """Matches and edges, by what their switches are called."""
        groups: dict[str, _Lines] = {}
        if (matches := self.scene.matches) is not None:
            kinds = zip(("inliers", "outliers"), (True, False), (GOOD, BAD), (1.5, 0.8), strict=True)
            for total, (word, kind, colour, width) in zip(self.scene.found, kinds, strict=True):
                some = np.flatnonzero(matches.agree == kind)
                name, colours = f"{word}: {len(some)} of {total}", np.tile(colour, (len(some), 1))
                ends = partial(_match_ends, matches.source[some], matches.target[some])
                groups |= {name: self._lines_between(f"/{word}", ends, colours, width)} if len(some) else {}
        for word, kind in (("believed", True), ("rejected", False)):
            if edges := [edge for edge in self.scene.edges if edge.believed is kind]:
                colours = np.array([confidence_colour(edge.confidence) for edge in edges])
                scans = np.array([(edge.source, edge.target) for edge in edges])
                ends = partial(_edge_ends, scans, _above(self.scene))
                groups[f"{len(edges)} {word} pairs"] = self._lines_between(f"/{word}", ends, colours, 4.0)
        return groups

    def _lines_between(self, name: str, ends: Ends, colours: NDArray, width: float) -> _Lines:
        points = ends([scan.end for scan in self.scene.scans])  # (L, 2, 3)
        # viser takes the colours of single ends for linear light; given as they are they would look pale.
        linear = 255 * (colours / 255) ** 2.2
        both = np.repeat(np.rint(linear)[:, None].astype(np.uint8), 2, axis=1)
        handle = self.server.scene.add_line_segments(
            name, points, both, thickness=width, thickness_units="screen"
        )
        return _Lines(handle, ends)

    def _controls(self) -> None:
        gui, scene = self.server.gui, self.scene
        gui.add_markdown("  \n".join([f"**{scene.title}**", *scene.facts, scene.counted]))
        self._share = gui.add_slider("input → result", 0.0, 1.0, 0.01, 1.0) if scene.moves else None
        self._size = gui.add_slider("point size", 0.2, 4.0, 0.05, 1.0)
        self._shown = [gui.add_checkbox(scan.name, True) for scan in scene.scans]
        self._line_boxes = {name: gui.add_checkbox(name, "rejected" not in name) for name in self._lines}
        self._dots = [
            self._add_keypoints(k, scan.supports) for k, scan in enumerate(scene.scans) if scan.supports
        ]
        handles = [self._size, *self._shown, *self._line_boxes.values()]
        if self._share:
            handles.append(self._share)
        if self._dots:
            self._keypoints = gui.add_checkbox("keypoints", False)
            gui.add_markdown("Click on a scan: the support of the keypoint nearest by.")
            handles.append(self._keypoints)
        for handle in handles:
            handle.on_update(lambda _: self.move())

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

    def _add_support(self, picked: Picked) -> list[Any]:
        """Its cells as cubes, and the cube of all of them as lines."""
        found = cells(self.scene, picked)
        (middle, side), name = found.cube, f"/scan{picked.scan}/support"
        x, y, z, w = Rotation.from_matrix(found.axes).as_quat()
        rims = middle + side * (_CUBE @ found.axes.T)[_RIMS]  # (12, 2, 3)
        api = self.server.scene
        cube = api.add_line_segments(f"{name}/cube", rims, _VIOLET, thickness=2.0, thickness_units="screen")
        if not len(found.centres):
            return [cube]
        shades = np.rint((0.55 + 0.45 * found.values[:, None]) * _VIOLET).astype(np.uint8)
        inside = api.add_batched_meshes_simple(
            f"{name}/cells",
            0.94 * found.side * _CUBE,  # a little apart from each other
            _FACES,
            np.tile([w, x, y, z], (len(found.centres), 1)),
            found.centres,
            batched_colors=shades,
            opacity=0.6,
            flat_shading=True,
            cast_shadow=False,
            receive_shadow=False,
        )
        return [cube, inside]


def _match_ends(source: Floats, target: Floats, places: list[Placement]) -> Floats:
    return np.stack([places[0].apply(source), places[1].apply(target)], axis=1)


def _edge_ends(scans: NDArray, above: Floats, places: list[Placement]) -> Floats:
    return np.asarray((np.stack([place.position for place in places]) + above)[scans])


def _above(scene: Scene) -> Floats:
    """How far from their middles the graph of the scans floats: viser would hide it behind their points."""
    highest = max(float(scan.end.apply(scan.points)[:, 2].max()) for scan in scene.scans)
    lowest = min(float(scan.end.position[2]) for scan in scene.scans)
    return np.array([0.0, 0.0, 1.1 * (highest - lowest)])
