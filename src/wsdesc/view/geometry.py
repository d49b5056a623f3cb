"""Geometry for drawing: point reduction, spacing, principal axes, and interpolation between poses."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.spatial import cKDTree
from scipy.spatial.transform import Rotation

from wsdesc.core.geometry import Floats, cell_keys

NORMAL_NEIGHBOURS = 10  # points of a local plane; normals are only used for shading
_ROUNDS = 8  # bisections of the cell size in `thin_points`


class QuaternionPose(NamedTuple):
    """Pose of a drawn scan: the rotation about its centre, and the position of its centre."""

    wxyz: Floats  # (4,) unit quaternion
    position: Floats  # (3,)

    @classmethod
    def from_matrix(cls, rotation: Floats, position: Floats) -> QuaternionPose:
        """Convert a rotation matrix (3, 3) and a position (3,)."""
        x, y, z, w = Rotation.from_matrix(rotation).as_quat()
        return cls(np.array([w, x, y, z]), position)

    @property
    def rotation(self) -> Floats:
        """Rotation matrix (3, 3)."""
        return np.asarray(Rotation.from_quat(np.roll(self.wxyz, -1)).as_matrix())

    def apply(self, points: Floats) -> Floats:
        """Transform points (N, 3), given relative to the scan's centre."""
        return np.asarray(points @ self.rotation.T + self.position)


def interpolate(start: QuaternionPose, end: QuaternionPose, share: float) -> QuaternionPose:
    """Interpolate rigidly from `start` (share 0) to `end` (share 1).

    The position moves on a straight line, the rotation at constant speed on the shortest way.
    """
    a, b = start.wxyz, end.wxyz
    cosine = float(a @ b)
    if cosine < 0:  # the negative quaternion is the same rotation, on the shorter way
        b, cosine = -b, -cosine
    angle = np.arccos(min(cosine, 1.0))
    if angle < 1e-6:
        wxyz = (1 - share) * a + share * b
    else:
        wxyz = (np.sin((1 - share) * angle) * a + np.sin(share * angle) * b) / np.sin(angle)
    return QuaternionPose(wxyz / np.linalg.norm(wxyz), (1 - share) * start.position + share * end.position)


def thin_points(points: Floats, max_points: int) -> Floats:
    """Select at most `max_points` of the points (N, 3), spread evenly; always the same ones."""
    if len(points) <= max_points:
        return points
    # A random selection: a regular stride would keep the scanner's pattern.
    points = points[np.random.default_rng(0).permutation(len(points))[: 12 * max_points]]
    low, size = points.min(axis=0), float(np.ptp(points, axis=0).max()) or 1.0
    chosen = np.arange(max_points)
    fine, coarse = size / 4096, size
    for _ in range(_ROUNDS):
        cell = float(np.sqrt(fine * coarse))
        cells = np.minimum((points - low) / cell, 2**21 - 1).astype(np.int64)  # (N, 3)
        _, first = np.unique(cell_keys(cells), return_index=True)
        if len(first) > max_points:
            fine = cell
        else:
            coarse, chosen = cell, first
    if len(chosen) < max_points / 2:  # an outlier far away made all cells too large
        chosen = np.arange(max_points)
    return points[np.sort(chosen)]


def median_spacing(points: Floats) -> float:
    """Return the median distance between nearest neighbours, or 0 for fewer than two points."""
    if len(points) < 2:
        return 0.0
    nearest, _ = cKDTree(points).query(points, 2)
    return float(np.median(nearest[:, 1]))


def principal_axes(points: Floats) -> Floats:
    """Return the axes of largest, middle and smallest variance as columns of a rotation (3, 3).

    Signs are chosen so that the axes point along x, against y and against z where possible.
    """
    centred = points - points.mean(axis=0)
    _, vectors = np.linalg.eigh(centred.T @ centred)
    axes = vectors[:, ::-1]
    # Cameras look along z with y down: keep the side that faced them in front.
    strongest = np.abs(axes).argmax(axis=0)
    axes = axes * np.sign(axes[strongest, range(3)]) * np.array([1, -1, -1])
    if np.linalg.det(axes) < 0:
        axes[:, 0] = -axes[:, 0]
    return np.asarray(axes)
