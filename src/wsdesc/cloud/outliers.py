"""Removal of outliers: points that lie on no surface, such as rain, dust, and smeared depth edges.

Voxel downsampling does not remove them. It merges the points of a surface but keeps every outlier: a share
of 30 % becomes 40 %, and farthest point sampling prefers them.
"""

from __future__ import annotations

from torch import Tensor

from wsdesc.cloud.neighbours import count_neighbours

_RADIUS = 3.0  # resolutions; a downsampled surface has about thirty neighbours within
_MIN_NEIGHBOURS = 0.25  # an outlier has fewer neighbours than this share of the median
_MIN_SHARE = 0.05  # a smaller share of outliers is kept: every scan has a few at its border


def remove_outliers(points: Tensor, resolution: float) -> Tensor:
    """Remove the outliers if they are at least 5 % of the points; else return the points unchanged.

    The rule assumes an evenly sampled surface, such as a downsampled one. It would also remove a large part
    that is far sparser than the rest.

    Args:
        points: (N, 3), downsampled to `resolution`.
        resolution: Working resolution, in the points' unit.

    Returns:
        (M, 3), M ≤ N.
    """
    neighbours = count_neighbours(points, _RADIUS * resolution)  # (N,)
    outlier = neighbours < _MIN_NEIGHBOURS * neighbours.median()
    return points[~outlier] if float(outlier.double().mean()) >= _MIN_SHARE else points
