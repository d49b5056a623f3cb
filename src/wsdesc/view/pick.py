"""What a click means: the support of the keypoint that is nearest to the surface under the cursor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from wsdesc.view.geometry import Floats, between
from wsdesc.view.scene import Scene

CUT = 64  # of 255: cells emptier than this are not drawn
_REACH = 0.012  # of the distance from the eye: some pixels


class Picked(NamedTuple):
    """A keypoint of a scan."""

    scan: int
    keypoint: int


class Cells(NamedTuple):
    """The occupied cells of a support, about the middle of its scan."""

    centres: Floats  # (C, 3)
    values: Floats  # (C,) 0 … 1
    axes: Floats  # (3, 3), in columns
    side: float  # of a cell
    cube: tuple[Floats, float]  # middle (3,) and side of the whole support


def pick(
    scene: Scene, share: float, shown: Sequence[bool], origin: Floats, direction: Floats
) -> Picked | None:
    """Follow a ray from the eye to the foremost point of a scan that is shown, and on to a keypoint.

    share: how far the scans are on their ways, 0 … 1. origin (3,), direction (3,) of unit length.
    """
    best, found = np.inf, None
    for number, (scan, visible) in enumerate(zip(scene.scans, shown, strict=True)):
        if not visible or scan.supports is None:
            continue
        points = between(scan.start, scan.end, share).apply(scan.points) - origin
        along = points @ direction
        across = np.linalg.norm(points - along[:, None] * direction, axis=1)
        depth = np.where((along > 0) & (across < _REACH * along), along, np.inf)
        if depth.min() < best:
            first = int(depth.argmin())
            best = float(depth[first])
            apart = np.linalg.norm(scan.supports.keypoints - scan.points[first], axis=1)
            found = Picked(number, int(apart.argmin()))
    return found


def cells(scene: Scene, picked: Picked) -> Cells:
    """The support of a keypoint as cubes."""
    supports = scene.scans[picked.scan].supports
    assert supports is not None
    grid, k = supports.grids[picked.keypoint], picked.keypoint
    full = np.argwhere(grid >= CUT)  # (C, 3)
    place, axes, side = supports.keypoints[k], supports.axes[k], float(supports.sides[k])
    local = ((full + 0.5) / grid.shape[0] - 0.5) * side
    values = grid[tuple(full.T)] / 255
    return Cells(place + local @ axes.T, values, axes, side / grid.shape[0], (place, side))
