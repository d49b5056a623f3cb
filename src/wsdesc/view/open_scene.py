"""Recognize the scans, poses and results that a user wants to see, and build their scene."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from wsdesc.cloud.cloud import dropped_warnings
from wsdesc.cloud.convert import Scan, as_cloud
from wsdesc.cloud.scan_files import find_scan_files
from wsdesc.cloud.stations import expand_stations
from wsdesc.core.errors import FileFormatError, InputError, WSDescError
from wsdesc.core.file_parts import expand_home, split_part
from wsdesc.core.geometry import Floats
from wsdesc.core.similarity import check_similarity
from wsdesc.mapping.store import MANIFEST
from wsdesc.reconstruction.options import POSES
from wsdesc.registration.pose_file import is_pose_file, read_pose
from wsdesc.view.build import multi_scan_scene, pair_scene
from wsdesc.view.drawn import (
    DrawnCloud,
    hide_folders,
    points_per_scan,
    scan_facts,
    unit_warnings,
)
from wsdesc.view.frame import Up
from wsdesc.view.instances import finding_scene
from wsdesc.view.keypoints import KeypointViews, computed_views
from wsdesc.view.results import reconstruction_scene, registration_scene, short_names
from wsdesc.view.scene import MAX_POINTS, SceneView

if TYPE_CHECKING:
    from wsdesc.finding.result import Finding
    from wsdesc.reconstruction.result import Reconstruction
    from wsdesc.registration.result import Registration


def open_scene(
    *items: Scan | Registration | Reconstruction,
    pose: ArrayLike | Finding | str | os.PathLike[str] | None = None,
    matches: bool = False,
    up: Up = "auto",
    unit: str | None = None,
    max_points: int = MAX_POINTS,
) -> SceneView:
    """Build the scene of `wsdesc.show`; arguments and errors are the same."""
    from wsdesc.finding.result import Finding
    from wsdesc.reconstruction.result import Reconstruction

    if isinstance(max_points, bool) or not isinstance(max_points, int) or max_points < 1:
        raise InputError(f"max_points must be a whole number of at least 1, not {max_points!r}")
    options: dict[str, Any] = {"up": up, "unit": unit, "max_points": max_points}
    items = tuple(_folder_of_poses(item) for item in items)
    scans, pose = _take_pose(items, pose)
    if isinstance(pose, Path):
        if (saved := _load_registration(pose, required=not scans)) is not None:
            return _scene_of_file(pose, saved, scans, matches, options)
        pose = _load_finding(pose) or read_pose(pose)
    result = _find_result(items, scans)
    if isinstance(result, Reconstruction):
        return reconstruction_scene(result, **options)
    if result is not None:
        return _scene_of_registration(result, options)
    listed = _list_scans(scans, stations=pose is None)
    names = _names(listed)
    if pose is not None and len(listed) != 2:
        raise InputError(f"a pose needs two scans, source and target, found {len(listed)}")
    if matches and pose is None:
        raise InputError("matches need a pose: give its file after the two scans")
    if isinstance(pose, Finding):
        return finding_scene(pose, listed[0], listed[1], (names[0], names[1]), **options)
    if len(listed) == 2:
        return _scene_of_pair(listed, names, pose, matches, options)
    return _scene_of_scans(listed, names, options)


def _find_result(items: Sequence[Any], scans: Sequence[Any]) -> Registration | Reconstruction | None:
    """Return the result among the items, or load the reconstruction in a folder; None for scans."""
    from wsdesc.reconstruction.result import Reconstruction
    from wsdesc.registration.result import Registration

    results = [item for item in items if isinstance(item, Registration | Reconstruction)]
    folders = [Path(scan) for scan in scans if _is_path(scan)]
    for folder in folders:
        _refuse_map(folder)
    models = [folder for folder in folders if (folder / POSES).is_file()]
    if not results and not models:
        return None
    if len(items) > 1:
        raise InputError("a result cannot be shown with other items: pass one result, or scans")
    return results[0] if results else Reconstruction.load(models[0])


def _take_pose(items: Sequence[Any], pose: Any) -> tuple[list[Any], Path | Floats | Finding | None]:
    """Separate the pose, or its file, from the scans."""
    from wsdesc.finding.result import Finding

    if isinstance(pose, Finding):
        return list(items), pose
    if pose is not None:
        return list(items), expand_home(pose) if _is_path(pose) else check_similarity(pose, "pose")
    files = [item for item in items if _is_path(item) and is_pose_file(item)]
    if len(files) > 1:
        raise InputError(f"{len(files)} files with poses were given, at most one is possible")
    if files:
        return [item for item in items if item is not files[0]], Path(files[0])
    return list(items), None


def _load_registration(path: Path, *, required: bool) -> Registration | None:
    """Load a registration; None if the file holds only a pose."""
    from wsdesc.registration.result import Registration

    try:
        return Registration.load(path)
    except FileFormatError as error:
        if not required:
            return None
        read_pose(path)  # its error is clearer if the file holds no pose, either
        raise FileFormatError(
            f"{path}: holds a pose, but names no scans. Give them first: wsdesc view SOURCE TARGET {path}"
        ) from error


def _load_finding(path: Path) -> Finding | None:
    """Load the instances of an object; None if the file holds something else."""
    from wsdesc.finding.result import Finding

    with suppress(FileFormatError):
        return Finding.load(path)
    return None


def _scene_of_file(
    path: Path, result: Registration, scans: Sequence[Any], matches: bool, options: dict[str, Any]
) -> SceneView:
    """Build the scene of a registration that was saved as a file."""
    given: Sequence[Any] = scans or [file for file in result.files if file is not None]
    if len(given) != 2:
        count = f"found {len(scans)}" if scans else "and the file names none"
        raise InputError(
            f"{path}: two scans are needed, {count}. Give them first: wsdesc view SOURCE TARGET {path}"
        )
    if not scans:
        for file in given:
            _refuse_map(Path(file))
            if not split_part(file)[0].exists():
                raise FileFormatError(
                    f"{file}: no such file, named in {path}. If the scans were moved: "
                    f"wsdesc view SOURCE TARGET {path}"
                )
    names = _names(given)
    clouds = (as_cloud(given[0]), as_cloud(given[1]))
    return registration_scene(result, clouds, (names[0], names[1]), matches=matches, **options)


def _names(scans: Sequence[Any]) -> list[str]:
    """Return a name of each scan; repeated files are numbered."""
    names = short_names([str(scan) if _is_path(scan) else f"scan {k}" for k, scan in enumerate(scans, 1)])
    earlier = [names[:k].count(name) for k, name in enumerate(names)]
    return [f"{name} ({count + 1})" if count else name for name, count in zip(names, earlier, strict=True)]


def _scene_of_registration(result: Registration, options: dict[str, Any]) -> SceneView:
    """Build the scene of a registration, with the points of its files if they still exist."""
    source, target = result.files
    if source is None or target is None:
        return registration_scene(result, **options)
    names = _names([source, target])
    exist = all(split_part(file)[0].exists() for file in (source, target))
    clouds = (as_cloud(source), as_cloud(target)) if exist else None
    return registration_scene(result, clouds, (names[0], names[1]), **options)


def _list_scans(items: Sequence[Any], *, stations: bool) -> list[Any]:
    """Replace folders by their scans and, if wanted, files by their stations."""
    listed: list[Any] = []
    for item in items:
        if not _is_path(item):
            listed.append(item)
            continue
        files = find_scan_files([item]) if Path(item).is_dir() else [Path(item)]
        for file in files:
            try:
                listed += expand_stations(file) if stations else [file]
            except WSDescError:  # the error appears when the file is read
                listed.append(file)
    if not listed:
        raise InputError("nothing to show: give at least one scan or a result")
    return listed


def _scene_of_pair(
    scans: Sequence[Scan], names: list[str], T: Floats | None, matches: bool, options: dict[str, Any]
) -> SceneView:
    """Build the scene of two scans, at the coordinates of their files or with a pose."""
    source, target = (as_cloud(scan) for scan in scans)
    views, facts = KeypointViews(), list[str]()
    if T is None:
        facts.append("scans at the coordinates of their files")
    elif matches:
        views = computed_views([source.points, target.points], T, None, options["max_points"])
    return pair_scene(
        source,
        target,
        T,
        names=(names[0], names[1]),
        title=f"{names[0]} → {names[1]}" if T is not None else " and ".join(names),
        facts=[*facts, *views.facts],
        matches=views.matches,
        supports=views.supports,
        **options,
    )


def _scene_of_scans(scans: Sequence[Scan], names: list[str], options: dict[str, Any]) -> SceneView:
    """Build the scene of one scan, or of several at the coordinates of their files."""
    drawn, facts, warnings = dict[str, DrawnCloud](), list[str](), list[str]()
    failed: list[WSDescError] = []
    for name, scan in zip(names, scans, strict=True):
        try:
            cloud = as_cloud(scan)
        except WSDescError as error:
            failed.append(error)
            reason = str(error).removeprefix(f"{scan}: ")
            warnings.append(hide_folders(f"{name} is left out: {reason}"))
            continue
        drawn[name] = DrawnCloud.of(cloud, points_per_scan(options["max_points"], len(scans)))
        warnings += dropped_warnings(name, cloud.dropped)
        facts = scan_facts(cloud)
    if len(failed) == 1 and not drawn:
        raise failed[0]
    if not drawn:
        raise FileFormatError(f"none of {len(failed)} scans can be read: {'; '.join(map(str, failed))}")
    if len(drawn) > 1:
        facts = ["scans at the coordinates of their files"]
        warnings += unit_warnings({name: cloud.points for name, cloud in drawn.items()})
    title = next(iter(drawn)) if len(drawn) == 1 else f"{len(drawn)} scans"
    poses = {name: np.eye(4) for name in drawn}
    scene = multi_scan_scene(drawn, poses, title=title, facts=facts, **options)
    return replace(scene, warnings=warnings)


def _refuse_map(path: Path) -> None:
    if (path / MANIFEST).is_file():
        raise InputError(f"{path}: a map cannot be shown: give the scans that it was built from")


def _folder_of_poses(item: Any) -> Any:
    """Return the folder of a reconstruction instead of its file poses.json; other items as they are."""
    if not _is_path(item):
        return item
    path = expand_home(item)
    return path.parent if path.name == POSES else path


def _is_path(item: Any) -> bool:
    return isinstance(item, str | os.PathLike)
