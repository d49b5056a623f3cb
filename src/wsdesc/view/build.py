"""Build scenes of scans and poses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from wsdesc.alignment.refine import OVERLAP_DISTANCE
from wsdesc.cloud.cloud import dropped_warnings
from wsdesc.cloud.convert import Scan, as_cloud
from wsdesc.core.errors import InputError
from wsdesc.core.geometry import Floats, check_rigid, transform
from wsdesc.core.planes import normals
from wsdesc.core.similarity import check_similarity
from wsdesc.view.colours import SOURCE, TARGET, Colour, scan_colour
from wsdesc.view.distances import Distances, PlaneDistances
from wsdesc.view.drawn import (
    DrawnCloud,
    common_unit,
    points_per_scan,
    scans_resolution,
    unit_warnings,
)
from wsdesc.view.frame import RADIUS, SceneFrame, Up
from wsdesc.view.geometry import NORMAL_NEIGHBOURS, median_spacing
from wsdesc.view.scene import MAX_POINTS, EdgeView, MatchLines, PoseChoice, ScanView, SceneView, Supports

_MAX_LINES = 120  # drawn inliers, and as many outliers; more would hide each other


class NamedPose(NamedTuple):
    """A pose of the source that can be chosen."""

    name: str
    T_target_source: Floats  # (4, 4)
    probability: float | None = None  # probability that it is right


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
    choices: Sequence[NamedPose] = (),
    resolution: float | None = None,
    side_by_side: bool = False,
    up: Up = "auto",
    unit: str | None = None,
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
        choices: Poses that can be chosen for the source; the first is `T_target_source`.
        resolution: Working resolution of the pair: points have a partner within two of them. None derives it
            from both scans.
        side_by_side: Draw the source beside the target, for pairs without a pose.
        up: Direction that points up, in the coordinates of the target.
        unit: Name of the unit of length, such as "m". None takes it from the files.
        max_points: Largest number of points of both scans together.
    """
    T = np.eye(4) if T_target_source is None else check_similarity(T_target_source, "T_target_source")
    clouds = [as_cloud(cloud) for cloud in (source, target)]
    drawn = [DrawnCloud.of(cloud, points_per_scan(max_points, 2)) for cloud in clouds]
    T_start = np.eye(4)
    if side_by_side:
        points = {"source": drawn[0].points, "target": drawn[1].points}
        T = T_start = _beside(points, [["target"], ["source"]])["source"]
    frame = SceneFrame.fit([transform(drawn[0].points, T), drawn[1].points], up)
    views = [
        _scan_view(frame, names[0], SOURCE, drawn[0], T, T_start, supports[0]),
        _scan_view(frame, names[1], TARGET, drawn[1], np.eye(4), np.eye(4), supports[1]),
    ]
    poses = [check_similarity(choice.T_target_source, f"the pose {choice.name}") for choice in choices] or [T]
    named = [
        PoseChoice(choice.name, frame.pose(P, drawn[0].centre), choice.probability)
        for choice, P in zip(choices, poses, strict=False)  # without choices, there is one pose
    ]
    views[0] = replace(views[0], choices=tuple(named))
    if not side_by_side:
        limit = OVERLAP_DISTANCE * (resolution or scans_resolution([cloud.points for cloud in clouds]))
        surface = PlaneDistances(clouds[1].points, limit)
        distances = tuple(surface.measure(transform(drawn[0].points, P)) for P in poses)
        views[0] = replace(views[0], distances=distances)
    inliers, count = (0, 0) if matches is None else (int(matches.inlier.sum()), len(matches.inlier))
    return SceneView(
        title,
        views,
        _scene_spacing(views),
        frame,
        common_unit(drawn) if unit is None else unit,
        matches=None if matches is None else _match_lines(matches, frame.scale, drawn),
        match_counts=(inliers, count - inliers),
        facts=list(facts),
        warnings=[
            *dropped_warnings(names[0], clouds[0].dropped),
            *dropped_warnings(names[1], clouds[1].dropped),
            *unit_warnings({names[0]: transform(clouds[0].points, T), names[1]: clouds[1].points}),
        ],
    )


def _match_lines(matches: MatchLines, scale: float, drawn: Sequence[DrawnCloud]) -> MatchLines:
    """Select matches, and convert them to the coordinates of the drawn scans."""
    lines = _sample_matches(matches)
    return lines._replace(
        source=scale * (lines.source - drawn[0].centre), target=scale * (lines.target - drawn[1].centre)
    )


