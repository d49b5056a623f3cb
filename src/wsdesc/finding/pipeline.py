"""Find an object in a scene.

read → resolution → prepare → hypotheses by pairs of points → verify → refine → confidence. The size of the
object sets all lengths. The scene is downsampled at the object's resolution, and planes that are larger than
the object are left out.
"""

from __future__ import annotations

from typing import Any, Literal

from wsdesc.cloud.clean import Cleaned
from wsdesc.cloud.cloud import dropped_warnings
from wsdesc.cloud.convert import Scan, scan_name
from wsdesc.cloud.local_frame import in_scan_frames
from wsdesc.cloud.units import INDOOR_RESOLUTION
from wsdesc.cloud.viewpoint import ViewpointOption
from wsdesc.core.errors import InputError
from wsdesc.core.kernels import run_each
from wsdesc.core.progress import ProgressHook, StepTimer
from wsdesc.descriptor.preparation import clean_scan
from wsdesc.finding.candidates import Candidate, distinct, find_candidates
from wsdesc.finding.options import FindOptions
from wsdesc.finding.prepare import choose_resolution, diameter, prepare_object, prepare_scene
from wsdesc.finding.result import PLAUSIBLE, SUCCESS, Finding, Instance
from wsdesc.finding.view import View

_MAX_OBJECT = 1.5  # scene diameters: a larger object cannot be in the scene
_MAX_SCENE = 200  # object diameters: a larger scene probably has another unit


def find(
    object: Scan,
    scene: Scan,
    *,
    instances: int | Literal["all"] = "all",
    resolution: float | None = None,
    viewpoint: ViewpointOption = None,
    hypotheses: int = 2500,
    refined: int = 24,
    progress: ProgressHook | None = None,
    **unknown: Any,
) -> Finding:
    """Find all instances of an object in a scene.

    Both are in one unit, any unit. The object may be a hundredth of the scene's extent, and half of it may be
    hidden. The same input gives the same result. The computation runs on the CPU.

    Args:
        object: The object, complete or in part: the path of a file (scan, mesh or CAD model), points (N, 3),
            or another form that `as_cloud` takes.
        scene: Scan that may contain it, in the same forms.
        instances: Largest number of instances to return, or "all".
        resolution: Working resolution, in the unit of both. None derives it from the object.
        viewpoint: Position (x, y, z) of the scene's scanner, in the scene's coordinates. Free space around it
            contradicts wrong poses. None takes it from the file, or detects whether it is the origin; "none"
            uses no free space.
        hypotheses: Number of poses that are verified on more points: the best of all that are proposed.
        refined: Number of poses that are refined. More instances than this are never found.
        progress: Hook that is entered around each step, for progress bars.
        unknown: Not accepted. The error names the options.

    Returns:
        The instances with a confidence of at least 0.9, other plausible poses, and warnings that say what to
        try if there are none.

    Raises:
        WSDescError: A file cannot be read or has too few points, the object is larger than the scene, or an
            option is invalid.
    """
    o = FindOptions.read(
        {
            "instances": instances,
            "resolution": resolution,
            "viewpoint": viewpoint,
            "hypotheses": hypotheses,
            "refined": refined,
            **unknown,
        }
    )
    timer = StepTimer(progress)
    with timer("read"):
        scans: list[tuple[Scan, ViewpointOption]] = [(object, "none"), (scene, o.viewpoint)]
        clouds = run_each(lambda scan: clean_scan(*scan), scans)
        names = (_name("the object", object), _name("the scene", scene))
    with timer("prepare"):
        sizes = [diameter(cloud.points) for cloud in clouds]
        warnings = _check_sizes(names, *sizes)
        length = o.resolution or choose_resolution(sizes[0], clouds[1].points)
        unit = length / INDOOR_RESOLUTION
        p = prepare_object(clouds[0], length, names[0])
        q = prepare_scene(clouds[1], length, p.diameter, names[1])
        viewpoint_local = clouds[1].local_viewpoint
        view = View(q.points, viewpoint_local / unit) if viewpoint_local is not None else None
    with timer("search"):
        candidates = distinct(p, find_candidates(p, q, view, hypotheses=o.hypotheses, refined=o.refined))
    possible = [_instance(candidate, clouds[0], clouds[1], unit) for candidate in candidates]
    accepted = [instance for instance in possible if instance.confidence >= SUCCESS]
    if o.instances != "all":
        accepted = accepted[: o.instances]
    others = [i for i in possible if PLAUSIBLE <= i.confidence < SUCCESS]
    if not accepted:
        warnings.append(_advice(candidates, length))
    for cloud, name in zip(clouds, names, strict=True):
        warnings += dropped_warnings(name, cloud.dropped)
    return Finding(accepted, others, sizes[0], length, clouds[1].viewpoint, warnings, timer.seconds)


def _instance(candidate: Candidate, obj: Cleaned, scene: Cleaned, unit: float) -> Instance:
    """Express a candidate in the coordinates and the unit of the scans."""
    T = candidate.refined.T_target_source.copy()
    T[:3, 3] *= unit
    return Instance(
        in_scan_frames(T, obj.T_scan_local, scene.T_scan_local),
        candidate.probability,
        candidate.visible,
        candidate.refined.rmse * unit,
    )


def _name(role: str, scan: Scan) -> str:
    """Return the role of a scan and, if it is from a file, the path."""
    return f"{role} {scan_name(scan, '')}".rstrip()


def _check_sizes(names: tuple[str, str], size: float, scene_size: float) -> list[str]:
    """Raise an error if the object is larger than the scene; return a warning if it is very small."""
    if not size > 0:
        raise InputError(f"{names[0]} has no extent: all its points are equal")
    if size > _MAX_OBJECT * scene_size:
        raise InputError(
            f"{names[0]} (diameter {size:.3g}) is larger than {names[1]} (diameter {scene_size:.3g}): check "
            "that both have the same unit, and that the object is the first argument"
        )
    if scene_size > _MAX_SCENE * size:
        return [
            f"The scene (diameter {scene_size:.3g}) is very large for the object (diameter {size:.3g}): do "
            "both have the same unit? Cut out the part of the scene that may contain the object."
        ]
    return []


def _advice(candidates: list[Candidate], resolution: float) -> str:
    if not candidates:
        return (
            "No instance found: no pair of points of the object occurs in the scene. Is the object flat? Do "
            "object and scene have the same unit?"
        )
    return (
        f"No instance found (best confidence {candidates[0].probability:.2f}, an instance needs {SUCCESS}). "
        "Is the object in the scene, with at least a third of its surface? Do both have the same unit? Try "
        f"another resolution (this one: {resolution:.3g})."
    )
