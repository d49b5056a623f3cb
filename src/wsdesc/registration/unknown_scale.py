"""Register two scans whose relative scale is unknown.

search scales → register at each plausible one → compare the results → check that the overlap determines the
scale. The registration at one scale is an ordinary one: the source is multiplied by a factor first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from wsdesc.alignment.information import find_degeneracy
from wsdesc.alignment.refine import OVERLAP_DISTANCE
from wsdesc.alignment.surface import make_surfaces
from wsdesc.cloud.clean import Cleaned
from wsdesc.cloud.units import INDOOR_RESOLUTION
from wsdesc.core.devices import choose_device
from wsdesc.core.errors import InputError
from wsdesc.core.progress import StepTimer
from wsdesc.descriptor.describe import load_model
from wsdesc.descriptor.description import Description
from wsdesc.descriptor.model import WSDesc
from wsdesc.descriptor.preparation import prepare_scans
from wsdesc.registration.advice import no_scale_found, scale_not_determined, scales_compete
from wsdesc.registration.candidate import AMBIGUOUS
from wsdesc.registration.options import RegisterOptions
from wsdesc.registration.prior import make_prior
from wsdesc.registration.result import PLAUSIBLE, SUCCESS, AlternativePose, Registration
from wsdesc.registration.rounds import failed_result, register_round
from wsdesc.registration.scale_search import SAME_FACTOR, ScaleHypothesis, Sizes, search_scales
from wsdesc.registration.schedule import register_prepared

MAX_SCALES = 3  # scales that are registered
COMPETING = 0.4  # score, relative to the best, from which on another scale is registered too
MAX_DEVIATION = 0.05  # relative standard deviation above which the overlap does not determine the scale
EXACT = 0.003  # change of the factor, relative, that needs no further round
CORRECTIONS = 2  # rounds at most that correct the factor


def register_unknown_scale(clouds: Sequence[Cleaned], o: RegisterOptions, timer: StepTimer) -> Registration:
    """Find the similarity of the source in the frame of the target.

    Args:
        clouds: The cleaned source and target.
        o: Options of the registration.
        timer: Receives the steps.

    Returns:
        The registration. It is no success if several scales are plausible, or if the overlap does not
        determine the scale.

    Raises:
        InputError: An initial pose is given, which has no meaning at an unknown scale.
    """
    if o.initial is not None:
        raise InputError('initial: a guess needs a known scale: give the factor instead of scale="estimate"')
    problem = _Problem.of(clouds, o, timer)
    results: list[Registration] = []
    for keypoints in _searches(o):
        for hypothesis in _plausible(problem.search(keypoints[0])):
            results = _with_result(results, problem.register_at(hypothesis.factor, keypoints[:1]))
        if results and not _most_probable(results).success and len(keypoints) > 1:
            results = _with_result(results, problem.register_at(_most_probable(results).factor, keypoints))
        if results and _refused_if_undetermined(_most_probable(results)).success:
            break
    if results:
        return _refused_if_undetermined(_most_probable(results))
    resolution = problem.resolution(problem.sizes.extents[1] / problem.sizes.extents[0])
    viewpoints = (clouds[0].viewpoint, clouds[1].viewpoint)
    return failed_result(resolution, [no_scale_found(resolution)], timer, viewpoints)


@dataclass(frozen=True)
class _Problem:
    """Two scans of unknown relative scale, and all that registers them at one."""

    clouds: Sequence[Cleaned]
    sizes: Sizes
    network: WSDesc
    model: str
    o: RegisterOptions
    device: str
    timer: StepTimer

    @classmethod
    def of(cls, clouds: Sequence[Cleaned], o: RegisterOptions, timer: StepTimer) -> _Problem:
        """Load the descriptor and measure the scans."""
        with timer("prepare"):
            device = choose_device(o.device)
            network, model = load_model(o.model, o.device)
            source, target = (torch.from_numpy(cloud.points).to(device) for cloud in clouds)
            return cls(clouds, Sizes.of(source, target), network, model, o, device, timer)

    def resolution(self, factor: float) -> float:
        """Return the working resolution in the target's unit, if the source is multiplied by a factor."""
        return self.o.resolution or self.sizes.resolution(factor)

    def search(self, keypoints: int) -> list[ScaleHypothesis]:
        """Find factors at which the scans fit, best first."""
        return search_scales(
            self.clouds,
            self.sizes,
            self.network,
            keypoints=keypoints,
            resolution=self.o.resolution,
            seed=self.o.seed,
            device=self.device,
            timer=self.timer,
        )

    def register_at(self, factor: float, keypoints: tuple[int, ...]) -> Registration:
        """Register the scans near a factor, in rounds of these keypoints."""
        length = self.resolution(factor)
        with self.timer("prepare"):
            p, q = prepare_scans(
                self.clouds, (length / factor, length), self.model, self.o.seed, keypoints[0], self.device
            )
        options = self.o.model_copy(update={"keypoints": keypoints})
        result = register_prepared(p, q, self.network, options, self.timer)
        return _with_exact_scale(result, options, self.device, self.timer)


