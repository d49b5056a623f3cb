"""Build the scene of an object that was found in a scan."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from wsdesc.alignment.refine import OVERLAP_DISTANCE
from wsdesc.cloud.convert import Scan, as_cloud
from wsdesc.core.geometry import transform
from wsdesc.view.build import multi_scan_scene
from wsdesc.view.distances import PlaneDistances
from wsdesc.view.drawn import DrawnCloud, hide_folders, points_per_scan
from wsdesc.view.frame import Up
from wsdesc.view.scene import MAX_POINTS, SceneView

if TYPE_CHECKING:
    from wsdesc.finding.result import Finding

_SCENE_SHARE = 0.7  # share of the drawn points that show the scene; the others show the instances


def finding_scene(
    result: Finding,
    object: Scan,
    scene: Scan,
    names: tuple[str, str] = ("object", "scene"),
    *,
    up: Up = "auto",
    unit: str | None = None,
    max_points: int = MAX_POINTS,
) -> SceneView:
    """Build the scene of all instances of an object.

    Args:
        result: The finding.
        object: The object, in any form that `as_cloud` takes.
        scene: The scan in which it was found.
        names: Names of object and scan.
        up: Direction that points up, in the coordinates of the scan.
        unit: Name of the unit of length, such as "m". None takes it from the files.
        max_points: Largest number of points.
    """
    whole = as_cloud(scene)
    count = len(result.instances)
    few = points_per_scan(int((1 - _SCENE_SHARE) * max_points), max(1, count))
    one = DrawnCloud.of(as_cloud(object), few)
    surface = PlaneDistances(whole.points, OVERLAP_DISTANCE * result.resolution)
    clouds = {names[1]: DrawnCloud.of(whole, points_per_scan(int(_SCENE_SHARE * max_points)))}
    poses, distances, facts = {names[1]: np.eye(4)}, {}, []
    for number, instance in enumerate(result.instances, 1):
        name = f"{names[0]} {number}"
        clouds[name], poses[name] = one, instance.T_scene_object
        distances[name] = surface.measure(transform(one.points, instance.T_scene_object))
        facts.append(f"{number}: confidence {instance.confidence:.3f}, {instance.visible:.0%} visible")
    built = multi_scan_scene(
        clouds,
        poses,
        distances=distances,
        title=f"{names[0]} in {names[1]}",
        facts=facts,
        up=up,
        unit=unit,
        max_points=max_points,
    )
    verdict = f"{count} instance{'s' if count > 1 else ''} found" if count else "no instance found"
    return replace(
        built, success=result.success, verdict=verdict, warnings=[*map(hide_folders, result.warnings)]
    )
