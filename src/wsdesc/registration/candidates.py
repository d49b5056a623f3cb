"""Candidate poses of a described pair. All lengths are in metres of the model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch

from wsdesc.alignment.confidence import Evidence, Rival, confidence
from wsdesc.alignment.consensus import consensus
from wsdesc.alignment.hypotheses import Hypothesis, ransac_hypotheses
from wsdesc.alignment.observability import Degeneracy, degeneracy
from wsdesc.alignment.refine import REACH, Refined, evaluate_pose, refine
from wsdesc.alignment.refine_cuda import refine_all
from wsdesc.alignment.surface import Surface
from wsdesc.alignment.surface_cuda import DeviceSurface
from wsdesc.alignment.verify import Agreement, agreement, plausibility, quality
from wsdesc.alignment.verify_cuda import agreements
from wsdesc.cloud.units import INDOOR_RESOLUTION
from wsdesc.core.errors import InputError
from wsdesc.core.geometry import Floats, inverse
from wsdesc.core.kernels import run_each
from wsdesc.core.progress import StepTimer
from wsdesc.descriptor.description import Description
from wsdesc.matching.mutual import mutual_matches, one_sided_matches
from wsdesc.registration.options import Solver

AnySurface = Surface | DeviceSurface  # both of a pair are of one kind

_THRESHOLD = {"consensus": 0.075, "ransac": 0.05}  # between matched keypoints
_SAME_POSE, _SAME_COSINE = 10.0, 0.996  # resolutions and 5°: closer poses are not each other's rivals
_APART = "one of the surfaces is on a GPU and the other is not: bring both to one device"
_ONE_WAY = 0.5  # weight of a match that is not mutual


@dataclass(frozen=True, eq=False)
class Candidate:
    """A pose of a pair after verification and refinement, with its confidence.

    The confidence depends on the other candidates of the pair: at most one of them is right.
    """

    hypothesis: Hypothesis
    refined: Refined
    matches: int  # of the pair, inliers or not
    others: tuple[Candidate, ...] = field(default=(), repr=False)  # all candidates of the pair

    @cached_property
    def degeneracy(self) -> Degeneracy:
        """Directions in which the overlap does not determine the pose."""
        return degeneracy(self.refined.information, REACH * INDOOR_RESOLUTION)

    @cached_property
    def evidence(self) -> Evidence:
        """Figures from which the confidence is computed."""
        return self._evidence([c for c in self.others if self.differs(c)])

    @cached_property
    def evidence_alone(self) -> Evidence:
        """The evidence as if the pair had no other candidate."""
        return self._evidence([])

    @cached_property
    def confidence(self) -> float:
        """Probability that the pose is right; 0 where the overlap does not determine it."""
        return 0.0 if self.degeneracy.kind else confidence(self.evidence)

    def differs(self, other: Candidate) -> bool:
        """True if the two poses differ by more than 10 resolutions or 5° at the overlap of this one."""
        a, b = self.refined, other.refined
        T_a_b = a.T_target_source @ inverse(b.T_target_source)  # within the target's frame
        centre = a.information.centre
        moved = np.linalg.norm(T_a_b[:3, :3] @ centre + T_a_b[:3, 3] - centre)
        cosine = (np.trace(T_a_b[:3, :3]) - 1) / 2
        return bool(moved > _SAME_POSE * INDOOR_RESOLUTION or cosine < _SAME_COSINE)

    def _evidence(self, others: Sequence[Candidate]) -> Evidence:
        return Evidence.of(
            self.refined.agreement,
            self.degeneracy,
            inliers=int(self.hypothesis.inliers.sum()),
            matches=self.matches,
            score=self.hypothesis.score,
            rivals=[
                Rival(c.refined.agreement, c.hypothesis.score, confidence(c.evidence_alone)) for c in others
            ],
        )


class Candidates(NamedTuple):
    """Candidates of a pair, best first, and the number of matches that proposed them."""

    ranked: list[Candidate]
    matches: int


def find_candidates(
    p: Description,
    q: Description,
    surfaces: tuple[AnySurface, AnySurface],
    *,
    solver: Solver = "consensus",
    hypotheses: int = 12,
    refined: int = 4,
    refine: bool = True,
    distinct: bool = False,
    seed: int = 0,
    timer: StepTimer | None = None,
) -> Candidates:
    """Propose poses of p in q by matches, verify them on the surfaces, and refine the best.

    Args:
        p, q: the described source and target.
        surfaces: of the source and of the target, both on one device.
        solver: pose solver of the matches.
        hypotheses: most poses that the matches propose.
        refined: most hypotheses that become candidates, the best on the surfaces.
        refine: False verifies the candidates without refining them.
        distinct: drop a candidate whose pose equals that of a better one before confidences are computed.
        seed: of the solver "ransac".
        timer: receives the steps "match and solve" and "verify and refine".
    """
    timer = timer or StepTimer()
    with timer("match and solve"):
        proposed, matches = propose(p, q, solver=solver, hypotheses=hypotheses, seed=seed)
    with timer("verify and refine"):
        ranked = verify_hypotheses(proposed, surfaces, matches, refined=refined, refine=refine)
    if distinct:
        ranked = _distinct(ranked)
    return Candidates([replace(candidate, others=tuple(ranked)) for candidate in ranked], matches)


def propose(
    p: Description, q: Description, *, solver: Solver = "consensus", hypotheses: int = 12, seed: int = 0
) -> tuple[list[Hypothesis], int]:
    """Motions of p into q that matches of descriptors agree on, best first, and the number of matches."""
    if solver == "ransac":
        pairs = mutual_matches(p.descriptors, q.descriptors)
        ends = (p.keypoints[pairs[:, 0]], q.keypoints[pairs[:, 1]])
        found = ransac_hypotheses(*ends, threshold=_THRESHOLD[solver], hypotheses=hypotheses, seed=seed)
        return found, len(pairs)
    pairs, both = one_sided_matches(p.descriptors, q.descriptors)
    ends = (p.keypoints[pairs[:, 0]], q.keypoints[pairs[:, 1]])
    weights = torch.where(both, 1.0, _ONE_WAY)
    return consensus(*ends, weights=weights, threshold=_THRESHOLD[solver], hypotheses=hypotheses), len(pairs)


def verify_hypotheses(
    proposed: list[Hypothesis],
    surfaces: tuple[AnySurface, AnySurface],
    matches: int,
    *,
    refined: int = 4,
    refine: bool = True,
) -> list[Candidate]:
    """Rank hypotheses by the surfaces, refine the best of them, and rank these again; best first."""
    source, target = surfaces
    rough = 2 * REACH * INDOOR_RESOLUTION  # hypotheses are off by some centimetres
    poses = [h.T_target_source.numpy() for h in proposed]
    worths = [quality(a) for a in _agreements(source, target, poses, rough)]
    order = sorted(range(len(proposed)), key=lambda k: -worths[k])[:refined]
    ends = _refined(source, target, [poses[k] for k in order], refine)
    candidates = [Candidate(proposed[k], end, matches) for k, end in zip(order, ends, strict=True)]
    return sorted(candidates, key=lambda c: -plausibility(c.refined.agreement))


def _agreements(source: AnySurface, target: AnySurface, poses: list[Floats], reach: float) -> list[Agreement]:
    """One after the other on threads, or all at once where the surfaces are."""
    if isinstance(source, Surface) and isinstance(target, Surface):
        return run_each(lambda T: agreement(source, target, T, reach), poses)
    if isinstance(source, DeviceSurface) and isinstance(target, DeviceSurface):
        return agreements(source, target, np.reshape(poses, (-1, 4, 4)), reach)
    raise InputError(_APART)


def _refined(source: AnySurface, target: AnySurface, poses: list[Floats], refined: bool) -> list[Refined]:
    if isinstance(source, Surface) and isinstance(target, Surface):
        improve = refine if refined else evaluate_pose
        if refined:  # all refinements share these
            run_each(lambda surface: (surface.gicp, surface.gicp_sample), (source, target))
        return run_each(lambda T: improve(source, target, T, resolution=INDOOR_RESOLUTION), poses)
    if isinstance(source, DeviceSurface) and isinstance(target, DeviceSurface):
        stack = np.reshape(poses, (-1, 4, 4))
        return refine_all(source, target, stack, resolution=INDOOR_RESOLUTION, refined=refined)
    raise InputError(_APART)


def _distinct(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Keep the candidates that differ from all better ones."""
    kept: list[Candidate] = []
    for candidate in candidates:
        if all(better.differs(candidate) for better in kept):
            kept.append(candidate)
    return kept
