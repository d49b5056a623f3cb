"""Places: parts of a map where a scan may be, by votes of matched keypoints.

A match of two keypoints with local frames is a rough pose of the scan. Poses of wrong matches are scattered
over the map; those of right ones agree. Lengths are in metres of the model.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation

from wsdesc.core.geometry import CELL_STEPS, Floats, cell_keys
from wsdesc.core.kernels import kernel, run_in_chunks

_SAME_HALF_COSINE = math.cos(math.radians(30.0) / 2)  # between unit quaternions of rotations that agree
_MAX_CELL = (1 << 21) - 2
_SAME_CENTRE, _MIN_SAME_CENTRE = 0.25, 0.5  # radii of the scan, metres: centres closer than the larger agree


class Place(NamedTuple):
    """A possible position of the scan's centre."""

    centre: Floats  # (3,) in the map
    votes: float


def vote(
    keypoints: Floats,
    frames: Floats,
    matched: NDArray[np.int64],
    positions: Floats,
    map_frames: Floats,
    count: int,
) -> list[Place]:
    """Find the places with most votes.

    Args:
        keypoints: (K, 3) of the scan.
        frames: (K, 3, 3) of the scan.
        matched: (K, k) similar map keypoints of each keypoint, best first.
        positions: (L, 3) of the map keypoints.
        map_frames: (L, 3, 3) of the map keypoints.
        count: Largest number of places.

    Returns:
        Places, most votes first; their centres do not agree with each other.
    """
    centre, radius = centre_and_radius(keypoints)
    source = np.repeat(np.arange(len(keypoints)), matched.shape[1])  # (M,)
    target = matched.ravel()
    weights = np.tile(1 / np.sqrt(1.0 + np.arange(matched.shape[1])), len(keypoints))
    rotations = np.einsum("mij,mkj->mik", map_frames[target], frames[source])
    centres = positions[target] + np.einsum("mij,mj->mi", rotations, centre - keypoints[source])
    same_distance = max(_MIN_SAME_CENTRE, _SAME_CENTRE * radius)
    votes = weights * _agreeing(centres, rotations, source, weights, same_distance)
    remaining = np.argsort(-votes, kind="stable")
    places: list[Place] = []
    while len(remaining) and len(places) < count and votes[remaining[0]] > 0:
        best = remaining[0]
        places.append(Place(centres[best], float(votes[best])))
        far = np.linalg.norm(centres[remaining] - centres[best], axis=1) > same_distance
        remaining = remaining[far]
    return places


def _agreeing(
    centres: Floats, rotations: Floats, source: NDArray[np.int64], weights: Floats, same_distance: float
) -> Floats:
    """Add the weights (M,) of the poses of other keypoints that agree with each pose."""
    cells = np.floor((centres - centres.min(axis=0)) / same_distance).astype(np.int64) + 1
    keys = cell_keys(np.minimum(cells, _MAX_CELL))
    order = np.argsort(keys, kind="stable")
    distinct, starts = np.unique(keys[order], return_index=True)
    near = distinct[:, None] + cell_keys(CELL_STEPS)  # the key of a sum of cells is the sum of their keys
    at = np.minimum(np.searchsorted(distinct, near), len(distinct) - 1)
    first = np.where(distinct[at] == near, starts[at], 0)  # (C, 27) ranges of the poses in cells around
    last = np.where(distinct[at] == near, np.append(starts[1:], len(keys))[at], 0)
    cell = np.repeat(np.arange(len(distinct)), np.diff(np.append(starts, len(keys))))
    quaternions = Rotation.from_matrix(rotations[order]).as_quat()
    total = np.zeros(len(order))
    run_in_chunks(
        _add_agreeing, len(order), centres[order], quaternions, source[order], weights[order], cell, first,
        last, same_distance**2, total,
    )  # fmt: skip
    agreeing = np.empty(len(order))
    agreeing[order] = total
    return agreeing


@kernel
def _add_agreeing(
    start: int, stop: int, centres: Any, quaternion: Any, source: Any, weights: Any, cell: Any, first: Any,
    last: Any, limit: float, total: Any,
) -> None:  # fmt: skip
    """Add the weights of agreeing poses, for the poses of a range."""
    for i in range(start, stop):
        x, y, z = centres[i, 0], centres[i, 1], centres[i, 2]
        a, b, c, d = quaternion[i, 0], quaternion[i, 1], quaternion[i, 2], quaternion[i, 3]
        for k in range(first.shape[1]):
            for j in range(first[cell[i], k], last[cell[i], k]):
                dot = abs(
                    a * quaternion[j, 0] + b * quaternion[j, 1] + c * quaternion[j, 2] + d * quaternion[j, 3]
                )
                if dot > _SAME_HALF_COSINE and source[i] != source[j]:
                    dx, dy, dz = centres[j, 0] - x, centres[j, 1] - y, centres[j, 2] - z
                    if dx * dx + dy * dy + dz * dz <= limit:
                        total[i] += weights[j]


def centre_and_radius(keypoints: Floats) -> tuple[Floats, float]:
    """Return the mean (3,) of keypoints, and the distance within which most of them are."""
    centre = keypoints.mean(axis=0)
    return centre, float(np.quantile(np.linalg.norm(keypoints - centre, axis=1), 0.95))
