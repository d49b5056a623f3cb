"""FPFH by Open3D (Rusu, Blodow, Beetz 2009): 33 numbers a keypoint.

Its histograms see the sign of normals. Oriented, they look to the origin of the cloud's coordinates, where
the camera of a depth scan stands; unoriented, their signs are those of the eigenvectors, which change when
a cloud is turned. That is what a cloud of unknown viewpoint leaves.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from scipy.spatial import cKDTree
from torch import Tensor

from wsdesc.cloud.neighbours import check_points
from wsdesc.peers.base import Floats, check_unit, far_origin, load_package

SYSTEM = "libusb-1.0-0 libgl1 libgomp1"  # what Open3D's wheel leaves to the system, as Debian names it
# Metres, chosen on indoor/train of six settings. All neighbours count: with the tutorial's limits of 30 and
# 100 neighbours, within 0.1 and 0.25, the inlier ratio was 13 %, with all within 0.1 and 0.3 it was 26 %
# (31 pairs, oriented).
NORMAL_RADIUS, FEATURE_RADIUS = 0.15, 0.35


def load_open3d() -> Any:
    """The module, told to print errors alone: benchmarks read their own output."""
    open3d = load_package("open3d", "Open3D", SYSTEM)
    open3d.utility.set_verbosity_level(open3d.utility.VerbosityLevel.Error)
    return open3d


class Fpfh:
    """A descriptor peer: the feature of the cloud's point nearest to each keypoint."""

    def __init__(self, oriented: bool) -> None:
        self.open3d = load_open3d()
        self.oriented = oriented

    def __call__(self, points: Tensor, keypoints: Tensor, unit: float = 1.0) -> Tensor:
        """Features (K, 33) float32 of `keypoints` (K, 3) in the cloud `points` (N, 3)."""
        check_unit(unit)
        check_points(points)
        check_points(keypoints, "keypoints")
        metres = points.detach().cpu().double().numpy() / unit
        origin = far_origin(metres)
        cloud = self.cloud(metres - origin)
        features = np.asarray(self.features(cloud).data).T  # (N, 33)
        _, row = cKDTree(metres).query(keypoints.detach().cpu().double().numpy() / unit)
        return torch.from_numpy(np.ascontiguousarray(features[row], np.float32))

    def cloud(self, metres: Floats) -> Any:
        """Points (N, 3) as Open3D's cloud, with normals."""
        o3d = self.open3d
        cloud = o3d.geometry.PointCloud(o3d.utility.Vector3dVector(metres))
        cloud.estimate_normals(o3d.geometry.KDTreeSearchParamRadius(NORMAL_RADIUS))
        if self.oriented:
            cloud.orient_normals_towards_camera_location(np.zeros(3))
        return cloud

    def features(self, cloud: Any) -> Any:
        """Open3D's features of all points of its cloud."""
        o3d = self.open3d
        search = o3d.geometry.KDTreeSearchParamRadius(FEATURE_RADIUS)
        return o3d.pipelines.registration.compute_fpfh_feature(cloud, search)
