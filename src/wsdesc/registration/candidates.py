"""Candidate poses of a described pair. All lengths are in metres of the model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from wsdesc.alignment.prior import PosePrior
from wsdesc.alignment.structure import search_structure
from wsdesc.alignment.surface import Surface
from wsdesc.cloud.units import INDOOR_RESOLUTION
from wsdesc.core.geometry import Floats
from wsdesc.core.progress import StepTimer
from wsdesc.descriptor.description import Description
from wsdesc.registration.candidate import Candidate, distinct_candidates, with_probabilities
from wsdesc.registration.matched import MatchedKeypoints
from wsdesc.registration.options import Solver
from wsdesc.registration.propose import propose
from wsdesc.registration.verification import Images, unmatched, verify_hypotheses

_STRUCTURAL = 8  # poses of the structure search


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
    structural: Callable[[], Floats] | None = None,
    timer: StepTimer | None = None,
) -> Candidates:
    """Propose poses of p in q by matches and structure, verify them on the surfaces, and refine the best.

    Args:
        p, q: Descriptions of the source and the target.
        surfaces: Surfaces of the source and the target, both on one device.
        solver: Pose solver, "consensus" or "ransac".
        hypotheses: Number of hypotheses that the solver proposes.
        refined: Number of hypotheses that become candidates, those that fit the surfaces best; at most as
            many structural poses do, too.
        refine: False verifies the candidates without refining them.
        seed: Seed of the solver "ransac".
        prior: What is known about the pose; candidates that contradict it are dropped.
        near: Candidates from a search around a guess, which matches did not propose.
        structural: Returns poses (K, 4, 4) of the structure search; None for `structural_poses`. It is called
            unless matches settle the pose.
        timer: Receives the steps "match and solve", "structure" and "verify and refine".

    Raises:
        InputError: The surfaces are on two devices.
    """
    timer = timer or StepTimer()
    with timer("match and solve"):
        proposals = propose(p, q, solver=solver, hypotheses=hypotheses, seed=seed, prior=prior)
        proposed, pairs = proposals.hypotheses, proposals.pairs
    options: dict[str, Any] = {"refined": refined, "refine": refine, "prior": prior}
    with timer("verify and refine"):
        candidates = verify_hypotheses(proposed, surfaces, _images(p, q), len(pairs), **options)
        candidates = distinct_candidates([*candidates, *(c.with_matches(proposals) for c in near)])
        odds = prior.log_odds if prior else 0.0
        ranked = with_probabilities(candidates, odds)
    if ranked and ranked[0].settled:
        return Candidates(ranked, pairs)
    poses = structural() if structural else structural_poses(p, q, surfaces, prior, timer)
    with timer("verify and refine"):
        others = [unmatched(T) for T in poses]
        added = verify_hypotheses(others, surfaces, _images(p, q), 0, beside=candidates, **options)
        candidates = distinct_candidates([*candidates, *(c.with_matches(proposals) for c in added)])
        return Candidates(with_probabilities(candidates, odds), pairs)


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


def _images(p: Description, q: Description) -> Images:
    return p.range_image, q.range_image
