"""From hypotheses to candidates: verify, rank and refine poses. All lengths are in metres of the model."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from wsdesc.alignment.free_space import FreeSpace, measure_free_space
from wsdesc.alignment.hypotheses import Hypothesis
from wsdesc.alignment.prior import PosePrior
from wsdesc.alignment.refine import OVERLAP_DISTANCE, RefinedPose, evaluate
from wsdesc.alignment.refine import refine as refine_poses
from wsdesc.alignment.surface import Surface
from wsdesc.alignment.verify import score_hypothesis, verify
from wsdesc.cloud.range_image import RangeImage
from wsdesc.cloud.units import INDOOR_RESOLUTION
from wsdesc.core.geometry import Floats
from wsdesc.registration.candidate import SAME_COSINE, SAME_DISTANCE, Candidate, distinct_candidates

_VIOLATION = 0.01  # share of points in free space that halves the rank of a hypothesis
_WORTH_REFINING = 0.1  # rank of a structural pose, relative to the best hypothesis

Images = tuple[RangeImage | None, RangeImage | None]  # of the source and the target


def unmatched(T_target_source: Floats) -> Hypothesis:
    """Make a hypothesis of a pose (4, 4) that no match proposed; see `Candidate.with_matches`."""
    return Hypothesis(torch.from_numpy(T_target_source), torch.zeros(0, dtype=torch.bool), 0.0)


def verify_hypotheses(
    proposed: Sequence[Hypothesis],
    surfaces: tuple[Surface, Surface],
    images: Images,
    matches: int,
    *,
    beside: Sequence[Candidate] = (),
    refined: int = 4,
    refine: bool = True,
    prior: PosePrior | None = None,
) -> list[Candidate]:
    """Rank hypotheses by surfaces and free space, and refine the best; return those that differ.

    Beside other candidates, hypotheses that are equal to one of them or rank far lower are not refined.
    Candidates that contradict the prior are dropped.
    """
    poses = np.reshape([h.T_target_source.numpy() for h in proposed], (-1, 4, 4))
    order, ranks = _rank(poses, surfaces, images, beside, prior)
    order = order[:refined]
    improve = refine_poses if refine else evaluate
    results = improve(*surfaces, poses[order], INDOOR_RESOLUTION)
    if prior is not None:
        order, results = _agreeing(prior, order, results, surfaces, refined=refine)
    refined_poses = np.reshape([result.T_target_source for result in results], (-1, 4, 4))
    free_spaces = _free_space(surfaces, images, refined_poses, refined=refine)
    dense_free_spaces = _free_space(surfaces, images, refined_poses, refined=refine, dense=True)
    candidates = [
        Candidate(proposed[k], result, matches, surfaces, free, dense_free, rank=ranks[k])
        for k, result, free, dense_free in zip(order, results, free_spaces, dense_free_spaces, strict=True)
    ]
    return distinct_candidates(candidates)


def _rank(
    poses: Floats,
    surfaces: tuple[Surface, Surface],
    images: Images,
    beside: Sequence[Candidate],
    prior: PosePrior | None,
) -> tuple[list[int], list[float]]:
    """Rank poses (H, 4, 4): the indices of those worth refining, best first, and the ranks of all (H,)."""
    distance = 2 * OVERLAP_DISTANCE * INDOOR_RESOLUTION  # hypotheses are off by some centimetres
    scores = verify(*surfaces, poses, distance, coarse=True)
    free_spaces = _free_space(surfaces, images, poses, refined=False)
    ranks = [score_hypothesis(s) * _agreement(free) for s, free in zip(scores, free_spaces, strict=True)]
    order = sorted(range(len(poses)), key=lambda k: -ranks[k])
    if prior is not None:
        order = [k for k in order if prior.allows_overlap(scores[k], refined=False)]
    if beside:
        least = _WORTH_REFINING * max(candidate.rank for candidate in beside)
        others = np.stack([candidate.refined.T_target_source for candidate in beside])
        middle = surfaces[0].points.mean(0).tolist()
        order = [k for k in order if ranks[k] >= least and not _is_near(poses[k], others, middle)]
    return order, ranks


def _agreeing(
    prior: PosePrior,
    order: list[int],
    results: list[RefinedPose],
    surfaces: tuple[Surface, Surface],
    *,
    refined: bool,
) -> tuple[list[int], list[RefinedPose]]:
    """Keep the poses that agree with the prior, without their tilt if an axis is known."""
    poses = np.reshape([result.T_target_source for result in results], (-1, 4, 4))
    kept = np.flatnonzero(prior.allows(poses, refined=refined)).tolist()
    order, results = [order[k] for k in kept], [results[k] for k in kept]
    if prior.upright is not None and prior.upright.exact:
        level = [prior.upright.level(result.T_target_source, result.information) for result in results]
        results = evaluate(*surfaces, np.reshape(level, (-1, 4, 4)), INDOOR_RESOLUTION)
    kept = [k for k, result in enumerate(results) if prior.allows_overlap(result.score, refined=refined)]
    return [order[k] for k in kept], [results[k] for k in kept]


def _is_near(T: Floats, others: Floats, middle: list[float]) -> bool:
    """Return whether one of the other poses (H, 4, 4) is the same at the middle (3,) of the source."""
    distance = np.linalg.norm((others - T) @ [*middle, 1.0], axis=1)
    cosine = (np.einsum("hij,ij->h", others[:, :3, :3], T[:3, :3]) - 1) / 2
    return bool(((distance < SAME_DISTANCE * INDOOR_RESOLUTION) & (cosine > SAME_COSINE)).any())


def _free_space(
    surfaces: tuple[Surface, Surface], images: Images, poses: Floats, *, refined: bool, dense: bool = False
) -> list[FreeSpace | None]:
    """Measure how far poses (H, 4, 4) contradict the free space that the scanners saw through."""
    if all(image is None for image in images):
        return [None] * len(poses)
    return list(measure_free_space(*surfaces, images, poses, refined=refined, dense=dense))


def _agreement(free: FreeSpace | None) -> float:
    """Return the factor, 0 … 1, by which free space lowers the rank of a hypothesis."""
    return 1 / (1 + free.violation / _VIOLATION) if free is not None else 1.0
