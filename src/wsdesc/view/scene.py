"""What there is to see: scans that move from where they came to where they belong, and what connects them.

A scene says nothing about how it is drawn; `page` writes it into a file and `server` shows it live. It is in
coordinates of its own: about the middle, the directions of most spread in x and y, and as large as `RADIUS`.
"""

from __future__ import annotations

import colorsys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from wsdesc.core.errors import InputError
from wsdesc.view.geometry import Floats, Placement, main_axes, surface_normals, thinned, usual_spacing

SOURCE, TARGET = (242, 128, 26), (41, 115, 199)  # orange and blue
GOOD, BAD = (40, 160, 70), (214, 48, 49)
RADIUS = 2.0  # of all scans where they belong; cameras and their clipping planes are made for such sizes
MOST = 120_000  # points of all scans together: what a browser turns without effort
_FAR = 3.0  # radii: scans that come from farther away begin there
_LINES = 120  # matches drawn of either kind; more hide each other


class Matches(NamedTuple):
    """Pairs of keypoints in the coordinates of their files, and which of them agree with the pose."""

    source: Floats  # (M, 3)
    target: Floats  # (M, 3)
    agree: NDArray[np.bool_]  # (M,)


class Supports(NamedTuple):
    """What a descriptor sees of the surroundings of keypoints, in the coordinates of their file."""

    keypoints: Floats  # (K, 3)
    axes: Floats  # (K, 3, 3), of their local frames, in columns
    sides: Floats  # (K,) of the cubes
    grids: NDArray[np.uint8]  # (K, h, h, h) occupancy, 255 = full; the first index goes along the first axis


class Edge(NamedTuple):
    """Two scans of a reconstruction that were registered."""

    source: int  # place in `Scene.scans`
    target: int
    confidence: float
    believed: bool


@dataclass(frozen=True, eq=False)
class Scan:
    """A thinned cloud about its own middle, its two places, and the supports of some of its keypoints."""

    name: str
    colour: tuple[int, int, int]
    points: Floats  # (N, 3)
    normals: Floats  # (N, 3), of either sign
    total: int  # points before thinning
    start: Placement
    end: Placement
    supports: Supports | None = None


@dataclass(frozen=True, eq=False)
class Scene:
    """Scans, matches between the first two of them, edges between any."""

    title: str
    scans: list[Scan]
    spacing: float  # usual distance of neighbouring points
    matches: Matches | None = None  # about the middles of the first two scans
    found: tuple[int, int] = (0, 0)  # matches that agree and that do not, before thinning
    edges: list[Edge] = field(default_factory=list)
    facts: list[str] = field(default_factory=list)  # lines to be read beside the picture

    @property
    def moves(self) -> bool:
        """Whether a scan belongs elsewhere than where it came."""
        return any(not np.allclose(a, b) for s in self.scans for a, b in zip(s.start, s.end, strict=True))

    @property
    def counted(self) -> str:
        """How many points are shown, of how many."""
        shown, total = sum(len(s.points) for s in self.scans), sum(s.total for s in self.scans)
        return f"{shown:,} of {total:,} points shown" if shown < total else f"all {total:,} points shown"


