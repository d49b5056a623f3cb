"""Candidate poses of a described pair. All lengths are in metres of the model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch

from wsdesc.alignment.confidence import confidences
from wsdesc.alignment.evidence import Evidence
from wsdesc.alignment.free_space import FreeSpace, measure_free_space
from wsdesc.alignment.hypotheses import Hypothesis
from wsdesc.alignment.information import Degeneracy, find_degeneracy
from wsdesc.alignment.prior import PosePrior
from wsdesc.alignment.refine import OVERLAP_DISTANCE, RefinedPose, evaluate
from wsdesc.alignment.refine import refine as refine_poses
from wsdesc.alignment.scale import RelativeScale, estimate_scale
from wsdesc.alignment.structure import search_structure
from wsdesc.alignment.surface import Surface
from wsdesc.alignment.verify import score_candidate, score_hypothesis, verify
from wsdesc.cloud.range_image import RangeImage
from wsdesc.cloud.units import INDOOR_RESOLUTION
from wsdesc.core.geometry import Floats, inverse
from wsdesc.core.progress import StepTimer
from wsdesc.descriptor.description import Description
from wsdesc.registration.matched import MatchedKeypoints
from wsdesc.registration.options import Solver
from wsdesc.registration.propose import Proposals, propose

_SAME_DISTANCE, _SAME_COSINE = 10.0, 0.996  # resolutions and 5°: closer poses are the same
SCALE_CHECKED = 0.3  # probability above which the scale is estimated; lower ones are no use to anybody
_VIOLATION = 0.01  # share of points in free space that halves the rank of a hypothesis
AMBIGUOUS = 0.05  # probability from which on another candidate is plausible
_STRUCTURAL = 8  # poses of the structure search
_WORTH_REFINING = 0.1  # rank of a structural pose, relative to the best hypothesis

Images = tuple[RangeImage | None, RangeImage | None]  # of the source and the target


@dataclass(frozen=True, eq=False)
class Candidate:
    """A pose of a pair after verification and refinement, with its probability."""

    hypothesis: Hypothesis
    refined: RefinedPose
    matches: int  # of the pair, inliers or not
    surfaces: tuple[Surface, Surface] = field(repr=False)  # of the source and the target
    free_space: FreeSpace | None = None  # of a sample of the points; None if neither viewpoint is known
    dense_free_space: FreeSpace | None = None  # of all points
    probability: float = 0.0  # that this one of the pair's candidates is right, by the evidence of all
    rival: float = 0.0  # largest probability of another candidate

    @cached_property
    def degeneracy(self) -> Degeneracy:
        """Motions that the overlap does not determine."""
        return find_degeneracy(self.refined.information, OVERLAP_DISTANCE * INDOOR_RESOLUTION)

    @cached_property
    def evidence(self) -> Evidence:
        """Figures from which the probability is computed."""
        return Evidence.of(
            self.refined.score,
            self.degeneracy,
            inliers=int(self.hypothesis.inliers.sum()),
            matches=self.matches,
            votes=self.hypothesis.votes,
            free_space=self.free_space,
            dense_free_space=self.dense_free_space,
        )

    @cached_property
    def confidence(self) -> float:
        """The probability; 0 if the overlap does not determine the pose or the scales differ."""
        if self.degeneracy.kind:
            return 0.0
        return 0.0 if self.probability >= SCALE_CHECKED and self.scale.differs else self.probability

    @cached_property
    def scale(self) -> RelativeScale:
        """Size of the source relative to the target."""
        T, free = self.refined.T_target_source, self.free_space
        single = free is not None and min(free.source.in_view, free.target.in_view) > 0
        return estimate_scale(*self.surfaces, T, INDOOR_RESOLUTION, single=single)

    def with_matches(self, proposals: Proposals) -> Candidate:
        """Count the inliers at the refined pose, for a candidate that no match proposed."""
        inliers, votes = proposals.count_inliers(self.refined.T_target_source)
        hypothesis = self.hypothesis._replace(inliers=inliers, votes=votes)
        return replace(self, hypothesis=hypothesis, matches=len(inliers))

    @property
    def ambiguous(self) -> bool:
        """True if another candidate of the pair is plausible."""
        return self.rival > AMBIGUOUS

    def differs(self, other: Candidate) -> bool:
        """Return whether the poses differ by more than 10 resolutions or 5° at the overlap of this one."""
        a, b = self.refined, other.refined
        T_a_b = a.T_target_source @ inverse(b.T_target_source)  # within the target's frame
        centre = a.information.centre
        distance = np.linalg.norm(T_a_b[:3, :3] @ centre + T_a_b[:3, 3] - centre)
        cosine = (np.trace(T_a_b[:3, :3]) - 1) / 2
        return bool(distance > _SAME_DISTANCE * INDOOR_RESOLUTION or cosine < _SAME_COSINE)


class Candidates(NamedTuple):
    """Distinct candidates of a pair, most probable first, and the matches that proposed them."""

    ranked: list[Candidate]
    pairs: torch.Tensor  # (M, 2) indices of matched keypoints in source and target

    @property
    def matches(self) -> int:
        """Number of matches."""
        return len(self.pairs)

    def matched(self, candidate: Candidate) -> MatchedKeypoints:
        """Return the matches, and which of them proposed a candidate."""
        return MatchedKeypoints(self.pairs.cpu().numpy(), candidate.hypothesis.inliers.cpu().numpy())


def find_candidates(
    p: Description,
    q: Description,
    surfaces: tuple[Surface, Surface],
    *,
    solver: Solver = "consensus",
    hypotheses: int = 12,
    refined: int = 4,
    refine: bool = True,
    seed: int = 0,
    prior: PosePrior | None = None,
    near: Sequence[Candidate] = (),
    structural: Floats | None = None,
    timer: StepTimer | None = None,
) -> Candidates:
    """Propose poses of p in q by matches and structure, verify them on the surfaces, and refine the best.

    Args:
        p, q: descriptions of the source and the target.
        surfaces: surfaces of the source and the target, both on one device.
        solver: pose solver, "consensus" or "ransac".
        hypotheses: number of hypotheses that the solver proposes.
        refined: number of hypotheses that become candidates, those that fit the surfaces best; at most as
            many structural poses do, too.
        refine: False verifies the candidates without refining them.
        seed: seed of the solver "ransac".
        prior: what is known about the pose; candidates that contradict it are dropped.
        near: candidates from a search around a guess, which matches did not propose.
        structural: poses (K, 4, 4) that `structural_poses` found before; None searches them.
        timer: receives the steps "match and solve", "structure" and "verify and refine".

    Raises:
        InputError: the surfaces are on two devices.
    """
    timer = timer or StepTimer()
    with timer("match and solve"):
        proposals = propose(p, q, solver=solver, hypotheses=hypotheses, seed=seed, prior=prior)
        proposed, pairs = proposals.hypotheses, proposals.pairs
    if structural is None:
        structural = structural_poses(p, q, surfaces, prior, timer)
    with timer("verify and refine"):
        candidates = verify_hypotheses(
            proposed,
            surfaces,
            _images(p, q),
            len(pairs),
            structural=[unmatched(T) for T in structural],
            refined=refined,
            refine=refine,
            prior=prior,
        )
        candidates = [
            c if len(c.hypothesis.inliers) else c.with_matches(proposals) for c in (*candidates, *near)
        ]
        candidates = distinct_candidates(candidates)
        return Candidates(with_probabilities(candidates), pairs)


def structural_poses(
    p: Description,
    q: Description,
    surfaces: tuple[Surface, Surface],
    prior: PosePrior | None = None,
    timer: StepTimer | None = None,
) -> Floats:
    """Search poses (K, 4, 4) at which the structures of p and q coincide; see `search_structure`."""
    with (timer or StepTimer())("structure"):
        allow = prior.allows if prior else None
        return search_structure(*surfaces, _images(p, q), INDOOR_RESOLUTION, count=_STRUCTURAL, allow=allow)


def unmatched(T_target_source: Floats) -> Hypothesis:
    """Make a hypothesis of a pose (4, 4) that no match proposed; see `Candidate.with_matches`."""
    return Hypothesis(torch.from_numpy(T_target_source), torch.zeros(0, dtype=torch.bool), 0.0)


def _images(p: Description, q: Description) -> Images:
    return getattr(p, "range_image", None), getattr(q, "range_image", None)


def verify_hypotheses(
    proposed: Sequence[Hypothesis],
    surfaces: tuple[Surface, Surface],
    images: Images,
    matches: int,
    *,
    structural: Sequence[Hypothesis] = (),
    refined: int = 4,
    refine: bool = True,
    prior: PosePrior | None = None,
) -> list[Candidate]:
    """Rank hypotheses by surfaces and free space, and refine the best; return those that differ.

    As many structural poses are refined, where they are not much worse. Candidates that contradict the prior
    are dropped.
    """
    count, proposed = len(proposed), [*proposed, *structural]
    poses = np.reshape([h.T_target_source.numpy() for h in proposed], (-1, 4, 4))
    distance = 2 * OVERLAP_DISTANCE * INDOOR_RESOLUTION  # hypotheses are off by some centimetres
    scores = verify(*surfaces, poses, distance, coarse=True)
    contradictions = _free_space(surfaces, images, poses, refined=False)
    ranks = [score_hypothesis(s) * _agreement(free) for s, free in zip(scores, contradictions, strict=True)]
    order = sorted(range(len(proposed)), key=lambda k: -ranks[k])
    if prior is not None:
        order = [k for k in order if prior.allows_overlap(scores[k], refined=False)]
    least = _WORTH_REFINING * max(ranks, default=0.0)
    chosen = [k for k in order if k < count][:refined]
    others = [k for k in order if k >= count and ranks[k] >= least]
    order = chosen + [k for k in others if not _is_near(poses[k], poses[chosen], surfaces[0])][:refined]
    improve = refine_poses if refine else evaluate
    results = improve(*surfaces, poses[order], INDOOR_RESOLUTION)
    if prior is not None:
        order, results = _agreeing(prior, order, results, surfaces, refined=refine)
    refined_poses = np.reshape([result.T_target_source for result in results], (-1, 4, 4))
    seen = _free_space(surfaces, images, refined_poses, refined=refine)
    dense = _free_space(surfaces, images, refined_poses, refined=refine, dense=True)
    candidates = [
        Candidate(proposed[k], result, matches, surfaces, free, dense_free)
        for k, result, free, dense_free in zip(order, results, seen, dense, strict=True)
    ]
    return distinct_candidates(candidates)


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


def _is_near(T: Floats, others: Floats, source: Surface) -> bool:
    """Return whether one of the other poses (H, 4, 4) is the same, within 10 resolutions and 5°."""
    middle = np.append(source.points.mean(0).tolist(), 1.0)
    distance = np.linalg.norm((others - T) @ middle, axis=1)
    cosine = (np.einsum("hij,ij->h", others[:, :3, :3], T[:3, :3]) - 1) / 2
    return bool(((distance < _SAME_DISTANCE * INDOOR_RESOLUTION) & (cosine > _SAME_COSINE)).any())


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


def with_probabilities(candidates: list[Candidate]) -> list[Candidate]:
    """Compute the probabilities of all candidates of a pair; most probable first."""
    probabilities = confidences([candidate.evidence for candidate in candidates])
    ranked = []
    for k in np.argsort(-probabilities, kind="stable"):
        rival = float(np.delete(probabilities, k).max(initial=0.0))
        ranked.append(replace(candidates[k], probability=float(probabilities[k]), rival=rival))
    return ranked


def distinct_candidates(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Keep the candidates that differ from all better ones; best first."""
    kept: list[Candidate] = []
    for candidate in sorted(candidates, key=lambda c: -score_candidate(c.refined.score)):
        if all(better.differs(candidate) for better in kept):
            kept.append(candidate)
    return kept
