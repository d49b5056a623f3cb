"""Refinement: move poses to where both surfaces fit best; swapping the scans gives the inverse."""

from __future__ import annotations

from numpy.typing import ArrayLike

from wsdesc.alignment.refine import cpu, cuda
from wsdesc.alignment.refine.result import OVERLAP_DISTANCE, RefinedPose, orthonormalise
from wsdesc.alignment.surface import Surface, check_poses, for_backend
from wsdesc.core.geometry import check_length

__all__ = ["OVERLAP_DISTANCE", "RefinedPose", "evaluate", "orthonormalise", "refine"]


def refine(source: Surface, target: Surface, poses: ArrayLike, resolution: float) -> list[RefinedPose]:
    """Refine poses that are off by up to a few resolutions.

    A pose is returned as given if refinement lowers `score_refinement` by more than 1 %. Swapping the
    surfaces gives the inverse poses within 0.05 resolutions, where the geometry determines them.

    Args:
        source, target: Surfaces of one backend.
        poses: T_target_source (H, 4, 4).
        resolution: Point spacing of the surfaces, in their unit.

    Raises:
        InputError: A pose is not rigid, the resolution is not positive, or the surfaces are on two devices.
    """
    check_length(resolution, "resolution")
    implementation = for_backend(source, target, cpu=cpu.refine, cuda=cuda.refine)
    return implementation(source, target, check_poses(poses), resolution)


def evaluate(source: Surface, target: Surface, poses: ArrayLike, resolution: float) -> list[RefinedPose]:
    """Compute scores and information of poses without changing them; arguments as in `refine`."""
    check_length(resolution, "resolution")
    implementation = for_backend(source, target, cpu=cpu.evaluate, cuda=cuda.evaluate)
    return implementation(source, target, check_poses(poses), resolution)