def pair_scene(
    source: Floats,
    target: Floats,
    T_target_source: Floats | None = None,
    *,
    names: tuple[str, str] = ("source", "target"),
    title: str = "",
    facts: Sequence[str] = (),
    matches: Matches | None = None,
    supports: tuple[Supports | None, Supports | None] = (None, None),
    most: int = MOST,
) -> Scene:
    """Two clouds (N, 3) and (M, 3) in the coordinates of their files, and the pose of one in the other.

    Without a pose both stay where they are. `most` points are shown, of both together.
    """
    T = np.eye(4) if T_target_source is None else rigid(T_target_source)
    whole = [np.asarray(cloud, dtype=np.float64) for cloud in (source, target)]
    clouds = [thinned(cloud, most // 2) for cloud in whole]
    view = _View.of([_moved(clouds[0], T), clouds[1]])
    looks = zip(names, (SOURCE, TARGET), clouds, (T, np.eye(4)), (np.eye(4), np.eye(4)), strict=True)
    scans = [
        view.scan(*look, len(all_), support)
        for look, all_, support in zip(looks, whole, supports, strict=True)
    ]
    lines, found = None, (0, 0)
    if matches is not None:
        found = (int(matches.agree.sum()), int((~matches.agree).sum()))
        lines = _some(matches)
        lines = lines._replace(
            source=view.scale * (lines.source - _middle(clouds[0])),
            target=view.scale * (lines.target - _middle(clouds[1])),
        )
    return Scene(title, scans, view.spacing(scans), lines, found, facts=list(facts))


def model_scene(
    clouds: Mapping[str, Floats],
    T_world_scan: Mapping[str, Floats],
    *,
    totals: Mapping[str, int] | None = None,
    frames: Sequence[Sequence[str]] = (),
    edges: Sequence[tuple[str, str, float, bool]] = (),
    title: str = "",
    facts: Sequence[str] = (),
    most: int = MOST,
) -> Scene:
    """Many clouds (N, 3) by name, their poses, and the pairs that were registered.

    Of a pair: the names, the confidence, whether it was believed. `frames` lists scans that share a frame;
    frames are shown beside each other. `totals` are the numbers of points of clouds thinned already.
    """
    if not clouds:
        raise InputError("no scan has a place: there is nothing to see")
    names = list(clouds)
    small = {
        name: thinned(np.asarray(clouds[name], dtype=np.float64), max(200, most // len(names)))
        for name in names
    }
    T_shown = _beside(small, T_world_scan, frames or [names])
    view = _View.of([_moved(small[name], T_shown[name]) for name in names])
    scans = []
    for k, name in enumerate(names):
        total = (totals or {}).get(name, len(clouds[name]))
        scans.append(view.scan(name, _hue(k), small[name], T_shown[name], np.eye(4), total, None))
    place = {name: k for k, name in enumerate(names)}
    seen = [Edge(place[a], place[b], sure, ok) for a, b, sure, ok in edges if a in place and b in place]
    return Scene(title, scans, view.spacing(scans), edges=seen, facts=list(facts))


def rigid(T: Floats) -> Floats:
    """A motion (4, 4) as it can be drawn, or an InputError."""
    T = np.asarray(T, dtype=np.float64)
    if T.shape != (4, 4) or not np.isfinite(T).all():
        raise InputError("a pose must be a matrix (4, 4) of finite numbers")
    turn = T[:3, :3] @ T[:3, :3].T - np.eye(3)
    if np.abs(turn).max() > 1e-3 or np.linalg.det(T[:3, :3]) < 0 or np.abs(T[3] - [0, 0, 0, 1]).max() > 1e-6:
        raise InputError("a pose must be rigid: a rotation and a translation, the last row 0 0 0 1")
    return T


def confidence_colour(confidence: float) -> tuple[int, int, int]:
    """Red for 0, yellow for one half, green for 1."""
    r, g, b = colorsys.hsv_to_rgb(0.36 * min(max(confidence, 0.0), 1.0), 0.85, 0.82)
    return round(255 * r), round(255 * g), round(255 * b)


class _View(NamedTuple):
    """From the coordinates where scans belong to those of a scene."""

    middle: Floats  # (3,)
    axes: Floats  # (3, 3), in columns
    scale: float

    @classmethod
    def of(cls, clouds: Sequence[Floats]) -> _View:
        points = np.concatenate(clouds)
        axes = main_axes(points)
        low, high = np.quantile(points @ axes, [0.004, 0.996], axis=0)  # a few stray points do not count
        size = float(np.linalg.norm(high - low) / 2) or 1.0
        return cls(axes @ ((low + high) / 2), axes, RADIUS / size)

    def scan(
        self,
        name: str,
        colour: tuple[int, int, int],
        cloud: Floats,
        T: Floats,
        T_start: Floats,
        total: int,
        supports: Supports | None,
    ) -> Scan:
        middle = _middle(cloud)
        end = self.place(T, middle)
        start = self.place(T_start, middle)
        away = start.position - end.position
        if (distance := float(np.linalg.norm(away))) > _FAR * RADIUS:
            start = start._replace(position=end.position + away * (_FAR * RADIUS / distance))
        points = self.scale * (cloud - middle)
        if supports is not None:
            keypoints, sides = self.scale * (supports.keypoints - middle), self.scale * supports.sides
            supports = supports._replace(keypoints=keypoints, sides=sides)
        return Scan(name, colour, points, surface_normals(points), total, start, end, supports)

    def place(self, T: Floats, middle: Floats) -> Placement:
        where = T[:3, :3] @ middle + T[:3, 3] - self.middle
        return Placement.of(self.axes.T @ T[:3, :3], self.scale * (self.axes.T @ where))

    def spacing(self, scans: Sequence[Scan]) -> float:
        return float(np.median([usual_spacing(scan.points) for scan in scans])) or RADIUS / 100


def _moved(points: Floats, T: Floats) -> Floats:
    return np.asarray(points @ T[:3, :3].T + T[:3, 3])


def _middle(cloud: Floats) -> Floats:
    return np.asarray(np.median(cloud, axis=0))


def _some(matches: Matches) -> Matches:
    """At most `_LINES` matches that agree and as many that do not, by chance."""
    order = np.random.default_rng(0).permutation(len(matches.agree))
    kept = np.concatenate([order[matches.agree[order] == kind][:_LINES] for kind in (True, False)])
    return Matches(matches.source[kept], matches.target[kept], matches.agree[kept])


def _beside(
    clouds: Mapping[str, Floats], T_world_scan: Mapping[str, Floats], frames: Sequence[Sequence[str]]
) -> dict[str, Floats]:
    """Poses that put frames, which know nothing of each other, side by side along x."""
    poses: dict[str, Floats] = {}
    edge: float | None = None
    for names in frames:
        names = [name for name in names if name in clouds]
        if not names:
            continue
        x = np.concatenate([_moved(clouds[name], rigid(T_world_scan[name]))[:, 0] for name in names])
        shift = 0.0 if edge is None else edge - x.min() + 0.1 * np.ptp(x)
        edge = float(x.max() + shift)
        for name in names:
            poses[name] = np.array(T_world_scan[name], dtype=np.float64)
            poses[name][0, 3] += shift
    return poses


def _hue(number: int) -> tuple[int, int, int]:
    """Colours of which neighbours differ much: each a golden section further around the circle."""
    r, g, b = colorsys.hsv_to_rgb((0.08 + 0.618034 * number) % 1.0, 0.72, 0.85)
    return round(255 * r), round(255 * g), round(255 * b)
