"""Build scenes of results: registrations and reconstructions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from wsdesc.cloud.cloud import Cloud
from wsdesc.cloud.convert import Scan, as_cloud
from wsdesc.core.errors import InputError, WSDescError
from wsdesc.core.geometry import Floats
from wsdesc.view.build import NamedPose, multi_scan_scene, pair_scene
from wsdesc.view.distances import neighbour_distances
from wsdesc.view.drawn import DrawnCloud, hide_folders, points_per_scan
from wsdesc.view.frame import Up
from wsdesc.view.geometry import thin_points
from wsdesc.view.keypoints import computed_views, views_of_result
from wsdesc.view.scene import MAX_POINTS, SceneView

if TYPE_CHECKING:
    from wsdesc.reconstruction.result import Reconstruction
    from wsdesc.registration.alternative import AlternativePose
    from wsdesc.registration.result import Registration

_SURFACE_POINTS = 60_000  # per scan of a reconstruction, to measure distances to


def registration_scene(
    result: Registration,
    clouds: tuple[Scan, Scan] | None = None,
    names: tuple[str, str] = ("source", "target"),
    *,
    matches: bool = False,
    up: Up = "auto",
    unit: str | None = None,
    max_points: int = MAX_POINTS,
) -> SceneView:
    """Build the scene of a registration.

    Args:
        result: The registration.
        clouds: Both scans in any form that `as_cloud` takes. Without them, the downsampled ones are shown, or
            the files that the result names.
        names: Names of both scans.
        matches: Match the scans again if the result has no matches, such as one from a file.
        up: Direction that points up, in the coordinates of the target.
        unit: Name of the unit of length, such as "m". None takes it from the files.
        max_points: Largest number of points of both scans together.

    Raises:
        InputError: Neither the result nor the arguments have the scans.
    """
    source, target = clouds or _scans_of(result)
    T, is_aligned = result.T_target_source, has_pose(result)
    views = views_of_result(result, max_points)
    if matches and is_aligned and views.matches is None:
        points = [as_cloud(scan).points for scan in (source, target)]
        views = computed_views(points, T, result.resolution, max_points)
    scene = pair_scene(
        source,
        target,
        T if is_aligned else None,
        names=names,
        title=f"{names[0]} → {names[1]}",
        facts=[*registration_facts(result), *views.facts],
        matches=views.matches if is_aligned else None,
        supports=views.supports,
        choices=named_poses(result) if is_aligned else (),
        resolution=result.resolution,
        side_by_side=not is_aligned,
        up=up,
        unit=unit,
        max_points=max_points,
    )
    return replace(
        scene,
        success=result.success,
        verdict=_verdict(result),
        warnings=list(dict.fromkeys([*map(hide_folders, result.warnings), *scene.warnings])),
    )


def has_pose(result: Registration) -> bool:
    """Return whether a registration has a pose, right or wrong."""
    return result.success or result.inliers > 0 or result.confidence > 0


def registration_facts(result: Registration) -> list[str]:
    """Return the figures of a registration as `wsdesc register` prints them."""
    if not has_pose(result):
        return ["The scans are drawn side by side."]
    return [
        f"overlap {result.overlap:.0%} of the source, rmse {result.rmse:.3g}",
        *([f"scale {result.scale:.4g} ± {result.scale_deviation:.2g}"] if result.factor != 1 else []),
        f"{result.inliers} inliers of {result.matches} matches",
        *([f"deviation {result.deviation_text} at the overlap"] if result.covariance is not None else []),
        f"resolution {result.resolution:.4g}",
    ]


def named_poses(result: Registration) -> list[NamedPose]:
    """List the pose of a registration and its alternatives, best first."""
    best = NamedPose(_fit_text(result), result.T_target_source, result.confidence)
    return [
        best,
        *(NamedPose(_fit_text(pose), pose.T_target_source, pose.probability) for pose in result.alternatives),
    ]


def _fit_text(pose: Registration | AlternativePose) -> str:
    return f"overlap {pose.overlap:.0%}, rmse {pose.rmse:.3g}"


def _read_placed(path: Path) -> Cloud:
    try:
        return as_cloud(path)
    except WSDescError as error:
        raise InputError(
            f"a scan of the reconstruction cannot be read: {error}. Restore the file, or reconstruct "
            "again. Scans given as arrays are kept if `out` is given to `reconstruct`"
        ) from error


def reconstruction_scene(
    result: Reconstruction, *, up: Up = "auto", unit: str | None = None, max_points: int = MAX_POINTS
) -> SceneView:
    """Build the scene of all placed scans and their edges. Scan files are read again, one at a time.

    Args:
        result: The reconstruction.
        up: Direction that points up, in the coordinates of the first scan.
        unit: Name of the unit of length, such as "m". None takes it from the files.
        max_points: Largest number of points of all scans together.

    Raises:
        InputError: No scan is placed, or a scan cannot be read again.
    """
    names = [name for scans in result.components for name in scans]
    short = dict(zip(names, short_names(names), strict=True))
    drawn, surfaces = dict[str, DrawnCloud](), dict[str, Floats]()
    for name in names:
        cloud = _read_placed(result.paths[name])
        drawn[short[name]] = DrawnCloud.of(cloud, points_per_scan(max_points, len(names)))
        surfaces[short[name]] = thin_points(cloud.points, _SURFACE_POINTS)
    poses = {short[name]: T for name, T in result.T_world_scan.items()}
    edges = [
        (short[edge.source], short[edge.target], edge.confidence, edge.accepted)
        for edge in result.edges
        if edge.source in short and edge.target in short
    ]
    distances = neighbour_distances(
        surfaces,
        {name: cloud.points for name, cloud in drawn.items()},
        poses,
        [(source, target) for source, target, _, accepted in edges if accepted],
        result.resolution,
    )
    accepted, frames = sum(edge.accepted for edge in result.edges), len(result.components)
    placement = f"{len(names)} scans placed in {frames} frame{'s' if frames > 1 else ''}"
    scene = multi_scan_scene(
        drawn,
        poses,
        distances=distances,
        components=[[short[name] for name in scans] for scans in result.components],
        edges=edges,
        title=f"{len(names)} scan{'s' if len(names) > 1 else ''}",
        facts=[
            f"{placement}, {len(result.not_placed)} not placed",
            f"{accepted} edges accepted of {len(result.edges)} registered pairs",
            f"resolution {result.resolution:.4g}",
        ],
        up=up,
        unit=unit,
        max_points=max_points,
    )
    not_placed = zip(short_names(list(result.not_placed)), result.not_placed.values(), strict=True)
    verdict = "all scans are placed in one frame" if result.complete else "NOT all scans are in one frame"
    return replace(
        scene,
        success=result.complete,
        verdict=verdict,
        warnings=[
            f"{name} was not placed: {hide_folders(reason).removeprefix(f'{name}: ')}"
            for name, reason in not_placed
        ],
    )


def short_names(names: Sequence[str]) -> list[str]:
    """Shorten paths to the fewest last parts that differ.

    A page may be shared and must not show the folders of this machine.
    """
    parts = {name: PurePath(name).parts for name in names}
    for count in range(1, max(map(len, parts.values()), default=0) + 1):
        short = {name: "/".join(part[-count:]) for name, part in parts.items()}
        if len(set(short.values())) == len(short):
            return [short[name] for name in names]
    return list(names)


def _verdict(result: Registration) -> str:
    if not has_pose(result):
        return "no alignment found"
    return f"confidence {result.confidence:.3f} ({'success' if result.success else 'NO success'})"


def _scans_of(result: Registration) -> tuple[Scan, Scan]:
    """Return both scans of a registration: downsampled, or from their files."""
    if result.described is not None:
        source, target = (scan.in_scan_frame(scan.points) for scan in result.described)
        return source, target
    if result.files[0] is None or result.files[1] is None:
        raise InputError("nothing to show: the registration has neither a pose nor the scans")
    return as_cloud(result.files[0]), as_cloud(result.files[1])
