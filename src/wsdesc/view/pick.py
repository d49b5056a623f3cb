"""Mouse clicks: find the keypoint that is nearest to the surface under the cursor, and its support."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from wsdesc.core.geometry import Floats
from wsdesc.view.geometry import interpolate
from wsdesc.view.scene import SceneView

MIN_OCCUPANCY = 64  # of 255: cells below it are not drawn
_PICK_RADIUS = 0.012  # of the distance from the eye: a few pixels


class PickedKeypoint(NamedTuple):
    """Indices of a keypoint and of its scan."""

    scan: int
    keypoint: int


class SupportCells(NamedTuple):
    """Occupied cells of a support, relative to the centre of its scan."""

    centres: Floats  # (C, 3)
    values: Floats  # (C,) occupancy, 0 … 1
    axes: Floats  # (3, 3) frame of the keypoint, in columns
    cell_side: float
    cube: tuple[Floats, float]  # centre (3,) and side of the whole support


def pick_keypoint(
    scene: SceneView, share: float, visible: Sequence[bool], origin: Floats, direction: Floats
) -> PickedKeypoint | None:
    """Return the keypoint nearest to the first point that a ray hits, or None.

    Args:
        scene: The scene.
        share: Position of the slider between the input poses (0) and the result (1).
        visible: Whether each scan is shown.
        origin: (3,) position of the eye.
        direction: (3,) unit vector.
    """
    best, picked = np.inf, None
    for number, (scan, shown) in enumerate(zip(scene.scans, visible, strict=True)):
        if not shown or scan.supports is None:
            continue
        points = interpolate(scan.start, scan.end, share).apply(scan.points) - origin
        along = points @ direction
        across = np.linalg.norm(points - along[:, None] * direction, axis=1)
        depth = np.where((along > 0) & (across < _PICK_RADIUS * along), along, np.inf)
        if depth.min() < best:
            first = int(depth.argmin())
            best = float(depth[first])
            distance = np.linalg.norm(scan.supports.keypoints - scan.points[first], axis=1)
            picked = PickedKeypoint(number, int(distance.argmin()))
    return picked


def support_cells(scene: SceneView, picked: PickedKeypoint) -> SupportCells:
    """Return the occupied cells of a keypoint's support."""
    supports = scene.scans[picked.scan].supports
    assert supports is not None
    k = picked.keypoint
    grid = supports.grids[k]  # (h, h, h)
    occupied = np.argwhere(grid >= MIN_OCCUPANCY)  # (C, 3)
    centre, axes, side = supports.keypoints[k], supports.axes[k], float(supports.sides[k])
    local = ((occupied + 0.5) / grid.shape[0] - 0.5) * side
    values = grid[tuple(occupied.T)] / 255
    return SupportCells(centre + local @ axes.T, values, axes, side / grid.shape[0], (centre, side))
