"""Scenes: what is drawn, independent of how it is drawn.

A scene has its own coordinates: centred, with the largest variance in x and y, and of the size `RADIUS`.
`page` writes a scene to a file, `server` shows it live, `snapshot` makes a picture of it.
"""

from __future__ import annotations

import colorsys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from wsdesc.cloud.convert import Scan, as_cloud
from wsdesc.core.errors import InputError
from wsdesc.core.geometry import Floats, check_rigid, transform
from wsdesc.core.planes import normals
from wsdesc.view.geometry import (
    NORMAL_NEIGHBOURS,
    QuaternionPose,
    median_spacing,
    principal_axes,
    thin_points,
)

Colour = tuple[int, int, int]

SOURCE, TARGET = (242, 128, 26), (41, 115, 199)  # orange and blue
GOOD, BAD = (40, 160, 70), (214, 48, 49)
RADIUS = 2.0  # of all aligned scans; cameras and clipping planes suit this size
MAX_POINTS = 120_000  # of all scans: a browser turns them without delay
_MAX_START_DISTANCE = 3.0  # radii between the start and the end of a scan
_MAX_LINES = 120  # inliers, and as many outliers; more would hide each other
_MIN_SCAN_POINTS = 200  # per scan of a reconstruction


class MatchLines(NamedTuple):
    """Matched keypoints, drawn as lines."""

    source: Floats  # (M, 3)
    target: Floats  # (M, 3)
    inlier: NDArray[np.bool_]  # (M,) whether the match agrees with the pose


class Supports(NamedTuple):
    """Voxel grids that the descriptors of keypoints are computed from."""

    keypoints: Floats  # (K, 3)
    axes: Floats  # (K, 3, 3) frames, in columns
    sides: Floats  # (K,) side lengths of the grids
    grids: NDArray[np.uint8]  # (K, h, h, h) occupancy, 255 = full; the first index follows the first axis


class EdgeView(NamedTuple):
    """A registered pair of a reconstruction, drawn as a line."""

    source: int  # index into `SceneView.scans`
    target: int
    confidence: float
    accepted: bool


class PoseChoice(NamedTuple):
    """A pose that a user can choose for a scan."""

    name: str
    pose: QuaternionPose


@dataclass(frozen=True, eq=False)
class ScanView:
    """A scan as it is drawn: reduced points relative to its centre, and its pose before and after."""

    name: str
    colour: Colour
    points: Floats  # (N, 3)
    normals: Floats  # (N, 3), of arbitrary sign
    total: int  # points of the whole scan
    start: QuaternionPose
    end: QuaternionPose
    supports: Supports | None = None
    choices: tuple[PoseChoice, ...] = ()  # poses that can replace `end`, which is the first of them


@dataclass(frozen=True, eq=False)
class SceneView:
    """Scans, matches between the first two scans, and edges between any."""

    title: str
    scans: list[ScanView]
    spacing: float  # median distance between neighbouring points
    matches: MatchLines | None = None  # relative to the centres of the first two scans
    match_counts: tuple[int, int] = (0, 0)  # inliers and outliers, including those that are not drawn
    edges: list[EdgeView] = field(default_factory=list)
    facts: list[str] = field(default_factory=list)  # lines of text beside the picture

    @property
    def moves(self) -> bool:
        """Whether the pose of a scan differs between start and end."""
        return any(not np.allclose(a, b) for s in self.scans for a, b in zip(s.start, s.end, strict=True))

    def with_choice(self, scan: int, choice: int) -> SceneView:
        """Return the scene with another one of the poses of a scan, both given by their numbers."""
        scans = list(self.scans)
        scans[scan] = replace(scans[scan], end=scans[scan].choices[choice].pose)
        return replace(self, scans=scans)

    @property
    def point_count(self) -> str:
        """Text about how many points are shown, of how many."""
        shown, total = sum(len(s.points) for s in self.scans), sum(s.total for s in self.scans)
        return f"{shown:,} of {total:,} points shown" if shown < total else f"all {total:,} points shown"


