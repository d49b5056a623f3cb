"""Search the factor between the lengths of two scans.

Descriptors tolerate scales that differ by about 15 %. So the source is described at a ladder of resolutions,
each for one range of factors, and the target at one. The ladder begins in the middle, where both scans have
the same extent. On each step, poses are proposed by matches whose lengths agree at one of a few factors. The
best of all steps are refined as similarity transformations, and compared on the surfaces.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch

from wsdesc.alignment.consensus import consensus
from wsdesc.alignment.refine import OVERLAP_DISTANCE
from wsdesc.alignment.scale import fit_similarity
from wsdesc.alignment.scale.step import Stage
from wsdesc.alignment.surface import Surface, make_surface
from wsdesc.alignment.verify import PoseScore, score_hypothesis, verify
from wsdesc.cloud.clean import Cleaned
from wsdesc.cloud.sampling import voxel_downsample
from wsdesc.cloud.units import INDOOR_RESOLUTION, Scale, extent, spacing
from wsdesc.core.errors import InputError
from wsdesc.core.geometry import Floats
from wsdesc.core.progress import StepTimer
from wsdesc.core.similarity import split_similarity
from wsdesc.descriptor.description import Description
from wsdesc.descriptor.model import WSDesc
from wsdesc.descriptor.preparation import prepare_scan
from wsdesc.matching.mutual import one_sided_matches
from wsdesc.registration.propose import INLIER_DISTANCE, ONE_SIDED_WEIGHT

STEP = 1.3  # ratio of two resolutions of the ladder
STEPS = 4  # to either side of equal extents: factors of 1/2.9 to 2.9
FACTORS = (-1 / 3, 0.0, 1 / 3)  # tried on each step of the ladder, in steps
PROPOSED = 3  # poses of each factor
SOURCE_KEYPOINTS = 2 / 3  # of the target's, which is described only once
REFINED = 8  # poses of all steps that are refined
SAME_FACTOR = 0.1  # factors whose logarithms are closer are the same
# Stages of the refinement, see `fit_similarity`.
STAGES = (Stage(8.0, 6, coarse=True), Stage(3.0, 4, coarse=True), Stage(2.0, 4, coarse=False))


class Sizes(NamedTuple):
    """Spacing and extent of both scans, source first, each in its own unit."""

    spacings: tuple[float, float]
    extents: tuple[float, float]

    @classmethod
    def of(cls, source: torch.Tensor, target: torch.Tensor) -> Sizes:
        """Measure both scans (N, 3)."""
        return cls((spacing(source), spacing(target)), (extent(source), extent(target)))

    def resolution(self, factor: float) -> float:
        """Return the working resolution in the target's unit, if the source is multiplied by a factor."""
        (spacing_p, spacing_q), (extent_p, extent_q) = self
        return Scale.combine((factor * spacing_p, spacing_q), (factor * extent_p, extent_q)).resolution


class ScaleHypothesis(NamedTuple):
    """A factor from lengths of the source to lengths of the target, not yet registered."""

    factor: float
    score: float  # of its best pose; see `rank`


class _Pose(NamedTuple):
    """A pose of the source at one step of the ladder, in model metres."""

    rank: float
    step: int
    factor: float  # by which the source of this step is multiplied
    T_target_source: Floats  # (4, 4) rigid, applied after the factor


