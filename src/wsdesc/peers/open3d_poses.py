"""Poses by Open3D: RANSAC and fast global registration on FPFH, and ICP from where the clouds stand."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from wsdesc.peers.base import Floats, at_working_resolution, far_origin, in_the_clouds_frames
from wsdesc.peers.fpfh import Fpfh

_FEWEST = 10  # points below which a cloud has no shape to align
_INLIER = 0.05  # metres: RANSAC's threshold in the published experiments with WSDesc, too
_EDGES = 0.9  # least ratio of a sample's edges in both clouds, shorter over longer
_SAMPLES, _CONFIDENCE = 100_000, 0.999  # Open3D's defaults
_FGR_DISTANCE = 0.025  # metres, the resolution
_ICP_DISTANCES = (0.4, 0.2, 0.1, 0.05)  # metres, one run after the other: far first, then precise
_ICP_ITERATIONS = 50  # of each


class _Pair(NamedTuple):
    """Two of Open3D's clouds, in metres about their origins (3,)."""

    source: Any
    target: Any
    source_origin: Floats
    target_origin: Floats

    def placed(self, T_local: Any, unit: float) -> Tensor | None:
        """A motion between the two as one between the clouds they were made from."""
        return in_the_clouds_frames(np.array(T_local), self.source_origin, self.target_origin, unit)


def _prepare(fpfh: Fpfh, source: Tensor, target: Tensor, unit: float, common: bool = False) -> _Pair | None:
    """Downsampled clouds with normals; None if one is too small. A `common` origin keeps the identity."""
    p, q = at_working_resolution(source, "source", unit), at_working_resolution(target, "target", unit)
    if min(len(p), len(q)) < _FEWEST:
        return None
    p_origin, q_origin = (q.mean(0), q.mean(0)) if common else (far_origin(p), far_origin(q))
    return _Pair(fpfh.cloud(p - p_origin), fpfh.cloud(q - q_origin), p_origin, q_origin)


class _OnFpfh(ABC):
    """A motion from two clouds and their FPFH."""

    def __init__(self, oriented: bool) -> None:
        self._fpfh = Fpfh(oriented)

    def __call__(self, source: Tensor, target: Tensor, unit: float = 1.0, *, seed: int = 0) -> Tensor | None:
        """T_target_source (4, 4) float64 of source (N, 3) and target (M, 3), or None."""
        pair = _prepare(self._fpfh, source, target, unit)
        if pair is None:
            return None
        features = [self._fpfh.features(cloud) for cloud in (pair.source, pair.target)]
        o3d = self._fpfh.open3d
        o3d.utility.random.seed(seed)
        found = self._solve(o3d.pipelines.registration, pair.source, pair.target, *features)
        return pair.placed(found.transformation, unit) if found.fitness > 0 else None

    @abstractmethod
    def _solve(self, registration: Any, p: Any, q: Any, features_p: Any, features_q: Any) -> Any:
        """Open3D's result on its clouds and features."""


class FpfhRansac(_OnFpfh):
    """Mutual matches of FPFH, and the motion most of them agree on. One thread: same seed, same result."""

    def _solve(self, registration: Any, p: Any, q: Any, features_p: Any, features_q: Any) -> Any:
        return registration.registration_ransac_based_on_correspondence(
            p,
            q,
            registration.correspondences_from_features(features_p, features_q, True),
            _INLIER,
            registration.TransformationEstimationPointToPoint(False),
            3,
            [
                registration.CorrespondenceCheckerBasedOnEdgeLength(_EDGES),
                registration.CorrespondenceCheckerBasedOnDistance(_INLIER),
            ],
            registration.RANSACConvergenceCriteria(_SAMPLES, _CONFIDENCE),
        )


class Fgr(_OnFpfh):
    """Fast global registration (Zhou, Park, Koltun 2016). Its tuple test draws at random."""

    def _solve(self, registration: Any, p: Any, q: Any, features_p: Any, features_q: Any) -> Any:
        option = registration.FastGlobalRegistrationOption(
            use_absolute_scale=True, maximum_correspondence_distance=_FGR_DISTANCE
        )
        return registration.registration_fgr_based_on_feature_matching(p, q, features_p, features_q, option)


class Icp:
    """Point to plane, from the identity, over shrinking distances."""

    def __init__(self) -> None:
        self._fpfh = Fpfh(oriented=False)  # for its clouds with normals, whose sign does not matter here

    def __call__(self, source: Tensor, target: Tensor, unit: float = 1.0, *, seed: int = 0) -> Tensor | None:
        """T_target_source (4, 4) float64 of source (N, 3) and target (M, 3), or None."""
        registration = self._fpfh.open3d.pipelines.registration
        pair = _prepare(self._fpfh, source, target, unit, common=True)
        if pair is None:
            return None
        T_local = np.eye(4)
        for distance in _ICP_DISTANCES:
            found = registration.registration_icp(
                pair.source,
                pair.target,
                distance,
                T_local,
                registration.TransformationEstimationPointToPlane(),
                registration.ICPConvergenceCriteria(max_iteration=_ICP_ITERATIONS),
            )
            T_local = np.array(found.transformation)
        return pair.placed(T_local, unit) if found.fitness > 0 else None