def _searches(o: RegisterOptions) -> list[tuple[int, ...]]:
    """Return the keypoints of each search and of the rounds after it: the second search repeats a round."""
    if len(o.keypoints) < 3:
        return [o.keypoints]
    return [o.keypoints[:2], o.keypoints[1:]]


def _with_result(results: Sequence[Registration], new: Registration) -> list[Registration]:
    """Append a registration that found a pose; it replaces an earlier one at the same scale."""
    if new.evidence is None:
        return list(results)
    return [result for result in results if not _same_scale(result, new)] + [new]


def _same_scale(a: Registration, b: Registration) -> bool:
    return abs(math.log(a.factor / b.factor)) < SAME_FACTOR


def _plausible(ranked: Sequence[ScaleHypothesis]) -> list[ScaleHypothesis]:
    """Select the scales that fit nearly as well as the best one."""
    return [h for h in ranked[:MAX_SCALES] if h.score > 0 and h.score >= COMPETING * ranked[0].score]


def _with_exact_scale(
    result: Registration, o: RegisterOptions, device: str, timer: StepTimer
) -> Registration:
    """Register again with the estimated scale, until it changes no more; it then is that of the pose."""
    for _ in range(CORRECTIONS):
        change = result.scale / result.factor
        determined = math.isfinite(result.scale_deviation)
        if result.described is None or not determined or abs(math.log(change)) < EXACT:
            break
        source, target = (scan.to(device) for scan in result.described)
        source = _stretched(source, change)
        with timer("surfaces"):
            surfaces = make_surfaces(source.points, target.points)
        prior = make_prior(o, source, target)
        thorough = len(o.keypoints) > 1 and len(source.descriptors) > o.keypoints[-2]  # as the round before
        result = register_round(source, target, surfaces, o, timer, thorough=thorough, prior=prior)
    factor = result.factor
    return replace(result, scale=factor, scale_deviation=result.scale_deviation * factor / result.scale)


def _stretched(scan: Description, change: float) -> Description:
    """Return a scan whose lengths in model metres grow by a few percent; its descriptors stay valid."""
    return replace(
        scan,
        points=change * scan.points,
        resolution=scan.resolution / change,
        range_image=scan.range_image and scan.range_image.scaled(change),
    )


def _most_probable(results: Sequence[Registration]) -> Registration:
    """Return the most probable of registrations at several scales; at most one is right."""
    odds = [result.confidence / max(1 - result.confidence, 1e-9) for result in results]
    probabilities = [value / (1 + sum(odds)) for value in odds]
    order = sorted(range(len(results)), key=lambda k: (-probabilities[k], k))
    best, confidence = results[order[0]], probabilities[order[0]]
    rivals = [
        AlternativePose(
            results[k].T_target_source,
            probabilities[k],
            results[k].overlap,
            results[k].rmse,
            results[k].overlap_target,
        )
        for k in order[1:]
        if probabilities[k] >= PLAUSIBLE
    ]
    warnings = list(best.warnings)
    if rivals and rivals[0].probability > AMBIGUOUS:
        warnings.append(scales_compete(best.factor, rivals[0].factor, rivals[0].probability))
    return replace(
        best,
        confidence=confidence,
        success=confidence >= SUCCESS,
        alternatives=sorted([*best.alternatives, *rivals], key=lambda pose: -pose.probability),
        warnings=warnings,
    )


def _refused_if_undetermined(result: Registration) -> Registration:
    """Refuse a success if the overlap does not determine the scale."""
    if result.scale_deviation <= MAX_DEVIATION * result.scale and not _is_plane(result):
        return result
    warnings = [scale_not_determined(result.scale, result.scale_deviation), *result.warnings]
    return replace(result, confidence=0.0, success=False, warnings=warnings)


def _is_plane(result: Registration) -> bool:
    """Return whether the overlap is one plane; the noise of a thick one may seem to determine a scale."""
    if result.information is None:
        return False
    return find_degeneracy(result.information, OVERLAP_DISTANCE * INDOOR_RESOLUTION).kind == "plane"
