"""KISS-Matcher (Lim et al. 2025): Faster-PFH features, graph pruning, and a robust solver.

It orients normals towards the origin of the coordinates, so scans keep their origin. It rejects voxels of
5 mm and clamps lengths above 1 m, so scans are converted to metres.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from wsdesc.cloud.neighbours import NeighbourGrid
from wsdesc.cloud.units import INDOOR_RESOLUTION
from wsdesc.core.geometry import Floats, make_pose
from wsdesc.peers.base import downsample_to_metres, far_origin, load_package, to_scan_frames

_MIN_COUNT = 5  # inliers of a valid pose, and points of a scan that have a normal
_NORMAL_RADIUS = 3 * INDOOR_RESOLUTION  # metres: KISS-Matcher's default for this voxel size
_NEIGHBOURS = 6  # points within the radius, including the point itself, that a normal needs


class KissMatcher:
    """A pose peer."""

    def __init__(self) -> None:
        self._kiss = load_package("kiss_matcher", "KISS-Matcher")

    def __call__(self, source: Tensor, target: Tensor, unit: float = 1.0, *, seed: int = 0) -> Tensor | None:
        """Estimate T_target_source (4, 4) float64 of source (N, 3) and target (M, 3); None if it fails."""
        clouds = [
            downsample_to_metres(source, "source", unit),
            downsample_to_metres(target, "target", unit),
        ]
        origins = [far_origin(metres) for metres in clouds]
        p, q = (_as_float32(metres - origin) for metres, origin in zip(clouds, origins, strict=True))
        if not (_has_surface(p) and _has_surface(q)):
            return None
        matcher = self._kiss.KISSMatcher(self._kiss.KISSMatcherConfig(voxel_size=INDOOR_RESOLUTION))
        solution = matcher.estimate(p, q)
        if not solution.valid or matcher.get_num_final_inliers() < _MIN_COUNT:
            return None
        T_local = make_pose(solution.rotation, np.ravel(solution.translation))
        return to_scan_frames(T_local, origins[0], origins[1], unit)


def _has_surface(metres: np.ndarray) -> bool:
    """Check that enough points have neighbours; without any, KISS-Matcher 1.0.2 aborts the process."""
    count = NeighbourGrid.of(torch.from_numpy(metres)).count(torch.from_numpy(metres), _NORMAL_RADIUS)
    return int((count >= _NEIGHBOURS).sum()) >= _MIN_COUNT


def _as_float32(metres: Floats) -> np.ndarray:
    return np.ascontiguousarray(metres, np.float32)
