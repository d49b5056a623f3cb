"""Prior of a pair: what its options say, in metres of the model and in the local frames of both scans."""

from __future__ import annotations

import math

import numpy as np

from wsdesc.alignment.prior import Near, PosePrior, Upright
from wsdesc.cloud.local_frame import in_local_frames
from wsdesc.descriptor.description import Description
from wsdesc.registration.candidate import Candidate
from wsdesc.registration.prior_options import PriorOptions
from wsdesc.registration.rigid_result import scaled_scan


def make_prior(o: PriorOptions, p: Description, q: Description) -> PosePrior | None:
    """Build the prior of the descriptions p and q; None if nothing is known."""
    near = _near(o, p, q) if o.initial is not None else None
    directions = o.up or o.axis
    upright = None
    if directions is not None:
        source, target = (
            d.T_scan_local[:3, :3].T @ np.array(v) for d, v in zip((p, q), directions, strict=True)
        )
        upright = Upright(source, target, math.radians(o.max_tilt), exact=o.axis is not None)
    if near is None and upright is None and o.overlap_at_least == 0:
        return None
    return PosePrior(near, upright, o.overlap_at_least)


def _near(o: PriorOptions, p: Description, q: Description) -> Near:
    source = scaled_scan(p, q.unit / p.unit)  # the guess is for the source in the target's unit
    guess = in_local_frames(o.initial, source.T_scan_local, q.T_scan_local)
    guess[:3, 3] /= q.unit
    return Near(
        guess,
        radius=math.inf if o.search_radius is None else o.search_radius / q.unit,
        angle=math.pi if o.max_angle is None else math.radians(o.max_angle),
        size=float(p.points.double().square().sum(1).mean().sqrt()),
    )


def impossible(prior: PosePrior | None, p: Description, q: Description) -> str | None:
    """Explain why no pose can agree with a prior; None if one can."""
    if prior is None or prior.near is None:
        return None
    near, upright = prior.near, prior.upright
    sizes = [float(d.points.double().square().sum(1).max().sqrt()) for d in (p, q)]
    gap = float(np.linalg.norm(near.guess[:3, 3])) - sum(sizes)
    if gap > near.max_distance:
        return (
            f"No pose agrees with initial and search_radius: initial puts the scans {gap * q.unit:.4g} "
            "apart. It must map the source's own coordinates to the target's, in their unit."
        )
    if upright is None or (tilt := upright.tilts(near.guess[None])[0]) <= upright.max_tilt + near.max_angle:
        return None
    return (
        f"No pose agrees with initial and {upright.name}: initial tilts by {math.degrees(tilt):.1f}° against "
        f"{upright.name}, which max_angle and max_tilt do not allow."
    )


def name_priors(o: PriorOptions) -> str:
    """List the options of the prior, for sentences."""
    fields = PriorOptions.model_fields
    names = [name for name in fields if name != "max_tilt" and getattr(o, name) != fields[name].default]
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def contradictions(prior: PosePrior, candidate: Candidate, unit: float) -> list[str]:
    """List how a candidate contradicts the prior; empty if it agrees. `unit` is that of the descriptions."""
    poses, score = candidate.refined.T_target_source[None], candidate.refined.score
    parts = []
    near, upright = prior.near, prior.upright
    if near is not None and not near.allows(poses, refined=True)[0]:
        distance, degrees = near.distances(poses)[0] * unit, math.degrees(near.angles(poses)[0])
        parts.append(f"is {distance:.3g} and {degrees:.1f}° from initial")
    if upright is not None and not upright.allows(poses, refined=True)[0]:
        parts.append(f"tilts by {prior.tilt(poses[0]):.1f}° against {upright.name}")
    if not prior.allows_overlap(score, refined=True):
        parts.append(f"has an overlap of {max(score.overlap_source, score.overlap_target):.0%}")
    return parts
