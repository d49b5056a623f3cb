"""FPFH descriptors of Open3D (Rusu, Blodow, Beetz 2009), 33 numbers per keypoint.

FPFH depends on the sign of normals. Oriented normals point to the origin of the scan's coordinates, where a
depth camera stands. Unoriented normals have the signs of eigenvectors, which change with a rotation of the
scan. Scans of unknown viewpoint have unoriented normals.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from scipy.spatial import cKDTree
from torch import Tensor

from wsdesc.cloud.neighbours import check_points
from wsdesc.core.geometry import Floats, check_length
from wsdesc.peers.base import far_origin, load_package

SYSTEM = "libusb-1.0-0 libgl1 libgomp1"  # Debian packages that Open3D's wheel needs
# Metres, the best of six settings on indoor/train. The number of neighbours is not limited, because limits of
# 30 and 100 halve the inlier ratio.
NORMAL_RADIUS, FEATURE_RADIUS = 0.15, 0.35


def load_open3d() -> Any:
    """Import Open3D, which then prints only errors."""
    open3d = load_package("open3d", "Open3D", SYSTEM)
    open3d.utility.set_verbosity_level(open3d.utility.VerbosityLevel.Error)
    return open3d


class Fpfh:
    """A descriptor peer: the FPFH of the point nearest to each keypoint."""

    def __init__(self, oriented: bool) -> None:
        self.open3d = load_open3d()
        self.oriented = oriented

    def __call__(self, points: Tensor, keypoints: Tensor, unit: float = 1.0) -> Tensor:
        """Compute descriptors (K, 33) float32 of `keypoints` (K, 3) in `points` (N, 3)."""
        check_length(unit, "the unit")
        check_points(points)
        check_points(keypoints, "keypoints")
        metres = points.detach().cpu().double().numpy() / unit
        origin = far_origin(metres)
        cloud = self.cloud(metres - origin)
        features = np.asarray(self.features(cloud).data).T  # (N, 33)
        _, row = cKDTree(metres).query(keypoints.detach().cpu().double().numpy() / unit)
        return torch.from_numpy(np.ascontiguousarray(features[row], np.float32))

    def cloud(self, metres: Floats) -> Any:
        """Convert points (N, 3) to an Open3D cloud with normals."""
        o3d = self.open3d
        cloud = o3d.geometry.PointCloud(o3d.utility.Vector3dVector(metres))
        cloud.estimate_normals(o3d.geometry.KDTreeSearchParamRadius(NORMAL_RADIUS))
        if self.oriented:
            cloud.orient_normals_towards_camera_location(np.zeros(3))
        return cloud

    def features(self, cloud: Any) -> Any:
        """Compute the FPFH of all points of an Open3D cloud."""
        o3d = self.open3d
        search = o3d.geometry.KDTreeSearchParamRadius(FEATURE_RADIUS)
        return o3d.pipelines.registration.compute_fpfh_feature(cloud, search)
