"""Rounds of a registration, from two prepared scans to a result."""

from __future__ import annotations

from wsdesc.alignment.surface import make_surfaces
from wsdesc.core.progress import StepTimer
from wsdesc.descriptor.description import Description
from wsdesc.descriptor.model import WSDesc
from wsdesc.registration.local_search import rounds, search_near
from wsdesc.registration.options import RegisterOptions
from wsdesc.registration.prior import impossible, make_prior
from wsdesc.registration.result import Registration
from wsdesc.registration.rounds import explain_prior, failed_result, register_round


def register_prepared(
    p: Description, q: Description, network: WSDesc, o: RegisterOptions, timer: StepTimer
) -> Registration:
    """Register two prepared scans at more and more keypoints, until a round is a success.

    Args:
        p, q: source and target with their keypoints, without descriptors.
        network: the descriptor.
        o: options of the registration.
        timer: receives the steps.
    """
    with timer("surfaces"):
        surfaces = make_surfaces(p.points, q.points)
    prior = make_prior(o, p, q)
    if reason := impossible(prior, p, q):
        return failed_result(q.resolution, [reason], timer, (p.viewpoint, q.viewpoint))
    near = search_near(prior, p, q, surfaces, o, timer)
    counts = rounds(o, prior)
    for number, count in enumerate(counts):
        p, q = p.with_keypoints(count, o.seed), q.with_keypoints(count, o.seed)
        with timer("describe", p.missing(count) + q.missing(count)) as advance:
            p, q = p.extend(network, count, advance), q.extend(network, count, advance)
        last = len(o.keypoints) > 1 and number == len(counts) - 1
        result = register_round(p, q, surfaces, o, timer, thorough=last, prior=prior, near=near)
        if result.success or max(len(p.descriptors), len(q.descriptors)) < count:
            break
    explain_prior(result, prior, p, q, surfaces, o, timer)
    return result
