"""Geometry for drawing: point reduction, spacing, principal axes, and interpolation between poses."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree
from scipy.spatial.transform import Rotation

from wsdesc.core.geometry import Floats, cell_keys

NORMAL_NEIGHBOURS = 10  # points of a local plane; normals are only used for shading
_ROUNDS = 8  # bisections of the cell size in `thin_points`


class QuaternionPose(NamedTuple):
    """Pose of a drawn scan: the rotation about its centre, the position of its centre, and its size."""

    wxyz: Floats  # (4,) unit quaternion
    position: Floats  # (3,)
    scale: float = 1.0

    @classmethod
    def from_matrix(cls, matrix: Floats, position: Floats) -> QuaternionPose:
        """Convert a rotation (3, 3), perhaps scaled, and a position (3,)."""
        scale = float(np.cbrt(np.linalg.det(matrix)))
        x, y, z, w = Rotation.from_matrix(matrix / scale).as_quat()
        return cls(np.array([w, x, y, z]), position, 1.0 if abs(scale - 1) < 1e-6 else scale)

    @property
    def rotation(self) -> Floats:
        """Rotation matrix (3, 3)."""
        return np.asarray(Rotation.from_quat(np.roll(self.wxyz, -1)).as_matrix())

    def is_close(self, other: QuaternionPose) -> bool:
        """Return whether both poses are the same, up to rounding."""
        same = np.allclose(self.wxyz, other.wxyz) and np.allclose(self.position, other.position)
        return bool(same and np.isclose(self.scale, other.scale))

    def apply(self, points: Floats) -> Floats:
        """Transform points (N, 3), given relative to the scan's centre."""
        return np.asarray(self.scale * (points @ self.rotation.T) + self.position)


def interpolate(start: QuaternionPose, end: QuaternionPose, share: float) -> QuaternionPose:
    """Interpolate from `start` (share 0) to `end` (share 1), rigidly if both have the same scale.

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
    position = (1 - share) * start.position + share * end.position
    scale = start.scale ** (1 - share) * end.scale**share
    return QuaternionPose(wxyz / np.linalg.norm(wxyz), position, scale)


def thin_points(points: Floats, max_points: int) -> Floats:
    """Select at most `max_points` of the points (N, 3), spread evenly; always the same ones."""
    return points[thin_index(points, max_points)]


def thin_index(points: Floats, max_points: int) -> NDArray[np.int64]:
    """Return the indices of at most `max_points` of the points (N, 3), as `thin_points` selects them."""
    if len(points) <= max_points:
        return np.arange(len(points))
    # A random selection: a regular stride would keep the scanner's pattern.
    sample = np.random.default_rng(0).choice(len(points), min(len(points), 12 * max_points), replace=False)
    points = points[sample]
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
    return np.asarray(sample[np.sort(chosen)])


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
