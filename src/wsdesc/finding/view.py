"""View of the scene's scanner: its free space, and the side of an object that it can see."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from wsdesc.cloud.units import INDOOR_RESOLUTION
from wsdesc.core.geometry import Floats

_MARGIN = 3.0  # resolutions: points this close to the seen surface, in front or behind, count as seen
_RAY_DISTANCE = 3.0  # resolutions between a point and the ray of a measured point in its direction
FREE, SEEN, HIDDEN, OUT_OF_VIEW = 1, 0, -1, 2  # states of a point
_SIDES, _SIDE_DISTANCE = 32, 10.0  # viewpoints around an object, and their distance from it in object sizes
_SIMILAR_DIRECTIONS = 12  # compared points of an object in similar directions; the nearest hide the others


class View:
    """View of the scene's scanner: the range of the first surface in each direction."""

    def __init__(self, points: Floats, viewpoint: Floats) -> None:
        self.viewpoint = viewpoint
        offsets = points - viewpoint
        self.ranges = np.linalg.norm(offsets, axis=1)
        seen = self.ranges > 0
        self.ranges = self.ranges[seen]
        self.tree = cKDTree(offsets[seen] / self.ranges[:, None])

    def classify(self, points: Floats, nearest: int = 1) -> NDArray[np.int8]:
        """Classify points (…, 3): FREE before the seen surface, SEEN at it, HIDDEN behind it, OUT_OF_VIEW.

        With several `nearest` directions, a point is in front only if it is in front of all of them.
        """
        offsets = points.reshape(-1, 3) - self.viewpoint
        distance = np.maximum(np.linalg.norm(offsets, axis=1), 1e-9)
        angle, index = self.tree.query(offsets / distance[:, None], nearest, workers=torch.get_num_threads())
        angle, index = angle.reshape(len(offsets), -1), index.reshape(len(offsets), -1)
        margin = _MARGIN * INDOOR_RESOLUTION
        in_view = angle[:, 0] * distance < _RAY_DISTANCE * INDOOR_RESOLUTION
        ranges = self.ranges[index]
        state = np.full(len(offsets), SEEN, np.int8)
        state[ranges.min(axis=1) > distance + margin] = FREE
        state[ranges.max(axis=1) < distance - margin] = HIDDEN
        state[~in_view] = OUT_OF_VIEW
        return state.reshape(points.shape[:-1])


def facing(points: Floats, viewpoint: Floats) -> NDArray[np.bool_]:
    """Find the points (N, 3) of an object that no other of them hides from a viewpoint."""
    offsets = points - viewpoint
    distance = np.maximum(np.linalg.norm(offsets, axis=1), 1e-9)
    directions = offsets / distance[:, None]
    angle = _RAY_DISTANCE * INDOOR_RESOLUTION / float(np.median(distance))
    near = cKDTree(directions).query(
        directions, min(_SIMILAR_DIRECTIONS, len(points)), distance_upper_bound=angle
    )[1]
    nearest = np.append(distance, np.inf)[near.reshape(len(points), -1)].min(axis=1)  # N: no neighbour
    return np.asarray(distance < nearest + _MARGIN * INDOOR_RESOLUTION)


def sides(points: Floats) -> NDArray[np.bool_]:
    """Return (D, N): which points (N, 3) of an object can be seen from directions all around it."""
    k = np.arange(_SIDES) + 0.5
    z, turn = 1 - 2 * k / _SIDES, np.pi * (1 + 5**0.5) * k  # a spiral over the sphere
    ring = np.sqrt(1 - z * z)
    directions = np.stack([ring * np.cos(turn), ring * np.sin(turn), z], axis=1)
    centre, size = points.mean(axis=0), float(np.ptp(points, axis=0).max())
    return np.stack([facing(points, centre + _SIDE_DISTANCE * size * direction) for direction in directions])
