"""Motions that matches propose, judged by the clouds themselves. All lengths in metres of the model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

from wsdesc.alignment.confidence import Evidence, Rival, confidence
from wsdesc.alignment.consensus import consensus
from wsdesc.alignment.hypotheses import Hypothesis, ransac_hypotheses
from wsdesc.alignment.observability import degeneracy
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
from wsdesc.descriptor.description import Description
from wsdesc.matching.mutual import mutual, one_sided_matches
from wsdesc.registration.options import Solver

AnySurface = Surface | DeviceSurface  # both of a pair are of one kind

_THRESHOLD = {"consensus": 0.075, "ransac": 0.05}  # between matched keypoints
_SAME_POSE, _SAME_COSINE = 10.0, 0.996  # resolutions and 5°: closer poses are not each other's rivals
_APART = "one of the surfaces is on a GPU and the other is not: bring both to one device"
_ONE_WAY = 0.5  # weight of a match that is not mutual


class Candidate(NamedTuple):
    """A motion that matches proposed, refined on the clouds."""

    hypothesis: Hypothesis
    refined: Refined

    def differs(self, other: Candidate) -> bool:
        """Whether this is not one and the same pose that refinement came to from two sides."""
        a, b = self.refined, other.refined
        T_a_b = a.T_target_source @ inverse(b.T_target_source)  # of the target's frame onto itself
        centre = a.information.centre
        moved = np.linalg.norm(T_a_b[:3, :3] @ centre + T_a_b[:3, 3] - centre)
        cosine = (np.trace(T_a_b[:3, :3]) - 1) / 2
        return bool(moved > _SAME_POSE * INDOOR_RESOLUTION or cosine < _SAME_COSINE)

    def evidence(self, matches: int, others: Sequence[Candidate] = ()) -> Evidence:
        """What speaks for it, among so many matches and beside other candidates."""
        return Evidence.of(
            self.refined.agreement,
            degeneracy(self.refined.information, REACH * INDOOR_RESOLUTION),
            inliers=int(self.hypothesis.inliers.sum()),
            matches=matches,
            score=self.hypothesis.score,
            rivals=[
                Rival(c.refined.agreement, c.hypothesis.score, confidence(c.evidence(matches)))
                for c in others
                if self.differs(c)
            ],
        )


def propose(
    p: Description, q: Description, *, solver: Solver = "consensus", hypotheses: int = 12, seed: int = 0
) -> tuple[list[Hypothesis], int]:
    """Motions of p into q that matches of descriptors agree on, best first, and the number of matches."""
    if solver == "ransac":
        pairs = mutual(p.descriptors, q.descriptors)
        ends = (p.keypoints[pairs[:, 0]], q.keypoints[pairs[:, 1]])
        found = ransac_hypotheses(*ends, threshold=_THRESHOLD[solver], hypotheses=hypotheses, seed=seed)
        return found, len(pairs)
    pairs, both = one_sided_matches(p.descriptors, q.descriptors)
    ends = (p.keypoints[pairs[:, 0]], q.keypoints[pairs[:, 1]])
    weights = torch.where(both, 1.0, _ONE_WAY)
    return consensus(*ends, weights=weights, threshold=_THRESHOLD[solver], hypotheses=hypotheses), len(pairs)


def judge(
    proposed: list[Hypothesis],
    source: AnySurface,
    target: AnySurface,
    *,
    finalists: int = 4,
    refined: bool = True,
) -> list[Candidate]:
    """The motions that agree best with the clouds, so many of them refined; the most plausible first."""
    rough = 2 * REACH * INDOOR_RESOLUTION  # before refinement poses are off by some centimetres
    poses = [h.T_target_source.numpy() for h in proposed]
    worths = [quality(a) for a in _agreements(source, target, poses, rough)]
    order = sorted(range(len(proposed)), key=lambda k: -worths[k])[:finalists]
    ends = _refined(source, target, [poses[k] for k in order], refined)
    candidates = [Candidate(proposed[k], end) for k, end in zip(order, ends, strict=True)]
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
        if refined:  # what all refinements share is made once
            run_each(lambda surface: (surface.gicp, surface.gicp_sample), (source, target))
        return run_each(lambda T: improve(source, target, T, resolution=INDOOR_RESOLUTION), poses)
    if isinstance(source, DeviceSurface) and isinstance(target, DeviceSurface):
        stack = np.reshape(poses, (-1, 4, 4))
        return refine_all(source, target, stack, resolution=INDOOR_RESOLUTION, refined=refined)
    raise InputError(_APART)


def different(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Those that differ from all before them."""
    found: list[Candidate] = []
    for candidate in candidates:
        if all(other.differs(candidate) for other in found):
            found.append(candidate)
    return found
