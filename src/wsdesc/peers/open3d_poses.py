"""Pose estimators of Open3D: RANSAC and fast global registration on FPFH, and ICP from the identity."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from wsdesc.core.geometry import Floats
from wsdesc.peers.base import downsample_to_metres, far_origin, to_scan_frames
from wsdesc.peers.fpfh import Fpfh

_MIN_POINTS = 10  # fewest points of a scan
_INLIER = 0.05  # metres, as in the published experiments with WSDesc
_EDGE_RATIO = 0.9  # smallest ratio of corresponding edge lengths of a sample
_SAMPLES, _CONFIDENCE = 100_000, 0.999  # Open3D's defaults
_FGR_DISTANCE = 0.025  # metres, the working resolution
_ICP_DISTANCES = (0.4, 0.2, 0.1, 0.05)  # metres, in successive runs
_ICP_ITERATIONS = 50  # per run


class _CloudPair(NamedTuple):
    """Two Open3D clouds in metres, each without its origin (3,)."""

    source: Any
    target: Any
    source_origin: Floats
    target_origin: Floats

    def to_scan_frames(self, T_local: Any, unit: float) -> Tensor | None:
        """Convert a pose between the two clouds to the scans' own frames and unit."""
        return to_scan_frames(np.array(T_local), self.source_origin, self.target_origin, unit)


def _prepare(
    fpfh: Fpfh, source: Tensor, target: Tensor, unit: float, common: bool = False
) -> _CloudPair | None:
    """Downsample both and estimate normals; None if one is too small. ICP needs a `common` origin."""
    p, q = downsample_to_metres(source, "source", unit), downsample_to_metres(target, "target", unit)
    if min(len(p), len(q)) < _MIN_POINTS:
        return None
    p_origin, q_origin = (q.mean(0), q.mean(0)) if common else (far_origin(p), far_origin(q))
    return _CloudPair(fpfh.cloud(p - p_origin), fpfh.cloud(q - q_origin), p_origin, q_origin)


class _FpfhMethod(ABC):
    """A method that estimates a pose from two clouds and their FPFH descriptors."""

    def __init__(self, oriented: bool) -> None:
        self._fpfh = Fpfh(oriented)

    def __call__(self, source: Tensor, target: Tensor, unit: float = 1.0, *, seed: int = 0) -> Tensor | None:
        """Estimate T_target_source (4, 4) float64 of source (N, 3) and target (M, 3); None if it fails."""
        pair = _prepare(self._fpfh, source, target, unit)
        if pair is None:
            return None
        features = [self._fpfh.features(cloud) for cloud in (pair.source, pair.target)]
        o3d = self._fpfh.open3d
        o3d.utility.random.seed(seed)
        result = self._solve(o3d.pipelines.registration, pair.source, pair.target, *features)
        return pair.to_scan_frames(result.transformation, unit) if result.fitness > 0 else None

    @abstractmethod
    def _solve(self, registration: Any, p: Any, q: Any, features_p: Any, features_q: Any) -> Any:
        """Run the method on Open3D clouds and their descriptors."""


class FpfhRansac(_FpfhMethod):
    """RANSAC on mutual matches of FPFH. It runs on one thread: same seed, same result."""

    def _solve(self, registration: Any, p: Any, q: Any, features_p: Any, features_q: Any) -> Any:
        return registration.registration_ransac_based_on_correspondence(
            p,
            q,
            registration.correspondences_from_features(features_p, features_q, True),
            _INLIER,
            registration.TransformationEstimationPointToPoint(False),
            3,
            [
                registration.CorrespondenceCheckerBasedOnEdgeLength(_EDGE_RATIO),
                registration.CorrespondenceCheckerBasedOnDistance(_INLIER),
            ],
            registration.RANSACConvergenceCriteria(_SAMPLES, _CONFIDENCE),
        )


class Fgr(_FpfhMethod):
    """Fast global registration (Zhou, Park, Koltun 2016), with a random tuple test."""

    def _solve(self, registration: Any, p: Any, q: Any, features_p: Any, features_q: Any) -> Any:
        option = registration.FastGlobalRegistrationOption(
            use_absolute_scale=True, maximum_correspondence_distance=_FGR_DISTANCE
        )
        return registration.registration_fgr_based_on_feature_matching(p, q, features_p, features_q, option)


class Icp:
    """Point-to-plane ICP from the identity, with decreasing correspondence distances."""

    def __init__(self) -> None:
        self._fpfh = Fpfh(oriented=False)  # only for clouds with normals; ICP does not depend on their signs

    def __call__(self, source: Tensor, target: Tensor, unit: float = 1.0, *, seed: int = 0) -> Tensor | None:
        """Estimate T_target_source (4, 4) float64 of source (N, 3) and target (M, 3); None if it fails."""
        registration = self._fpfh.open3d.pipelines.registration
        pair = _prepare(self._fpfh, source, target, unit, common=True)
        if pair is None:
            return None
        T_local = np.eye(4)
        for distance in _ICP_DISTANCES:
            result = registration.registration_icp(
                pair.source,
                pair.target,
                distance,
                T_local,
                registration.TransformationEstimationPointToPlane(),
                registration.ICPConvergenceCriteria(max_iteration=_ICP_ITERATIONS),
            )
            T_local = np.array(result.transformation)
        return pair.to_scan_frames(T_local, unit) if result.fitness > 0 else None
