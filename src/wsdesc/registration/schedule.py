"""Rounds of a registration, from two prepared scans to a result."""

from __future__ import annotations

from wsdesc.alignment.surface import make_surfaces
from wsdesc.core.progress import StepTimer
from wsdesc.descriptor.description import Description
from wsdesc.descriptor.model import WSDesc
from wsdesc.registration.candidates import Candidate
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
    counts = rounds(o, prior)
    # A search in wide limits takes longer than a first round of few keypoints, which often suffices.
    first_search = 0 if counts[0] == 0 or len(counts) == 1 else 1
    near: list[Candidate] = []
    for number, count in enumerate(counts):
        if number == first_search:
            near = search_near(prior, p, q, surfaces, o, timer)
        p, q = p.with_keypoints(count, o.seed), q.with_keypoints(count, o.seed)
        with timer("describe", p.missing(count) + q.missing(count)) as advance:
            p, q = p.extend(network, count, advance), q.extend(network, count, advance)
        complete = max(len(p.descriptors), len(q.descriptors)) < count  # small scans have no more keypoints
        last = number == len(counts) - 1 or (complete and (prior is None or number >= first_search))
        thorough = last and len(o.keypoints) > 1
        result = register_round(p, q, surfaces, o, timer, thorough=thorough, prior=prior, near=near)
        if result.success or last:
            break
    explain_prior(result, prior, p, q, surfaces, o, timer)
    return result