def search_scales(
    clouds: Sequence[Cleaned],
    sizes: Sizes,
    network: WSDesc,
    *,
    keypoints: int,
    resolution: float | None = None,
    seed: int = 0,
    device: str = "cpu",
    timer: StepTimer | None = None,
) -> list[ScaleHypothesis]:
    """Find factors at which the scans fit, best first.

    Args:
        clouds: The cleaned source and target.
        sizes: Their spacings and extents.
        network: The descriptor.
        keypoints: Number of keypoints of the target; the source has fewer on each step.
        resolution: Working resolution in the target's unit; None derives it.
        seed: Of the choice of keypoints.
        device: Where to compute.
        timer: Receives the step "search scale".
    """
    middle = sizes.extents[1] / sizes.extents[0]
    length = resolution or sizes.resolution(middle)
    factors = [middle * STEP**k for k in range(-STEPS, STEPS + 1)]
    timer = timer or StepTimer()
    with timer("search scale", len(factors) + 1) as advance:
        finest = length / factors[-1]
        source, target = _thinned(clouds[0], finest / 2, device), _thinned(clouds[1], length / 2, device)
        q = prepare_scan(target, length, "", seed, keypoints, device).extend(network, keypoints)
        q_surface = make_surface(q.points)
        advance(1)
        surfaces: list[Surface | None] = []
        poses: list[_Pose] = []
        count = max(3, round(SOURCE_KEYPOINTS * keypoints))
        for number, factor in enumerate(factors):
            surface = None
            try:
                p = prepare_scan(source, length / factor, "", seed, count, device)
            except InputError:  # too few points at this resolution
                pass
            else:
                p = p.extend(network, count)
                surface = make_surface(p.points)
                poses += _propose(p, q, surface, q_surface, number)
            surfaces.append(surface)
            advance(1)
        best = sorted(poses, key=lambda pose: -pose.rank)[:REFINED]
        return _distinct([_refined(pose, surfaces[pose.step], q_surface, factors) for pose in best])


def rank(score: PoseScore) -> float:
    """Compare poses of several factors: as `score_hypothesis`, with the geometric mean of both overlaps.

    A source that is far too small lies on the target with all its points, wherever it is put.
    """
    mean = (score.overlap_source + score.overlap_target) / 2
    geometric = math.sqrt(score.overlap_source * score.overlap_target)
    return score_hypothesis(score) * geometric / mean if mean > 0 else 0.0


def _propose(p: Description, q: Description, source: Surface, target: Surface, step: int) -> list[_Pose]:
    """Propose poses of one step of the ladder by matches, and rank them on the surfaces."""
    pairs, mutual = one_sided_matches(p.descriptors, q.descriptors)
    weights, threshold = torch.where(mutual, 1.0, ONE_SIDED_WEIGHT), INLIER_DISTANCE["consensus"]
    sources, targets = p.keypoints[pairs[:, 0]], q.keypoints[pairs[:, 1]]  # (M, 3)
    poses = []
    for exponent in FACTORS:
        factor = STEP**exponent
        proposed = consensus(
            factor * sources,
            targets,
            weights=weights,
            threshold=threshold,
            hypotheses=PROPOSED,
        )
        if proposed:
            matrices = np.stack([hypothesis.T_target_source.numpy() for hypothesis in proposed])
            distance = 2 * OVERLAP_DISTANCE * INDOOR_RESOLUTION
            scores = verify(source.scaled(factor), target, matrices, distance)
            poses += [_Pose(rank(s), step, factor, T) for s, T in zip(scores, matrices, strict=True)]
    return poses


def _refined(
    pose: _Pose, source: Surface | None, target: Surface, factors: Sequence[float]
) -> ScaleHypothesis:
    """Refine a pose as a similarity, and rank it again."""
    assert source is not None  # the pose was proposed on it
    total = factors[pose.step] * pose.factor
    scaled = source.scaled(pose.factor)
    fit = fit_similarity(scaled, target, pose.T_target_source, INDOOR_RESOLUTION, STAGES)
    if fit is None:
        return ScaleHypothesis(total, 0.0)
    T, factor = split_similarity(fit.S_target_source)
    scaled = source.scaled(pose.factor * factor)
    (score,) = verify(scaled, target, T[None], OVERLAP_DISTANCE * INDOOR_RESOLUTION)
    return ScaleHypothesis(total * factor, rank(score))


def _distinct(hypotheses: Sequence[ScaleHypothesis]) -> list[ScaleHypothesis]:
    """Keep factors that differ from all better ones, best first."""
    kept: list[ScaleHypothesis] = []
    for hypothesis in sorted(hypotheses, key=lambda hypothesis: -hypothesis.score):
        if all(abs(math.log(hypothesis.factor / better.factor)) > SAME_FACTOR for better in kept):
            kept.append(hypothesis)
    return kept


def _thinned(cloud: Cleaned, resolution: float, device: str) -> Cleaned:
    """Return a scan with one point per voxel and without free space, which the search does not use."""
    points = voxel_downsample(torch.from_numpy(cloud.points).to(device), resolution)
    return replace(cloud, points=points.cpu().numpy(), viewpoint=None)
