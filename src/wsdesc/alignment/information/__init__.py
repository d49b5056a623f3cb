"""Information matrix of poses, and the motions that it leaves undetermined."""

from __future__ import annotations

from numpy.typing import ArrayLike

from wsdesc.alignment.information import cpu, cuda
from wsdesc.alignment.information.degeneracy import Degeneracy, find_degeneracy
from wsdesc.alignment.information.matrix import Information
from wsdesc.alignment.surface import Surface, check_poses, for_backend
from wsdesc.core.geometry import check_length

__all__ = ["Degeneracy", "Information", "compute_information", "find_degeneracy"]


def compute_information(
    source: Surface, target: Surface, poses: ArrayLike, distance: float
) -> list[Information]:
    """Compute the information matrix of each pose.

    Args:
        source, target: Surfaces of one backend.
        poses: T_target_source (H, 4, 4).
        distance: Overlap distance in the unit of the points, as for `verify`.

    Raises:
        InputError: A pose is not rigid, the distance is not positive, or the surfaces are on two devices.
    """
    check_length(distance, "distance")
    implementation = for_backend(source, target, cpu=cpu.compute_information, cuda=cuda.compute_information)
    return implementation(source, target, check_poses(poses), distance)
