"""Points that belong to no surface: rain and dust before a laser, edges that a depth camera smears.

Thinning does not remove them. It merges the points of a surface but leaves each stray one, so that three in
ten of a scan become four in ten, and farthest point sampling likes them best of all.
"""

from __future__ import annotations

from torch import Tensor

from wsdesc.cloud.neighbours import NeighbourGrid

REACH = 3.0  # resolutions within which neighbours are counted: about thirty on a thinned surface
LONELY = 0.25  # a point with fewer than this share of the median's neighbours is taken for stray
FEW = 0.05  # of the points, below which strays do no harm and every scan has some: at its rim


def without_strays(points: Tensor, resolution: float) -> Tensor:
    """The points (N, 3), thinned to `resolution`, without stray ones where those are 5 % or more; (M, 3).

    Of scans without outliers nothing is removed. The rule is made for surfaces that are sampled about evenly,
    as thinned ones are: it would take a large part that is far sparser than the rest for stray, too.
    """
    neighbours = NeighbourGrid.of(points).count(points, REACH * resolution) - 1  # (N,)
    stray = neighbours < LONELY * neighbours.median()
    return points[~stray] if float(stray.double().mean()) >= FEW else points
