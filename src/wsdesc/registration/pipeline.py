"""Register two scans: the whole way from files to a pose and how far to trust it.

read → thin → describe → match → solve → verify on the clouds → refine → judge. If the judge is not convinced,
the scans are described at more keypoints and it begins again from there.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from wsdesc.alignment.confidence import Evidence, confidence
from wsdesc.alignment.observability import Degeneracy, Information, degeneracy
from wsdesc.alignment.refine import REACH
from wsdesc.alignment.surface import Surface
from wsdesc.alignment.surface_cuda import DeviceSurface
from wsdesc.cloud.clean import with_offsets
from wsdesc.cloud.units import INDOOR_RESOLUTION, different_units, measure
from wsdesc.core.devices import choose_device
from wsdesc.core.kernels import run_each
from wsdesc.core.notebook import NotebookDisplay
from wsdesc.core.progress import ProgressHook, StepTimer
from wsdesc.descriptor.description import Description, cleaned_points, load_model, prepare_scan
from wsdesc.registration.candidates import AnySurface, judge, propose
from wsdesc.registration.options import RegisterOptions

Pose = NDArray[np.float64]  # (4, 4)

SUCCESS = 0.9  # the confidence from which on a pose is called a success


@dataclass(frozen=True, eq=False)
class Registration(NotebookDisplay):
    """The pose of one scan in the frame of another, and what speaks for it."""

    T_target_source: Pose  # (4, 4), in the files' own unit and coordinates
    success: bool  # the confidence reaches `SUCCESS`
    confidence: float  # 0 … 1, the probability that the pose is right
    overlap: float  # share of the source that lies on the target
    rmse: float  # of that part, point to plane, in the files' unit; infinite without any
    inliers: int  # matches that agree with the pose
    matches: int
    resolution: float  # in the files' unit
    warnings: list[str] = field(default_factory=list)
    timings: dict[str, float] = field(default_factory=dict)  # seconds by step
    evidence: Evidence | None = None  # what the confidence was computed from
    information: Information | None = None  # how firmly the overlap holds the pose, in metres of the model
    described: tuple[Description, Description] | None = field(default=None, repr=False)  # both scans, thinned


def register(
    source: Any, target: Any, *, progress: ProgressHook | None = None, **options: Any
) -> Registration:
    """Find the rigid motion that takes `source` to where it belongs in `target`.

    Scans are paths of files, `Cloud`s, or points (N, 3), in any common unit and any pose. Options are the
    fields of `RegisterOptions`, by name. Same scans, options and device: same bits; swapped scans: the
    inverse, within the tolerance of the refinement.
    `progress` is entered around each step, for example to draw a progress bar.
    """
    o = RegisterOptions.read(options)
    clock = StepTimer(progress)
    with clock("read"):
        clouds = run_each(cleaned_points, (source, target))
    with clock("thin"):
        home = torch.device(choose_device(o.device))
        gpu = home.type == "cuda"
        points = [torch.from_numpy(cloud.points).to(home) if gpu else cloud.points for cloud in clouds]
        strange = different_units(*points)
        resolution = o.resolution or measure(*points).resolution
        if strange and o.resolution is None:
            return _nothing(resolution, [strange], clock.seconds)
        model, name = load_model(o.model, o.device)
        # On a GPU the keypoints of later rounds are chosen when needed: each waits for the one before.
        most, where = (o.keypoints[0], home) if gpu else (max(o.keypoints), torch.device("cpu"))
        each: Any = map if gpu else run_each  # a GPU does one after the other
        p, q = each(lambda cloud: prepare_scan(cloud, resolution, name, o.seed, most, where), clouds)
    with clock("surfaces"):
        surfaces = _surfaces(p, q)
    for count in o.keypoints:
        p, q = p.with_keypoints(count, o.seed), q.with_keypoints(count, o.seed)
        with clock("describe", p.missing(count) + q.missing(count)) as advance:
            p, q = p.extend(model, count, advance), q.extend(model, count, advance)
        result = register_described(p, q, o, surfaces, clock)
        if result.success or max(len(p.descriptors), len(q.descriptors)) < count:
            break
    return result


def register_described(
    p: Description,
    q: Description,
    options: RegisterOptions | None = None,
    surfaces: tuple[AnySurface, AnySurface] | None = None,
    clock: StepTimer | None = None,
) -> Registration:
    """Register two scans that are described already: p the source, q the target."""
    o = options or RegisterOptions()
    clock = clock or StepTimer()
    p.check_comparable(q)
    source, target = surfaces or _surfaces(p, q)
    with clock("match and solve"):
        proposed, matches = propose(p, q, solver=o.solver, hypotheses=o.hypotheses, seed=o.seed)
    with clock("verify and refine"):
        candidates = judge(proposed, source, target, finalists=o.finalists, refined=o.refine)
    if not candidates:
        return _nothing(p.resolution, ["no motion brings the scans together"], clock.seconds, matches)
    best = candidates[0]
    free = degeneracy(best.refined.information, REACH * INDOOR_RESOLUTION)
    evidence = best.evidence(matches, candidates[1:])
    sure = 0.0 if free.kind else confidence(evidence)
    T = best.refined.T_target_source.copy()
    T[:3, 3] *= p.unit
    return Registration(
        T_target_source=with_offsets(T, p.offset, q.offset),
        success=sure >= SUCCESS,
        confidence=sure,
        overlap=best.refined.agreement.overlap_source,
        rmse=best.refined.rmse * p.unit,
        inliers=int(best.hypothesis.inliers.sum()),
        matches=matches,
        resolution=p.resolution,
        warnings=_warnings(free, evidence, sure),
        timings=clock.seconds,
        evidence=evidence,
        information=best.refined.information,
        described=(p.to("cpu"), q.to("cpu")),
    )


def _surfaces(p: Description, q: Description) -> tuple[AnySurface, AnySurface]:
    if p.points.is_cuda:
        return DeviceSurface.of(p.points), DeviceSurface.of(q.points)
    source, target = run_each(lambda scan: Surface.of(scan.points.numpy()), (p, q))
    return source, target


def _warnings(free: Degeneracy, evidence: Evidence, sure: float) -> list[str]:
    found = [free.warning] if free.warning else []
    if sure >= SUCCESS:
        return found
    if evidence.ambiguous:
        found.append(
            "another pose fits the scans nearly as well: they may show something symmetric, or nothing common"
        )
    elif evidence.repeats:
        found.append("another pose would be believed if it were alone: the place may be built of equal parts")
    return found


def _nothing(
    resolution: float, warnings: list[str], timings: dict[str, float], matches: int = 0
) -> Registration:
    return Registration(np.eye(4), False, 0.0, 0.0, float("inf"), 0, matches, resolution, warnings, timings)
