"""Verification: measure how well two surfaces fit under poses."""

from __future__ import annotations

from numpy.typing import ArrayLike

from wsdesc.alignment.surface import Surface, check_poses, for_backend
from wsdesc.alignment.verify import cpu, cuda
from wsdesc.alignment.verify.score import PoseScore, score_candidate, score_hypothesis, score_refinement
from wsdesc.core.geometry import check_length

__all__ = ["PoseScore", "score_candidate", "score_hypothesis", "score_refinement", "verify"]


def verify(
    source: Surface, target: Surface, poses: ArrayLike, distance: float, *, coarse: bool = False
) -> list[PoseScore]:
    """Measure how well two surfaces fit under each pose.

    Args:
        source, target: Surfaces of one backend.
        poses: T_target_source (H, 4, 4).
        distance: Overlap distance in the unit of the points: points this close are the same place. Twice the
            working resolution suits scans downsampled to it.
        coarse: Compare the smaller samples of both surfaces, for a ranking of many poses.

    Raises:
        InputError: A pose is not rigid, the distance is not positive, or the surfaces are on two devices.
    """
    check_length(distance, "distance")
    implementation = for_backend(source, target, cpu=cpu.verify, cuda=cuda.verify)
    return implementation(source, target, check_poses(poses), distance, coarse=coarse)
