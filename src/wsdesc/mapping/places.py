"""Places: parts of a map where a scan may be, by votes of matched keypoints.

A match of two keypoints with local frames is a rough pose of the scan. Poses of wrong matches are scattered
over the map; those of right ones agree. Lengths are in metres of the model.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from wsdesc.core.geometry import Floats

_SAME_COSINE = np.cos(np.radians(30.0))  # rotations of matches that agree
_SAME_CENTRE = 0.25  # distance of the centres of poses that agree, in radii of the scan,
_CLOSEST = 0.5  # but at least this


class Place(NamedTuple):
    """Where the centre of the scan may be."""

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
        count: largest number of places.

    Returns:
        Places, most votes first. They are at least `_SAME_CENTRE` radii apart, or differ in rotation.
    """
    centre, radius = centre_and_radius(keypoints)
    source = np.repeat(np.arange(len(keypoints)), matched.shape[1])  # (M,)
    target = matched.ravel()
    weights = np.tile(1 / np.sqrt(1.0 + np.arange(matched.shape[1])), len(keypoints))
    rotations = np.einsum("mij,mkj->mik", map_frames[target], frames[source])
    centres = positions[target] + np.einsum("mij,mj->mi", rotations, centre - keypoints[source])
    reach = max(_CLOSEST, _SAME_CENTRE * radius)
    pairs = cKDTree(centres).query_pairs(reach, output_type="ndarray")  # (P, 2)
    a, b = pairs[:, 0], pairs[:, 1]
    cosine = (np.einsum("pij,pij->p", rotations[a], rotations[b]) - 1) / 2
    agree = (cosine > _SAME_COSINE) & (source[a] != source[b])
    a, b = a[agree], b[agree]
    agreeing = np.bincount(a, weights[b], len(target)) + np.bincount(b, weights[a], len(target))
    votes = weights * agreeing
    remaining = np.argsort(-votes, kind="stable")
    places: list[Place] = []
    while len(remaining) and len(places) < count and votes[remaining[0]] > 0:
        best = remaining[0]
        places.append(Place(centres[best], float(votes[best])))
        far = np.linalg.norm(centres[remaining] - centres[best], axis=1) > reach
        remaining = remaining[far]
    return places


def centre_and_radius(keypoints: Floats) -> tuple[Floats, float]:
    """Return the mean (3,) of keypoints, and the distance within which most of them are."""
    centre = keypoints.mean(axis=0)
    return centre, float(np.quantile(np.linalg.norm(keypoints - centre, axis=1), 0.95))
