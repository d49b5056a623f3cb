"""KISS-Matcher (Lim et al. 2025): its own features, pruning by a graph, and a robust solver.

It orients normals towards the origin of a cloud's coordinates, so scans are given to it as they stand; and
it refuses voxels of half a centimetre and clamps its bounds above a metre, so they are given in metres.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from wsdesc.cloud.neighbours import NeighbourGrid
from wsdesc.cloud.units import INDOOR_RESOLUTION
from wsdesc.peers.base import Floats, at_working_resolution, far_origin, in_the_clouds_frames, load_package

_FEWEST = 5  # matches that must agree in the end, for a motion to be one; and points with neighbours
_NORMAL_RADIUS = 3 * INDOOR_RESOLUTION  # metres: KISS-Matcher's own, at this voxel
_NEIGHBOURS = 6  # points within it, the point itself among them, that make a normal


class KissMatcher:
    """A pose peer."""

    def __init__(self) -> None:
        self._kiss = load_package("kiss_matcher", "KISS-Matcher")

    def __call__(self, source: Tensor, target: Tensor, unit: float = 1.0, *, seed: int = 0) -> Tensor | None:
        """T_target_source (4, 4) float64 of source (N, 3) and target (M, 3), or None."""
        clouds = [
            at_working_resolution(source, "source", unit),
            at_working_resolution(target, "target", unit),
        ]
        origins = [far_origin(metres) for metres in clouds]
        p, q = (_as_float32(metres - origin) for metres, origin in zip(clouds, origins, strict=True))
        if not (_has_surface(p) and _has_surface(q)):
            return None
        matcher = self._kiss.KISSMatcher(self._kiss.KISSMatcherConfig(voxel_size=INDOOR_RESOLUTION))
        found = matcher.estimate(p, q)
        if not found.valid or matcher.get_num_final_inliers() < _FEWEST:
            return None
        T_local = np.eye(4)
        T_local[:3, :3], T_local[:3, 3] = np.array(found.rotation), np.ravel(found.translation)
        return in_the_clouds_frames(T_local, origins[0], origins[1], unit)


def _has_surface(metres: np.ndarray) -> bool:
    """Whether enough points have neighbours. KISS-Matcher 1.0.2 ends the process where none has."""
    count = NeighbourGrid.of(torch.from_numpy(metres)).count(torch.from_numpy(metres), _NORMAL_RADIUS)
    return int((count >= _NEIGHBOURS).sum()) >= _FEWEST


def _as_float32(metres: Floats) -> np.ndarray:
    return np.ascontiguousarray(metres, np.float32)
