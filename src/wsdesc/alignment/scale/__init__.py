"""Relative scale of two aligned scans, with its uncertainty.

A rigid pose can look right although one scan is a few percent too large. The scale is estimated by fitting a
similarity transformation to the overlap: the point-to-plane problem of the refinement, with the logarithm of
the scale as a seventh unknown. Its uncertainty comes from the differences between parts of the overlap, see
`parts`, and from the gaps that remain.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np

from wsdesc.alignment.scale import cpu, cuda
from wsdesc.alignment.scale.parts import deviation_between_parts
from wsdesc.alignment.scale.step import Equations, Iterated, Stage, Stages, solve_step
from wsdesc.alignment.surface import CudaSurface, Surface, for_backend
from wsdesc.core.geometry import Floats

STAGES = (Stage(8.0, 3, coarse=True), Stage(3.0, 3, coarse=True), Stage(2.0, 5, coarse=False))
# Chosen on 546 pairs of indoor training scans, whose scale is 1: their errors have a variance of about 1.
RESIDUAL = 1.2  # systematic gap of all contact pairs, in residual² / resolution, as in the covariance
SYSTEMATIC = 0.003  # deviation of scans that are not distorted
TOLERANCE = 3.0  # standard deviations within which a scale may equal 1,
MAX_DIFFERENCE = 0.05  # but never beyond this logarithm
SUSPICION, NOTICED = 2.0, 0.01  # standard deviations, or logarithm, from which on a success has a warning
UNDETERMINED = 0.002  # determinacy below which rigid motions imitate a growth: that of noisy normals


class RelativeScale(NamedTuple):
    """Size of the source relative to the target, at the best similarity transformation."""

    factor: float  # 1.04: the source is 4 % too large; 1 if the overlap is too small to tell
    deviation: float  # standard deviation of the factor, relative; infinite if the overlap cannot tell
    determinacy: float = 1.0  # as in `SimilarityFit`

    @property
    def determined(self) -> bool:
        """False if the overlap is nearly the same at every scale, as a plane or the corner of a room."""
        return self.determinacy >= UNDETERMINED

    @property
    def differs(self) -> bool:
        """True if the factor differs from 1 by more than its uncertainty allows."""
        return abs(math.log(self.factor)) > min(TOLERANCE * self.deviation, MAX_DIFFERENCE)

    @property
    def suspicious(self) -> bool:
        """True if the factor differs from 1 by more than two standard deviations, or 1 %."""
        return abs(math.log(self.factor)) > min(SUSPICION * self.deviation, NOTICED)

    @property
    def unchecked(self) -> bool:
        """True if the overlap cannot show a factor of 5 %."""
        return not self.determined or TOLERANCE * self.deviation > MAX_DIFFERENCE


class SimilarityFit(NamedTuple):
    """A similarity transformation that was fitted to an overlap."""

    S_target_source: Floats  # (4, 4) similarity: the rotation times the factor, and the translation
    factor: float
    residual: float  # root mean square of the gaps between both surfaces
    deviation: float  # standard deviation of the factor, relative, if one contact pair alone determined it
    determinacy: float  # mean square motion along normals by unit growth, less what rigid motions imitate


def estimate_scale(
    source: Surface, target: Surface, T_target_source: Floats, resolution: float
) -> RelativeScale:
    """Estimate the relative scale of two surfaces near a refined pose.

    Args:
        source, target: Surfaces of one backend.
        T_target_source: (4, 4) rigid pose to start from.
        resolution: Point spacing of the surfaces, in their unit.

    Raises:
        InputError: The surfaces are on two devices.
    """
    fit = fit_similarity(source, target, T_target_source, resolution)
    if fit is None:
        return RelativeScale(1.0, math.inf, 0.0)
    find_pairs = for_backend(source, target, cpu=cpu.contact_pairs, cuda=cuda.contact_pairs)
    pairs = find_pairs(source, target, fit.S_target_source, STAGES[-1].distance * resolution)
    distorted = RESIDUAL * fit.residual / resolution * fit.deviation
    deviation = math.hypot(deviation_between_parts(pairs), distorted, SYSTEMATIC)
    return RelativeScale(1 / fit.factor, deviation, fit.determinacy)


def fit_similarity(
    source: Surface,
    target: Surface,
    T_target_source: Floats,
    resolution: float,
    stages: Stages = STAGES,
) -> SimilarityFit | None:
    """Fit a similarity transformation to the overlap of two surfaces, near a rigid pose.

    Args:
        source, target: Surfaces of one backend.
        T_target_source: (4, 4) rigid pose to start from.
        resolution: Point spacing of the surfaces, in their unit.
        stages: The steps of the fit.

    Returns:
        The similarity; None if the surfaces overlap too little.

    Raises:
        InputError: The surfaces are on two devices.
    """
    run_steps = for_backend(
        source, target, cpu=partial(_run_steps, cpu.compute_equations), cuda=_run_steps_on_cuda
    )
    S, log_scale, equations = run_steps(
        source, target, np.array(T_target_source, dtype=np.float64), resolution, stages
    )
    if equations is None:
        return None
    step = solve_step(equations)
    factor = math.exp(log_scale + step.log_scale)
    S = step.S_target_target @ S
    return SimilarityFit(S, factor, step.residual, step.deviation, step.determinacy)


def _run_steps(
    compute_equations: Callable[..., Equations | None],
    source: Surface,
    target: Surface,
    S: Floats,
    resolution: float,
    stages: Stages,
) -> Iterated:
    """Do all steps but the last, whose equations are returned."""
    log_scale, equations = 0.0, None
    steps = [stage for stage in stages for _ in range(stage.steps)]
    for number, stage in enumerate(steps, start=1):
        equations = compute_equations(source, target, S, stage.distance * resolution, stage.coarse)
        if equations is None or number == len(steps):
            break
        step = solve_step(equations)
        S, log_scale = step.S_target_target @ S, log_scale + step.log_scale
    return Iterated(S, log_scale, equations)


def _run_steps_on_cuda(
    source: CudaSurface, target: CudaSurface, S: Floats, resolution: float, stages: Stages
) -> Iterated:
    done = cuda.run_steps(source, target, S, resolution, stages)
    return done or _run_steps(cuda.compute_equations, source, target, S, resolution, stages)
