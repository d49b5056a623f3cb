"""One round of a registration: from two descriptions to a result."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from wsdesc.alignment.covariance import estimate_covariance
from wsdesc.alignment.surface import Surface
from wsdesc.cloud.local_frame import in_scan_frames
from wsdesc.cloud.units import INDOOR_RESOLUTION
from wsdesc.core.progress import StepTimer
from wsdesc.descriptor.description import Description
from wsdesc.registration.advice import no_alignment_found, warnings_about
from wsdesc.registration.candidates import Candidate, find_candidates
from wsdesc.registration.options import RegisterOptions
from wsdesc.registration.result import PLAUSIBLE, SUCCESS, AlternativePose, Pose, Registration, Viewpoints

# Factors of the last of several rounds: the right pose was perhaps not among the hypotheses before.
MORE_HYPOTHESES, MORE_REFINED = 5, 3


def register_round(
    p: Description,
    q: Description,
    surfaces: tuple[Surface, Surface],
    o: RegisterOptions,
    timer: StepTimer,
    *,
    thorough: bool = False,
) -> Registration:
    """Register the description p to q; `thorough` considers more hypotheses."""
    found = find_candidates(
        p,
        q,
        surfaces,
        solver=o.solver,
        hypotheses=o.hypotheses * (MORE_HYPOTHESES if thorough else 1),
        refined=o.refined * (MORE_REFINED if thorough else 1),
        refine=o.refine,
        seed=o.seed,
        timer=timer,
    )
    if not found.ranked:
        viewpoints = (p.viewpoint, q.viewpoint)
        return failed_result(
            p.resolution, [no_alignment_found(p.resolution)], timer, viewpoints, found.matches
        )
    best = found.ranked[0]
    with timer("scale"):
        scale = best.scale
    with timer("covariance"):
        exactness = estimate_covariance(*best.surfaces, best.refined, INDOOR_RESOLUTION)
        exactness = exactness and exactness.in_frame(q.T_scan_local, p.unit)
    return Registration(
        T_target_source=_pose_of_scans(best, p, q),
        success=best.confidence >= SUCCESS,
        confidence=best.confidence,
        overlap=best.refined.score.overlap_source,
        overlap_target=best.refined.score.overlap_target,
        rmse=best.refined.rmse * p.unit,
        inliers=int(best.hypothesis.inliers.sum()),
        matches=found.matches,
        resolution=p.resolution,
        scale=scale.factor,
        scale_deviation=scale.factor * scale.deviation,
        covariance=exactness.matrix if exactness else None,
        covariance_centre=exactness.centre if exactness else None,
        alternatives=_alternatives(found.ranked[1:], p, q),
        warnings=warnings_about(best, p.resolution),
        timings=timer.seconds,
        viewpoints=(p.viewpoint, q.viewpoint),
        evidence=best.evidence,
        information=best.refined.information,
        described=(p.to("cpu"), q.to("cpu")),
        matched=found.matched(best),
    )


def _pose_of_scans(candidate: Candidate, p: Description, q: Description) -> Pose:
    """Convert the pose of a candidate to the unit and the frames of the scans."""
    T = candidate.refined.T_target_source.copy()
    T[:3, 3] *= p.unit
    return in_scan_frames(T, p.T_scan_local, q.T_scan_local)


def _alternatives(others: Sequence[Candidate], p: Description, q: Description) -> list[AlternativePose]:
    """List the plausible ones of the other candidates, most probable first."""
    return [
        AlternativePose(
            T_target_source=_pose_of_scans(candidate, p, q),
            probability=candidate.confidence,
            overlap=candidate.refined.score.overlap_source,
            overlap_target=candidate.refined.score.overlap_target,
            rmse=candidate.refined.rmse * p.unit,
        )
        for candidate in sorted(others, key=lambda candidate: -candidate.confidence)
        if candidate.confidence >= PLAUSIBLE
    ]


def failed_result(
    resolution: float, warnings: list[str], timer: StepTimer, viewpoints: Viewpoints, matches: int = 0
) -> Registration:
    """Build the result of a registration that found no pose."""
    return Registration(
        np.eye(4),
        False,
        0.0,
        0.0,
        float("inf"),
        0,
        matches,
        resolution,
        overlap_target=0.0,
        warnings=warnings,
        timings=timer.seconds,
        viewpoints=viewpoints,
    )