def pair_scene(
    source: Scan,
    target: Scan,
    T_target_source: Floats | None = None,
    *,
    names: tuple[str, str] = ("source", "target"),
    title: str = "",
    facts: Sequence[str] = (),
    matches: MatchLines | None = None,
    supports: tuple[Supports | None, Supports | None] = (None, None),
    choices: Sequence[tuple[str, Floats]] = (),
    max_points: int = MAX_POINTS,
) -> SceneView:
    """Build the scene of two scans.

    Args:
        source: Scan in any form, such as points (N, 3).
        target: Scan in any form, such as points (M, 3).
        T_target_source: Pose (4, 4); without it nothing moves.
        names: Names of both scans.
        title: Title of the page.
        facts: Lines of text beside the picture.
        matches: Matches in the coordinates of the files.
        supports: Supports of both scans, in the coordinates of the files.
        choices: Names and poses (4, 4) that can be chosen for the source; the first is `T_target_source`.
        max_points: Largest number of points of both scans together.
    """
    T = np.eye(4) if T_target_source is None else check_rigid(T_target_source, "T_target_source")
    clouds = [as_cloud(cloud).points for cloud in (source, target)]
    thinned = [thin_points(cloud, max_points // 2) for cloud in clouds]
    frame = _SceneFrame.fit([transform(thinned[0], T), thinned[1]])
    scans = [
        frame.scan_view(names[k], colour, thinned[k], pose, np.eye(4), len(clouds[k]), supports[k])
        for k, (colour, pose) in enumerate(((SOURCE, T), (TARGET, np.eye(4))))
    ]
    if choices:
        scans[0] = replace(scans[0], choices=frame.choices(choices, thinned[0]))
    lines, counts = None, (0, 0)
    if matches is not None:
        counts = (int(matches.inlier.sum()), int((~matches.inlier).sum()))
        lines = _sample_matches(matches)
        lines = lines._replace(
            source=frame.scale * (lines.source - _centre(thinned[0])),
            target=frame.scale * (lines.target - _centre(thinned[1])),
        )
    return SceneView(title, scans, _scene_spacing(scans), lines, counts, facts=list(facts))


def multi_scan_scene(
    clouds: Mapping[str, Scan],
    T_world_scan: Mapping[str, Floats],
    *,
    totals: Mapping[str, int] | None = None,
    components: Sequence[Sequence[str]] = (),
    edges: Sequence[tuple[str, str, float, bool]] = (),
    title: str = "",
    facts: Sequence[str] = (),
    max_points: int = MAX_POINTS,
) -> SceneView:
    """Build the scene of many scans.

    Args:
        clouds: Scans in any form, such as points (N, 3), by name.
        T_world_scan: Poses (4, 4) by name.
        totals: Numbers of points by name, of clouds that are thinned already.
        components: Names of scans that share a frame; frames are drawn side by side.
        edges: Registered pairs: names of source and target, confidence, whether the edge is accepted.
        title: Title of the page.
        facts: Lines of text beside the picture.
        max_points: Largest number of points of all scans together.
    """
    if not clouds:
        raise InputError("nothing to show: no scan is placed")
    points = {name: as_cloud(cloud).points for name, cloud in clouds.items()}
    names = list(points)
    per_scan = max(_MIN_SCAN_POINTS, max_points // len(names))
    thinned = {name: thin_points(points[name], per_scan) for name in names}
    poses = _side_by_side(thinned, T_world_scan, components or [names])
    frame = _SceneFrame.fit([transform(thinned[name], poses[name]) for name in names])
    scans = []
    for k, name in enumerate(names):
        total = (totals or {}).get(name, len(points[name]))
        scans.append(frame.scan_view(name, _scan_colour(k), thinned[name], poses[name], np.eye(4), total))
    index = {name: k for k, name in enumerate(names)}
    drawn = [
        EdgeView(index[a], index[b], confidence, accepted)
        for a, b, confidence, accepted in edges
        if a in index and b in index
    ]
    return SceneView(title, scans, _scene_spacing(scans), edges=drawn, facts=list(facts))


def confidence_colour(confidence: float) -> Colour:
    """Return red for 0, yellow for 0.5, green for 1."""
    r, g, b = colorsys.hsv_to_rgb(0.36 * min(max(confidence, 0.0), 1.0), 0.85, 0.82)
    return round(255 * r), round(255 * g), round(255 * b)


class _SceneFrame(NamedTuple):
    """Transformation from the coordinates of aligned scans to those of a scene."""

    centre: Floats  # (3,)
    axes: Floats  # (3, 3), in columns
    scale: float

    @classmethod
    def fit(cls, clouds: Sequence[Floats]) -> _SceneFrame:
        points = np.concatenate(clouds)
        axes = principal_axes(points)
        low, high = np.quantile(points @ axes, [0.004, 0.996], axis=0)  # without outliers
        size = float(np.linalg.norm(high - low) / 2) or 1.0
        return cls(axes @ ((low + high) / 2), axes, RADIUS / size)

    def scan_view(
        self,
        name: str,
        colour: Colour,
        cloud: Floats,
        T_end: Floats,
        T_start: Floats,
        total: int,
        supports: Supports | None = None,
    ) -> ScanView:
        centre = _centre(cloud)
        end, start = self._pose(T_end, centre), self._pose(T_start, centre)
        offset = start.position - end.position
        if (distance := float(np.linalg.norm(offset))) > _MAX_START_DISTANCE * RADIUS:
            start = start._replace(position=end.position + offset * (_MAX_START_DISTANCE * RADIUS / distance))
        points = self.scale * (cloud - centre)
        if supports is not None:
            keypoints, sides = self.scale * (supports.keypoints - centre), self.scale * supports.sides
            supports = supports._replace(keypoints=keypoints, sides=sides)
        shading = normals(points, neighbours=NORMAL_NEIGHBOURS)
        return ScanView(name, colour, points, shading, total, start, end, supports)

    def choices(self, poses: Sequence[tuple[str, Floats]], cloud: Floats) -> tuple[PoseChoice, ...]:
        """Convert named poses (4, 4) of a scan."""
        centre = _centre(cloud)
        return tuple(
            PoseChoice(name, self._pose(check_rigid(T, f"the pose {name}"), centre)) for name, T in poses
        )

    def _pose(self, T: Floats, centre: Floats) -> QuaternionPose:
        position = T[:3, :3] @ centre + T[:3, 3] - self.centre
        return QuaternionPose.from_matrix(self.axes.T @ T[:3, :3], self.scale * (self.axes.T @ position))


def _scene_spacing(scans: Sequence[ScanView]) -> float:
    return float(np.median([median_spacing(scan.points) for scan in scans])) or RADIUS / 100


def _centre(cloud: Floats) -> Floats:
    return np.asarray(np.median(cloud, axis=0))


def _sample_matches(matches: MatchLines) -> MatchLines:
    """Select up to `_MAX_LINES` inliers and as many outliers at random."""
    order = np.random.default_rng(0).permutation(len(matches.inlier))
    kept = np.concatenate([order[matches.inlier[order] == kind][:_MAX_LINES] for kind in (True, False)])
    return MatchLines(matches.source[kept], matches.target[kept], matches.inlier[kept])


def _side_by_side(
    clouds: Mapping[str, Floats], T_world_scan: Mapping[str, Floats], components: Sequence[Sequence[str]]
) -> dict[str, Floats]:
    """Return poses that put unconnected frames side by side along x."""
    poses: dict[str, Floats] = {}
    right: float | None = None  # end of the frames so far
    for component in components:
        names = [name for name in component if name in clouds]
        if not names:
            continue
        matrices = {name: check_rigid(T_world_scan[name], f"the pose of {name}") for name in names}
        x = np.concatenate([transform(clouds[name], matrices[name])[:, 0] for name in names])
        shift = 0.0 if right is None else right - x.min() + 0.1 * np.ptp(x)
        right = float(x.max() + shift)
        for name in names:
            poses[name] = matrices[name].copy()
            poses[name][0, 3] += shift
    return poses


def _scan_colour(number: int) -> Colour:
    """Return a colour that differs clearly from those of the neighbouring numbers."""
    golden_ratio = 0.618034
    r, g, b = colorsys.hsv_to_rgb((0.08 + golden_ratio * number) % 1.0, 0.72, 0.85)
    return round(255 * r), round(255 * g), round(255 * b)
