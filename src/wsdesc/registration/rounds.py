"""One round of a registration: from two descriptions to a result."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from wsdesc.alignment.covariance import estimate_covariance
from wsdesc.alignment.prior import PosePrior
from wsdesc.alignment.surface import Surface
from wsdesc.cloud.local_frame import in_scan_frames
from wsdesc.cloud.units import INDOOR_RESOLUTION
from wsdesc.core.geometry import Floats
from wsdesc.core.progress import StepTimer
from wsdesc.descriptor.description import Description
from wsdesc.registration.advice import no_alignment_found, warnings_about
from wsdesc.registration.candidate import Candidate
from wsdesc.registration.candidates import Candidates, find_candidates
from wsdesc.registration.options import RegisterOptions
from wsdesc.registration.prior import contradictions, name_priors
from wsdesc.registration.result import PLAUSIBLE, SUCCESS, AlternativePose, Pose, Registration, Viewpoints

# Factors of the last of several rounds: the right pose was perhaps not among the hypotheses before.
MORE_HYPOTHESES, MORE_REFINED = 5, 9

_WORTH_NAMING = 0.5  # confidence of a pose that contradicts what is known


def register_round(
    p: Description,
    q: Description,
    surfaces: tuple[Surface, Surface],
    o: RegisterOptions,
    timer: StepTimer,
    *,
    thorough: bool = False,
    prior: PosePrior | None = None,
    near: Sequence[Candidate] = (),
    structural: Callable[[], Floats] | None = None,
) -> Registration:
    """Register the description p to q; `thorough` considers more hypotheses.

    `prior`, `near` and `structural` are those of `find_candidates`.
    """
    candidates = find_candidates(
        p,
        q,
        surfaces,
        solver=o.solver,
        hypotheses=o.hypotheses * (MORE_HYPOTHESES if thorough else 1),
        refined=o.refined * (MORE_REFINED if thorough else 1),
        refine=o.refine,
        seed=o.seed,
        prior=prior,
        near=near,
        structural=structural,
        timer=timer,
    )
    if not candidates.ranked:
        viewpoints = (p.viewpoint, q.viewpoint)
        return failed_result(
            q.resolution, [no_alignment_found(q.resolution)], timer, viewpoints, candidates.matches
        )
    return build_result(candidates, p, q, timer, prior)


def build_result(
    candidates: Candidates, p: Description, q: Description, timer: StepTimer, prior: PosePrior | None = None
) -> Registration:
    """Build the result of a registration from its candidates, at least one."""
    best = candidates.ranked[0]
    with timer("scale"):
        scale = best.scale
        factor = q.unit / p.unit / scale.factor
    with timer("covariance"):
        covariance = estimate_covariance(*best.surfaces, best.refined, INDOOR_RESOLUTION)
        covariance = covariance and covariance.in_frame(q.T_scan_local, q.unit)
    return Registration(
        T_target_source=_pose_of_scans(best, p, q),
        success=best.confidence >= SUCCESS,
        confidence=best.confidence,
        overlap=best.refined.score.overlap_source,
        overlap_target=best.refined.score.overlap_target,
        rmse=best.refined.rmse * q.unit,
        inliers=int(best.hypothesis.inliers.sum()),
        matches=candidates.matches,
        resolution=q.resolution,
        tilt=prior.tilt(best.refined.T_target_source) if prior else None,
        scale=factor,
        scale_deviation=factor * scale.deviation if scale.determined else math.inf,
        covariance=covariance.matrix if covariance else None,
        covariance_centre=covariance.centre if covariance else None,
        alternatives=_alternatives(candidates.ranked[1:], p, q),
        warnings=warnings_about(best, q.resolution),
        timings=timer.seconds,
        viewpoints=(p.viewpoint, q.viewpoint),
        evidence=best.evidence,
        information=best.refined.information,
        described=(p.to("cpu"), q.to("cpu")),
        matched=candidates.matched(best),
    )


def explain_prior(
    result: Registration,
    prior: PosePrior | None,
    p: Description,
    q: Description,
    surfaces: tuple[Surface, Surface],
    o: RegisterOptions,
    timer: StepTimer,
) -> None:
    """Add warnings to a result without success: whether the prior may be the reason."""
    if prior is None or result.success:
        return
    if result.evidence is None:
        result.warnings.insert(0, f"No pose that was found agrees with {name_priors(o)}.")
    if len(p.descriptors) == 0:
        return
    with timer("search without prior"):
        candidates = find_candidates(p, q, surfaces, solver=o.solver, refine=o.refine, seed=o.seed)
    if not candidates.ranked or candidates.ranked[0].confidence < max(_WORTH_NAMING, result.confidence):
        return
    best = candidates.ranked[0]
    reasons = contradictions(prior, best, q.unit)
    if reasons:
        result.warnings.append(
            f"The best pose without {name_priors(o)} has a confidence of {best.confidence:.2f}, but it "
            f"{' and '.join(reasons)}. Check what is known beforehand."
        )


def _pose_of_scans(candidate: Candidate, p: Description, q: Description) -> Pose:
    """Convert the pose of a candidate to the unit and the frames of the scans."""
    T = candidate.refined.T_target_source.copy()
    T[:3, 3] *= q.unit
    return in_scan_frames(T, p.T_scan_local, q.T_scan_local, q.unit / p.unit)


def _alternatives(others: Sequence[Candidate], p: Description, q: Description) -> list[AlternativePose]:
    """List the plausible ones of the other candidates, most probable first."""
    return [
        AlternativePose(
            T_target_source=_pose_of_scans(candidate, p, q),
            probability=candidate.confidence,
            overlap=candidate.refined.score.overlap_source,
            overlap_target=candidate.refined.score.overlap_target,
            rmse=candidate.refined.rmse * q.unit,
        )
        for candidate in sorted(others, key=lambda candidate: -candidate.confidence)
        if candidate.confidence >= PLAUSIBLE
    ]


def failed_result(
    resolution: float, warnings: list[str], timer: StepTimer, viewpoints: Viewpoints, matches: int = 0
) -> Registration:
    """Build the result of a registration that found no pose."""
    return Registration(
        T_target_source=np.eye(4),
        success=False,
        confidence=0.0,
        overlap=0.0,
        overlap_target=0.0,
        rmse=math.inf,
        inliers=0,
        matches=matches,
        resolution=resolution,
        warnings=warnings,
        timings=timer.seconds,
        viewpoints=viewpoints,
    )