def multi_scan_scene(
    clouds: Mapping[str, Scan | DrawnCloud],
    T_world_scan: Mapping[str, Floats],
    *,
    distances: Mapping[str, Distances] | None = None,
    components: Sequence[Sequence[str]] = (),
    edges: Sequence[tuple[str, str, float, bool]] = (),
    title: str = "",
    facts: Sequence[str] = (),
    up: Up = "auto",
    unit: str | None = None,
    max_points: int = MAX_POINTS,
) -> SceneView:
    """Build the scene of many scans.

    Args:
        clouds: Scans in any form, such as points (N, 3), or thinned already, by name.
        T_world_scan: Poses (4, 4) by name.
        distances: Distances of thinned scans to the others, by name.
        components: Names of scans that share a frame; frames are drawn side by side.
        edges: Registered pairs: names of source and target, confidence, whether the edge is accepted.
        title: Title of the page.
        facts: Lines of text beside the picture.
        up: Direction that points up, in the coordinates of the first scan.
        unit: Name of the unit of length, such as "m". None takes it from the files.
        max_points: Largest number of points of all scans together.
    """
    if not clouds:
        raise InputError("nothing to show: no scan is placed")
    names, per_scan = list(clouds), points_per_scan(max_points, len(clouds))
    drawn = {
        name: cloud if isinstance(cloud, DrawnCloud) else DrawnCloud.of(as_cloud(cloud), per_scan)
        for name, cloud in clouds.items()
    }
    poses = _beside({name: drawn[name].points for name in names}, components or [names], T_world_scan)
    first = (components or [names])[0][0]
    order = [name for name in names if name != first] + [first]  # the last one decides which way is up
    frame = SceneFrame.fit([transform(drawn[name].points, poses[name]) for name in order], up)
    scans = []
    for k, name in enumerate(names):
        colour = scan_colour(k) if len(names) > 1 else TARGET
        scan = _scan_view(frame, name, colour, drawn[name], poses[name], np.eye(4))
        if distances and name in distances:
            scan = replace(scan, distances=(distances[name],))
        scans.append(scan)
    index = {name: k for k, name in enumerate(names)}
    lines = [
        EdgeView(index[a], index[b], confidence, accepted)
        for a, b, confidence, accepted in edges
        if a in index and b in index
    ]
    return SceneView(
        title,
        scans,
        _scene_spacing(scans),
        frame,
        common_unit(drawn.values()) if unit is None else unit,
        edges=lines,
        facts=list(facts),
    )


def _scan_view(
    frame: SceneFrame,
    name: str,
    colour: Colour,
    cloud: DrawnCloud,
    T_end: Floats,
    T_start: Floats,
    supports: Supports | None = None,
) -> ScanView:
    centre, scale = cloud.centre, frame.scale
    end = frame.pose(T_end, centre)
    points = scale * (cloud.points - centre)
    if supports is not None:
        keypoints, sides = scale * (supports.keypoints - centre), scale * supports.sides
        supports = supports._replace(keypoints=keypoints, sides=sides)
    return ScanView(
        name,
        colour,
        points,
        normals(points, neighbours=NORMAL_NEIGHBOURS),
        cloud.total,
        frame.start_pose(T_start, centre, end),
        end,
        supports,
        own_colours=cloud.colours,
        viewpoint=None if cloud.viewpoint is None else scale * (cloud.viewpoint - centre),
    )


def _scene_spacing(scans: Sequence[ScanView]) -> float:
    spacing = float(np.median([median_spacing(scan.points) for scan in scans]))
    return spacing or RADIUS / 100


def _sample_matches(matches: MatchLines) -> MatchLines:
    """Select up to `_MAX_LINES` inliers and as many outliers at random."""
    order = np.random.default_rng(0).permutation(len(matches.inlier))
    kept = np.concatenate([order[matches.inlier[order] == kind][:_MAX_LINES] for kind in (True, False)])
    return MatchLines(matches.source[kept], matches.target[kept], matches.inlier[kept])


def _beside(
    clouds: Mapping[str, Floats],
    components: Sequence[Sequence[str]],
    T_world_scan: Mapping[str, Floats] | None = None,
) -> dict[str, Floats]:
    """Return poses that put unconnected frames side by side along x, at the height of the first one."""
    poses: dict[str, Floats] = {}
    first: Floats | None = None  # middle (3,) of the first frame
    right = 0.0  # end of the frames so far
    for component in components:
        names = [name for name in component if name in clouds]
        if not names:
            continue
        T_given = T_world_scan or dict.fromkeys(names, np.eye(4))
        matrices = {name: check_rigid(T_given[name], f"the pose of {name}") for name in names}
        points = np.concatenate([transform(clouds[name], matrices[name]) for name in names])
        middle, x = np.median(points, axis=0), points[:, 0]
        if first is None:
            first, shift = middle, np.zeros(3)
        else:
            shift = first - middle
            shift[0] = right - x.min() + 0.1 * np.ptp(x)
        right = float(x.max() + shift[0])
        for name in names:
            poses[name] = matrices[name].copy()
            poses[name][:3, 3] += shift
    return poses
