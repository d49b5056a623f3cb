"""Rounds of a registration, from two prepared scans to a result."""

from __future__ import annotations

from functools import cache, partial

from wsdesc.alignment.prior import PosePrior
from wsdesc.alignment.surface import make_surfaces
from wsdesc.cloud.units import INDOOR_RESOLUTION, spacing
from wsdesc.core.progress import StepTimer
from wsdesc.descriptor.description import Description, choose_keypoints, extend_each
from wsdesc.descriptor.model import WSDesc
from wsdesc.registration.candidate import Candidate
from wsdesc.registration.candidates import structural_poses
from wsdesc.registration.local_search import search_near
from wsdesc.registration.options import RegisterOptions
from wsdesc.registration.prior import impossible, make_prior
from wsdesc.registration.result import Registration
from wsdesc.registration.rounds import explain_prior, failed_result, register_round

SPARSE_RESOLUTION = 1.25  # resolution of the alignment of sparse scans, in distances of neighbouring points
_SPARSE_POINTS = 3000  # scans with more points are not sparse; measuring it would only take time


def register_prepared(
    p: Description, q: Description, network: WSDesc, o: RegisterOptions, timer: StepTimer
) -> Registration:
    """Register two prepared scans at more and more keypoints, until a round is a success.

    Args:
        p, q: Source and target with their keypoints, without descriptors.
        network: The descriptor.
        o: Options of the registration.
        timer: Receives the steps.
    """
    factor = coarsening(p, q)
    aligned = p.coarser(factor), q.coarser(factor)
    with timer("surfaces"):
        surfaces = make_surfaces(aligned[0].points, aligned[1].points)
    prior = make_prior(o, *aligned)
    if reason := impossible(prior, *aligned):
        return failed_result(aligned[1].resolution, [reason], timer, (p.viewpoint, q.viewpoint))
    counts = _keypoint_counts(o, prior)
    # A search in wide limits takes longer than a first round of few keypoints, which often suffices.
    first_search = 0 if counts[0] == 0 or len(counts) == 1 else 1
    structural = cache(partial(structural_poses, *aligned, surfaces, prior, timer))  # searched once at most
    near: list[Candidate] = []
    for number, count in enumerate(counts):
        if number == first_search:
            near = search_near(prior, *aligned, surfaces, o, timer)
        p, q = choose_keypoints((p, q), count, o.seed)
        with timer("describe", p.missing(count) + q.missing(count)) as advance:
            p, q = extend_each((p, q), network, count, advance)
        complete = max(len(p.descriptors), len(q.descriptors)) < count  # small scans have no more keypoints
        last = number == len(counts) - 1 or (complete and (prior is None or number >= first_search))
        thorough = last and len(o.keypoints) > 1
        aligned = p.coarser(factor), q.coarser(factor)
        result = register_round(
            *aligned, surfaces, o, timer, thorough=thorough, prior=prior, near=near, structural=structural
        )
        if result.success or last:
            break
    if factor > 1 and prior is None and not result.success:  # some poses are found at the fine one only
        fine = register_round(p, q, make_surfaces(p.points, q.points), o, timer, thorough=thorough)
        return max(fine, result, key=lambda result: result.confidence)
    explain_prior(result, prior, *aligned, surfaces, o, timer)
    return result


def _keypoint_counts(o: RegisterOptions, prior: PosePrior | None) -> tuple[int, ...]:
    """Return the keypoints of each round; a round of 0 keypoints only searches around the guess."""
    if o.search_radius == 0 and o.max_angle == 0:
        return (0,)
    if prior and prior.near and prior.near.narrow:
        return (0, *o.keypoints)
    return o.keypoints


def coarsening(p: Description, q: Description) -> float:
    """Return the factor on the resolution at which two scans are aligned; 1 unless one of them is sparse.

    The resolution follows the extent of a scan, as descriptors need. Points that are farther apart than that
    give neither normals nor overlap at this length.
    """
    if max(len(p.points), len(q.points)) > _SPARSE_POINTS:
        return 1.0
    gap = max(spacing(scan.points) for scan in (p, q)) / INDOOR_RESOLUTION
    return SPARSE_RESOLUTION * gap if gap > 1 else 1.0
