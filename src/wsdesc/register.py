"""Register two scans: the whole way from files to a pose and how far to trust it.

read → thin → describe → match → solve → verify on the clouds → refine → judge. If the judge is not convinced,
the scans are described at more keypoints and it begins again from there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field

from wsdesc.align.confidence import Evidence, confidence
from wsdesc.align.consensus import consensus
from wsdesc.align.hypotheses import Hypothesis, ransac_hypotheses
from wsdesc.align.observability import Freedom, Information, freedom
from wsdesc.align.refine import REACH, Refined, refine, unrefined
from wsdesc.align.surface import Surface, inverse
from wsdesc.align.verify import agreement, quality
from wsdesc.callable import make_callable
from wsdesc.cloud.clean import Cleaned, with_offsets
from wsdesc.cloud.units import INDOOR_RESOLUTION, extent, measure
from wsdesc.describe.description import (
    DEFAULT_MODEL,
    Advance,
    Description,
    cleaned_points,
    load_model,
    prepared,
)
from wsdesc.errors import InputError
from wsdesc.match.hard import either, mutual
from wsdesc.notebook import InNotebook
from wsdesc.options import Options

Pose = NDArray[np.float64]  # (4, 4)
Watch = Callable[[str, int], AbstractContextManager[Advance]]  # name of a step, and its keypoints if any

SUCCESS = 0.9  # the confidence from which on a pose is called a success
_OTHER_UNIT = 30.0  # times larger than the other cloud: they cannot be in the same unit
_THRESHOLD = {"consensus": 0.075, "ransac": 0.05}  # metres of the model, between matched keypoints
_SAME_POSE, _SAME_COSINE = 10.0, 0.996  # resolutions and 5°: closer poses are not each other's rivals
_ONE_WAY = 0.5  # weight of a match that is not mutual


class RegisterOptions(Options):
    """How two scans are registered. Nothing of it has to be chosen."""

    model: str = DEFAULT_MODEL  # weights by name or path
    resolution: float | None = Field(None, gt=0)  # in the scans' unit; None: found from both
    keypoints: tuple[int, ...] = (1200, 4000)  # of each scan; the next number if the first does not convince
    solver: Literal["consensus", "ransac"] = "consensus"
    hypotheses: int = Field(12, ge=1)  # motions that the matches propose,
    finalists: int = Field(4, ge=1)  # of which so many, the best on the clouds, are refined
    refine: bool = True
    device: str = "auto"
    seed: int = Field(0, ge=0)


@dataclass(frozen=True, eq=False)
class Registration(InNotebook):
    """The pose of one scan in the frame of another, and what speaks for it."""

    T_target_source: Pose  # (4, 4), in the files' own unit and coordinates
    success: bool  # the confidence reaches `SUCCESS`
    confidence: float  # 0 … 1, the probability that the pose is right
    overlap: float  # share of the source that lies on the target
    rmse: float  # of that part, point to plane, in the files' unit; infinite without any
    inliers: int  # matches that agree with the pose
    matches: int
    resolution: float  # in the files' unit
    warnings: list[str] = field(default_factory=list)
    timings: dict[str, float] = field(default_factory=dict)  # seconds by step
    evidence: Evidence | None = None  # what the confidence was computed from
    information: Information | None = None  # how firmly the overlap holds the pose, in metres of the model
    described: tuple[Description, Description] | None = field(default=None, repr=False)  # both scans, thinned


class Candidate(NamedTuple):
    """A motion that matches proposed, judged on the clouds; in metres of the model."""

    hypothesis: Hypothesis
    refined: Refined


def register(source: Any, target: Any, *, watch: Watch | None = None, **options: Any) -> Registration:
    """Find the rigid motion that takes `source` to where it belongs in `target`.

    Scans are paths of files, `Cloud`s, or points (N, 3), in any common unit and any pose. Options are the
    fields of `RegisterOptions`, by name. Same scans, options and device: same bits; swapped scans: the
    inverse, within the tolerance of the refinement.
    `watch` is entered around each step; progress bars hang there.
    """
    o = RegisterOptions.read(options)
    clock = _Clock(watch or (lambda name, total: nullcontext(lambda done: None)))
    with clock("read"):
        clouds = (cleaned_points(source), cleaned_points(target))
    with clock("thin"):
        strange = different_units(*clouds)
        resolution = o.resolution or measure(*(cloud.points for cloud in clouds)).resolution
        if strange and o.resolution is None:
            return _nothing(resolution, [strange], clock.seconds)
        model, name = load_model(o.model, o.device)
        p, q = (prepared(cloud, resolution, name, o.seed, max(o.keypoints)) for cloud in clouds)
    with clock("surfaces"):
        surfaces = (Surface.of(p.points.numpy()), Surface.of(q.points.numpy()))
    for count in o.keypoints:
        with clock("describe", _new(p, count) + _new(q, count)) as advance:
            p, q = p.more(model, count, advance), q.more(model, count, advance)
        result = register_described(p, q, o, surfaces, clock)
        if result.success or max(len(p.descriptors), len(q.descriptors)) < count:
            break
    return result


def register_described(
    p: Description,
    q: Description,
    options: RegisterOptions | None = None,
    surfaces: tuple[Surface, Surface] | None = None,
    clock: _Clock | None = None,
) -> Registration:
    """Register two scans that are described already: p the source, q the target."""
    o = options or RegisterOptions()
    clock = clock or _Clock(lambda name, total: nullcontext(lambda done: None))
    check_comparable(p, q)
    source, target = surfaces or (Surface.of(p.points.numpy()), Surface.of(q.points.numpy()))
    with clock("match and solve"):
        proposed, matches = propose(p, q, o)
    with clock("verify and refine"):
        candidates = judge(proposed, matches, source, target, o)
    if not candidates:
        return _nothing(p.resolution, ["no motion brings the scans together"], clock.seconds, matches)
    best = candidates[0]
    free = freedom(best.refined.information, REACH * INDOOR_RESOLUTION)
    evidence = _evidence(best, matches, [c for c in candidates[1:] if _differ(best.refined, c.refined)])
    sure = 0.0 if free.kind else confidence(evidence)
    T = best.refined.T_target_source.copy()
    T[:3, 3] *= p.unit
    return Registration(
        T_target_source=with_offsets(T, p.offset, q.offset),
        success=sure >= SUCCESS,
        confidence=sure,
        overlap=best.refined.agreement.overlap_source,
        rmse=best.refined.rmse * p.unit,
        inliers=int(best.hypothesis.inliers.sum()),
        matches=matches,
        resolution=p.resolution,
        warnings=_warnings(free, evidence),
        timings=clock.seconds,
        evidence=evidence,
        information=best.refined.information,
        described=(p, q),
    )


def propose(p: Description, q: Description, o: RegisterOptions) -> tuple[list[Hypothesis], int]:
    """Motions that matches of descriptors agree on, best first, and how many matches there were."""
    if o.solver == "ransac":
        pairs = mutual(p.descriptors, q.descriptors)
        ends = (p.places[pairs[:, 0]], q.places[pairs[:, 1]])
        found = ransac_hypotheses(*ends, threshold=_THRESHOLD["ransac"], hypotheses=o.hypotheses, seed=o.seed)
        return found, len(pairs)
    pairs, both = either(p.descriptors, q.descriptors)
    ends = (p.places[pairs[:, 0]], q.places[pairs[:, 1]])
    weights = torch.where(both, 1.0, _ONE_WAY)
    found = consensus(*ends, weights=weights, threshold=_THRESHOLD["consensus"], hypotheses=o.hypotheses)
    return found, len(pairs)


def judge(
    proposed: list[Hypothesis], matches: int, source: Surface, target: Surface, o: RegisterOptions
) -> list[Candidate]:
    """The motions that agree best with the clouds themselves, refined, the most probable first."""
    rough = 2 * REACH * INDOOR_RESOLUTION  # before refinement poses are off by some centimetres
    worth = [quality(agreement(source, target, h.T_target_source.numpy(), rough)) for h in proposed]
    order = sorted(range(len(proposed)), key=lambda k: -worth[k])[: o.finalists]
    improve = refine if o.refine else unrefined
    candidates = [
        Candidate(h, improve(source, target, h.T_target_source.numpy(), resolution=INDOOR_RESOLUTION))
        for h in (proposed[k] for k in order)
    ]
    return sorted(candidates, key=lambda c: -confidence(_evidence(c, matches)))


def _evidence(candidate: Candidate, matches: int, rivals: Sequence[Candidate] = ()) -> Evidence:
    refined, hypothesis = candidate.refined, candidate.hypothesis
    return Evidence.of(
        refined.agreement,
        freedom(refined.information, REACH * INDOOR_RESOLUTION),
        inliers=int(hypothesis.inliers.sum()),
        matches=matches,
        score=hypothesis.score,
        rivals=[(c.refined.agreement, c.hypothesis.score) for c in rivals],
    )


def _warnings(free: Freedom, evidence: Evidence) -> list[str]:
    found = [free.warning] if free.warning else []
    if evidence.ambiguous:
        found.append(
            "another pose fits the scans nearly as well: they may show something symmetric, or nothing common"
        )
    return found


def _differ(a: Refined, b: Refined) -> bool:
    """Whether two poses are not one and the same that refinement came to from two sides."""
    T_a_b = a.T_target_source @ inverse(b.T_target_source)  # of the target's frame onto itself
    centre = a.information.centre
    moved = np.linalg.norm(T_a_b[:3, :3] @ centre + T_a_b[:3, 3] - centre)
    cosine = (np.trace(T_a_b[:3, :3]) - 1) / 2
    return bool(moved > _SAME_POSE * INDOOR_RESOLUTION or cosine < _SAME_COSINE)


def check_comparable(p: Description, q: Description) -> None:
    """Descriptions can be matched only if they were made alike."""
    if p.model != q.model or p.descriptors.shape[1:] != q.descriptors.shape[1:]:
        raise InputError(f"the scans were described by different models, {p.model} and {q.model}")
    if abs(p.resolution / q.resolution - 1) > 1e-6:
        raise InputError(
            f"the scans were described at different resolutions, {p.resolution:.4g} and {q.resolution:.4g}: "
            "describe both at one, with --resolution"
        )


def different_units(source: Cleaned, target: Cleaned) -> str | None:
    """What to tell a user whose clouds cannot be in the same unit; None if they can."""
    sizes = [extent(cloud.points) for cloud in (source, target)]
    factor = max(sizes) / max(min(sizes), 1e-300)
    if factor < _OTHER_UNIT:
        return None
    return (
        f"the scans seem to be in different units: the source extends over {sizes[0]:.3g}, the target over "
        f"{sizes[1]:.3g}. Scale one of them, or say --resolution if the sizes are right"
    )


class _Clock:
    """Steps that are watched, and their seconds."""

    def __init__(self, watch: Watch) -> None:
        self.watch = watch
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, name: str, total: int = 0) -> Iterator[Advance]:
        start = perf_counter()
        with self.watch(name, total) as advance:
            yield advance
        self.seconds[name] = self.seconds.get(name, 0.0) + perf_counter() - start


def _new(description: Description, count: int) -> int:
    return max(0, min(count, len(description.order)) - len(description.descriptors))


def _nothing(
    resolution: float, warnings: list[str], timings: dict[str, float], matches: int = 0
) -> Registration:
    return Registration(np.eye(4), False, 0.0, 0.0, float("inf"), 0, matches, resolution, warnings, timings)


make_callable(__name__)
