"""A candidate: a pose of a pair after verification and refinement. All lengths are in metres of the model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from wsdesc.alignment.confidence import confidences
from wsdesc.alignment.evidence import Evidence
from wsdesc.alignment.free_space import FreeSpace
from wsdesc.alignment.hypotheses import Hypothesis
from wsdesc.alignment.information import Degeneracy, find_degeneracy
from wsdesc.alignment.patch_gaps import PatchGap, measure_patch_gap
from wsdesc.alignment.refine import OVERLAP_DISTANCE, RefinedPose
from wsdesc.alignment.scale import RelativeScale, estimate_scale
from wsdesc.alignment.surface import Surface
from wsdesc.alignment.verify import score_candidate
from wsdesc.cloud.units import INDOOR_RESOLUTION
from wsdesc.core.geometry import Floats, inverse
from wsdesc.registration.propose import Proposals
from wsdesc.registration.result import SUCCESS

SAME_DISTANCE, SAME_COSINE = 10.0, 0.996  # resolutions and 5°: closer poses are the same
SCALE_CHECKED = 0.3  # the scale of candidates with a larger probability is estimated
AMBIGUOUS = 0.05  # probability from which on another candidate is plausible
_PLAUSIBLE = 0.02  # probability from which on the patch gap of a candidate is compared with those of others
_MUCH_OVERLAP = 0.5  # of the scan where it is smaller: other poses of such a success need not be searched


@dataclass(frozen=True, eq=False)
class Candidate:
    """A pose of a pair after verification and refinement, with its probability."""

    hypothesis: Hypothesis
    refined: RefinedPose
    matches: int  # of the pair, inliers or not
    surfaces: tuple[Surface, Surface] = field(repr=False)  # of the source and the target
    free_space: FreeSpace | None = None  # of a sample of the points; None if neither viewpoint is known
    dense_free_space: FreeSpace | None = None  # of all points
    rank: float = 0.0  # of the hypothesis, before refinement
    probability: float = 0.0  # that this one of the pair's candidates is right, by the evidence of all
    rival: float = 0.0  # largest probability of another candidate
    patch_gap: PatchGap | None = None  # measured where several candidates are plausible

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
            patch_gap=self.patch_gap,
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
        return estimate_scale(*self.surfaces, self.refined.T_target_source, INDOOR_RESOLUTION)

    def measure_patch_gap(self) -> PatchGap | None:
        """Measure the gaps between the patches of both surfaces; None if too few patches overlap."""
        return self.patch_gap or measure_patch_gap(*self.surfaces, self.refined.T_target_source)

    def with_matches(self, proposals: Proposals) -> Candidate:
        """Count the inliers at the refined pose, for a candidate that no match proposed."""
        inliers, votes = proposals.count_inliers(self.refined.T_target_source)
        hypothesis = self.hypothesis._replace(inliers=inliers, votes=votes)
        return replace(self, hypothesis=hypothesis, matches=len(inliers))

    @property
    def settled(self) -> bool:
        """True for a success with much overlap; no structural pose has changed one."""
        return self.confidence >= SUCCESS and self.evidence.overlap_min >= _MUCH_OVERLAP

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
        return bool(distance > SAME_DISTANCE * INDOOR_RESOLUTION or cosine < SAME_COSINE)


def with_probabilities(candidates: list[Candidate], prior: float = 0.0) -> list[Candidate]:
    """Compute the probabilities of all candidates of a pair; most probable first.

    Where several are plausible, their patch gaps are compared. `prior` are the log odds of `PosePrior`.
    """
    without_gaps = [replace(candidate, patch_gap=None).evidence for candidate in candidates]
    probabilities = confidences(without_gaps, prior)
    plausible = probabilities >= _PLAUSIBLE
    if plausible.sum() > 1:
        candidates = [
            replace(candidate, patch_gap=candidate.measure_patch_gap() if is_plausible else None)
            for candidate, is_plausible in zip(candidates, plausible, strict=True)
        ]
        probabilities = confidences([candidate.evidence for candidate in candidates], prior)
    return ranked(candidates, probabilities)


def ranked(candidates: Sequence[Candidate], probabilities: Floats) -> list[Candidate]:
    """Give all candidates of a pair their probabilities (K,); most probable first."""
    return [
        replace(
            candidates[k],
            probability=float(probabilities[k]),
            rival=float(np.delete(probabilities, k).max(initial=0.0)),
        )
        for k in np.argsort(-probabilities, kind="stable")
    ]


def distinct_candidates(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Keep the candidates that differ from all better ones; best first."""
    kept: list[Candidate] = []
    for candidate in sorted(candidates, key=lambda c: -score_candidate(c.refined.score)):
        if all(better.differs(candidate) for better in kept):
            kept.append(candidate)
    return kept
