"""Register two scans.

read → resolution → prepare → describe → candidates → confidence. If the result is no success, the scans are
described at more keypoints, and the steps from there on are repeated.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from wsdesc.alignment.surface import Surface, make_surfaces
from wsdesc.cloud.cloud import dropped_warnings
from wsdesc.cloud.convert import Scan, scan_name
from wsdesc.cloud.units import Scale, different_units, measure_each
from wsdesc.cloud.viewpoint import ViewpointOption
from wsdesc.core.devices import choose_device
from wsdesc.core.errors import InputError
from wsdesc.core.kernels import run_each, single_threaded_torch
from wsdesc.core.progress import ProgressHook, StepTimer
from wsdesc.descriptor.describe import load_model
from wsdesc.descriptor.description import Description
from wsdesc.descriptor.options import DEFAULT_MODEL
from wsdesc.descriptor.preparation import check_count, clean_scan, prepare_scans
from wsdesc.registration.advice import as_sentence, coarse_coordinates, suggest_find
from wsdesc.registration.local_search import search_near
from wsdesc.registration.options import RegisterOptions, ScaleOption, Solver
from wsdesc.registration.prior import impossible, make_prior
from wsdesc.registration.prior_options import DirectionOption, InitialPose
from wsdesc.registration.result import Registration
from wsdesc.registration.rounds import explain_prior, failed_result, register_round
from wsdesc.registration.schedule import register_prepared
from wsdesc.registration.unknown_scale import register_unknown_scale


@single_threaded_torch()
def register(
    source: Scan | Description,
    target: Scan | Description,
    *,
    model: str | Path = DEFAULT_MODEL,
    resolution: float | None = None,
    keypoints: int | Sequence[int] = (300, 1200, 4000),
    scale: ScaleOption = 1.0,
    source_viewpoint: ViewpointOption = None,
    target_viewpoint: ViewpointOption = None,
    initial: InitialPose = None,
    search_radius: float | None = None,
    max_angle: float | None = None,
    up: DirectionOption = None,
    axis: DirectionOption = None,
    max_tilt: float = 5.0,
    overlap_at_least: float = 0.0,
    solver: Solver = "consensus",
    hypotheses: int = 12,
    refined: int = 4,
    refine: bool = True,
    device: str = "auto",
    seed: int = 0,
    progress: ProgressHook | None = None,
    **unknown: Any,
) -> Registration:
    """Find the pose of `source` in the frame of `target`.

    Both scans are in one unit, any unit, and in any pose; see `scale` if their units differ. The same scans,
    options and device give the same bits. Swapped scans give the inverse pose, within the tolerance of the
    refinement.

    Args:
        source: Scan to align: the path of a file, points (N, 3), or another form that `as_cloud` takes. Two
            descriptions are registered as by `register_described`; `model`, `resolution`, `keypoints`,
            viewpoints and `device` have no effect on them.
        target: Scan that `source` is aligned to, in the same forms.
        model: Weights by name or path.
        resolution: Working resolution, in the target's unit. None derives it from both scans.
        keypoints: Keypoints per scan. Of several numbers, the next one is tried if the one before it gives
            no success.
        scale: Factor of lengths by which the source is multiplied before it is aligned, as 0.3048 for feet
            to metres. With "estimate" the factor is unknown, and the pose contains the estimated one. Either
            way `T_target_source` then is a similarity of the source as it is given.
        source_viewpoint: Position (x, y, z) of the source's scanner, in the source's coordinates. Free space
            around it contradicts wrong poses. None takes it from the file, or detects whether it is the
            origin; "none" uses no free space of this scan.
        target_viewpoint: Position of the target's scanner, in the target's coordinates, in the same forms.
        initial: Initial pose T_target_source (4, 4), in the scans' coordinates and unit, or a `Registration`
            or the file of a pose. It and poses around it are searched without descriptors, which works where
            descriptors fail.
        search_radius: Largest distance from the initial pose, measured at the middle of the source, in the
            scans' unit; None for no limit. Zero, with `max_angle=0`, refines the initial pose and describes
            nothing. Refinement may exceed the limit by 8 resolutions.
        max_angle: Largest rotation from the initial pose, in degrees; None for no limit. Refinement may
            exceed it by 5°.
        up: Up in both scans, as gravity gives it: "x", "y", "z", "-x", "-y", "-z" or a vector (3,), for both
            scans, or a pair of these for source and target. Poses that tilt by more than `max_tilt` are
            dropped. A smaller tilt remains in the pose; see `Registration.tilt`.
        axis: The same for a rotation axis that is known exactly, as of a turntable or of levelled scanners.
            The tilt is removed: the pose has four degrees of freedom.
        max_tilt: Largest tilt against `up` or `axis`, in degrees.
        overlap_at_least: Least overlap, 0 … 1, of the scan that overlaps more. Poses with less are dropped.
        solver: Pose solver, "consensus" or "ransac".
        hypotheses: Number of hypotheses that the solver proposes. The last of several rounds considers five
            times as many.
        refined: Number of hypotheses that are refined, those that fit the surfaces best. The last of several
            rounds refines nine times as many.
        refine: Refine poses on the surfaces; False leaves them as the matches gave them.
        device: Device of the computation: "cpu", "cuda", or "auto" (CUDA where available).
        seed: Seed of every random choice.
        progress: Hook that is entered around each step, for progress bars.
        unknown: Not accepted. The error names the options.

    Returns:
        The pose, its confidence, and warnings that say what to try if `success` is False.

    Raises:
        WSDescError: A scan cannot be read or has too few points, or an option is invalid.
    """
    o = RegisterOptions.read(
        {
            "model": model,
            "resolution": resolution,
            "keypoints": keypoints,
            "scale": scale,
            "source_viewpoint": source_viewpoint,
            "target_viewpoint": target_viewpoint,
            "initial": initial,
            "search_radius": search_radius,
            "max_angle": max_angle,
            "up": up,
            "axis": axis,
            "max_tilt": max_tilt,
            "overlap_at_least": overlap_at_least,
            "solver": solver,
            "hypotheses": hypotheses,
            "refined": refined,
            "refine": refine,
            "device": device,
            "seed": seed,
            **unknown,
        }
    )
    if isinstance(source, Description) or isinstance(target, Description):
        p, q = both_described(source, target)
        if o.scale != 1:
            raise InputError("scale: descriptions have one scale: give the scans instead")
        return _register_described(p, q, o, None, progress)
    timer = StepTimer(progress)
    with timer("read"):
        scans = [
            (source, o.source_viewpoint, "source_viewpoint"),
            (target, o.target_viewpoint, "target_viewpoint"),
        ]
        clouds = run_each(lambda scan: clean_scan(*scan), scans)
        names = (scan_name(source, "source"), scan_name(target, "target"))
        read_warnings = []
        for cloud, file in zip(clouds, names, strict=True):
            check_count(cloud, file)
            read_warnings += dropped_warnings(file, cloud.dropped)
    if not isinstance(o.scale, float):
        result = register_unknown_scale(clouds, o, timer).of_files(source, target)
        result.warnings.extend(read_warnings)
        return result
    with timer("prepare"):
        device = choose_device(o.device)
        points = [torch.from_numpy(cloud.points).to(device) for cloud in clouds]
        points[0] = o.scale * points[0]
        resolution = o.resolution
        if resolution is None:
            sizes = measure_each(*points)
            resolution = Scale.combine(*zip(*sizes, strict=True)).resolution
            if warning := different_units(*(size.extent for size in sizes)):
                viewpoints = (clouds[0].viewpoint, clouds[1].viewpoint)
                advice = [as_sentence(warning), *suggest_find(*points), *read_warnings]
                return failed_result(resolution, advice, timer, viewpoints).of_files(source, target)
        network, name = load_model(o.model, o.device)
        resolutions = (resolution / o.scale, resolution)
        p, q = prepare_scans(clouds, resolutions, name, o.seed, o.keypoints[0], device, names)
    result = register_prepared(p, q, network, o, timer)
    if not result.success:
        result.warnings.extend(suggest_find(*points))
    for cloud, role, own_resolution in zip(clouds, ("source", "target"), resolutions, strict=True):
        result.warnings.extend(coarse_coordinates(role, cloud.rounding, own_resolution))
    result.warnings.extend(read_warnings)
    return result.of_files(source, target)


@single_threaded_torch()
def register_described(
    source: Description,
    target: Description,
    *,
    initial: InitialPose = None,
    search_radius: float | None = None,
    max_angle: float | None = None,
    up: DirectionOption = None,
    axis: DirectionOption = None,
    max_tilt: float = 5.0,
    overlap_at_least: float = 0.0,
    solver: Solver = "consensus",
    hypotheses: int = 12,
    refined: int = 4,
    refine: bool = True,
    seed: int = 0,
    surfaces: tuple[Surface, Surface] | None = None,
    progress: ProgressHook | None = None,
    **unknown: Any,
) -> Registration:
    """Find the pose of a described scan in the frame of another: describe once, register often.

    Args:
        source: Description of the scan to align, from `wsdesc.describe`.
        target: Description of the other scan, of the same model and resolution.
        initial: Initial pose T_target_source (4, 4), in the scans' coordinates, or a `Registration` or the
            file of a pose. This and the next six options are those of `register`.
        search_radius: Largest distance from the initial pose, in the scans' unit; None for no limit.
        max_angle: Largest rotation from the initial pose, in degrees; None for no limit.
        up: Up in both scans, or a pair of directions.
        axis: Axis of the rotation in both scans, or a pair of directions.
        max_tilt: Largest tilt against `up` or `axis`, in degrees.
        overlap_at_least: Least overlap, 0 … 1, of the scan that overlaps more.
        solver: Pose solver, "consensus" or "ransac".
        hypotheses: Number of hypotheses that the solver proposes.
        refined: Number of hypotheses that are refined, those that fit the surfaces best.
        refine: Refine poses on the surfaces; False leaves them as the matches gave them.
        seed: Seed of every random choice.
        surfaces: Surfaces of both descriptions, if they exist already.
        progress: Hook that is entered around each step, for progress bars.
        unknown: Not accepted. The error names the options.

    Returns:
        The same as `register` with as many keypoints.

    Raises:
        InputError: The descriptions differ in model or resolution, or an option is invalid.
    """
    o = RegisterOptions.read(
        {
            "initial": initial,
            "search_radius": search_radius,
            "max_angle": max_angle,
            "up": up,
            "axis": axis,
            "max_tilt": max_tilt,
            "overlap_at_least": overlap_at_least,
            "solver": solver,
            "hypotheses": hypotheses,
            "refined": refined,
            "refine": refine,
            "seed": seed,
            **unknown,
        }
    )
    return _register_described(*both_described(source, target), o, surfaces, progress)


def _register_described(
    source: Description,
    target: Description,
    o: RegisterOptions,
    surfaces: tuple[Surface, Surface] | None,
    progress: ProgressHook | None,
) -> Registration:
    source.check_comparable(target)
    surfaces = surfaces or make_surfaces(source.points, target.points)
    timer, prior = StepTimer(progress), make_prior(o, source, target)
    if reason := impossible(prior, source, target):
        return failed_result(source.resolution, [reason], timer, (source.viewpoint, target.viewpoint))
    near = search_near(prior, source, target, surfaces, o, timer)
    result = register_round(source, target, surfaces, o, timer, prior=prior, near=near)
    explain_prior(result, prior, source, target, surfaces, o, timer)
    return result


def both_described(source: Any, target: Any) -> tuple[Description, Description]:
    """Return both scans if they are descriptions; refuse other forms."""
    for name, scan in (("source", source), ("target", target)):
        if not isinstance(scan, Description):
            kind = type(scan).__name__
            raise InputError(
                f"the {name} must be a Description, not {kind}: describe both scans, at the same resolution"
            )
    return source, target
