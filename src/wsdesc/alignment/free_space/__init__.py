"""Free space: find poses that put the surface of one scan into space that the other scanner saw through.

A right pose leaves that space empty, apart from things that moved and from thin structures. Wrong poses of
repetitive places, which fit well elsewhere, put walls into it.
"""

from __future__ import annotations

from numpy.typing import ArrayLike

from wsdesc.alignment.free_space import cpu, cuda
from wsdesc.alignment.free_space.counts import DENSE_LIMITS, LIMITS, FreeSpace, Limits, ViewCounts
from wsdesc.alignment.surface import Surface, check_poses, for_backend
from wsdesc.cloud.range_image import RangeImage
from wsdesc.cloud.units import INDOOR_RESOLUTION
from wsdesc.core.geometry import check_length

__all__ = ["DENSE_LIMITS", "LIMITS", "FreeSpace", "Limits", "ViewCounts", "measure_free_space"]


def measure_free_space(
    source: Surface,
    target: Surface,
    images: tuple[RangeImage | None, RangeImage | None],
    poses: ArrayLike,
    *,
    refined: bool = True,
    dense: bool = False,
    resolution: float = INDOOR_RESOLUTION,
) -> list[FreeSpace]:
    """Count the points of each scan that lie in the free space of the other one, for each pose.

    Args:
        source, target: Surfaces of one backend.
        images: Range images of source and target, in the coordinates and the unit of the surfaces; None for
            a scan without a viewpoint, whose free space is not known.
        poses: T_target_source (H, 4, 4).
        refined: False for poses that may be wrong by one or two degrees: free space is then measured in wider
            cells, which violates less.
        dense: Count all points, not a sample, and of refined poses also those closer to the surface behind
            them, so that small things count, such as a bicycle in a court.
        resolution: Working resolution, in the unit of the surfaces.

    Raises:
        InputError: A pose is not rigid, the resolution is not positive, or the surfaces are on two devices.
    """
    check_length(resolution, "resolution")
    checked = check_poses(poses)
    implementation = for_backend(source, target, cpu=cpu.measure, cuda=cuda.measure)
    used = [image if image is None or refined else image.coarse for image in images]
    limits = DENSE_LIMITS if dense and refined else LIMITS
    limits = limits._replace(margin=limits.margin * resolution)
    return implementation(source, target, used, checked, limits, dense)
