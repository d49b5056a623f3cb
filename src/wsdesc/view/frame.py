"""The frame of a scene: its origin, its size and its up direction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, get_args

import numpy as np

from wsdesc.core.errors import InputError
from wsdesc.core.geometry import Floats
from wsdesc.view.geometry import QuaternionPose

Up = Literal["auto", "x", "-x", "y", "-y", "z", "-z"]

RADIUS = 2.0  # size of all aligned scans together; cameras and clipping planes suit it
_MAX_START_DISTANCE = 1.5  # radii between the start and the end of a scan
_CAMERA_ANGLE = 1.2  # tangent of the widest angle between a point and the axis of a depth camera


class SceneFrame(NamedTuple):
    """Transformation from the coordinates of aligned scans to those of a scene.

    A scene is centred, has the size `RADIUS`, and its third axis points up.
    """

    centre: Floats  # (3,)
    axes: Floats  # (3, 3) axes of the scene in the coordinates of the scans, in columns
    scale: float
    up: str  # "x", "-x", "y", …

    @classmethod
    def fit(cls, clouds: Sequence[Floats], up: Up = "auto") -> SceneFrame:
        """Fit a frame to aligned clouds (N, 3); the last one decides which direction is up."""
        if up not in get_args(Up):
            raise InputError(f"up must be one of {', '.join(get_args(Up))}, not {up!r}")
        of_camera = camera_up(clouds[-1])
        name = of_camera or "z" if up == "auto" else up
        points = np.concatenate(clouds)
        axes = _axes(points, _direction(name), name == of_camera)
        low, high = np.quantile(points @ axes, [0.004, 0.996], axis=0)  # without outliers
        size = float(np.linalg.norm(high - low) / 2) or 1.0
        return cls(axes @ ((low + high) / 2), axes, RADIUS / size, name)

    def pose(self, T: Floats, centre: Floats) -> QuaternionPose:
        """Convert the pose (4, 4) of a scan whose drawn points are relative to its `centre` (3,)."""
        position = T[:3, :3] @ centre + T[:3, 3] - self.centre
        return QuaternionPose.from_matrix(self.axes.T @ T[:3, :3], self.scale * (self.axes.T @ position))

    def start_pose(self, T: Floats, centre: Floats, end: QuaternionPose) -> QuaternionPose:
        """Convert the pose of a scan before its registration; distant scans are drawn closer."""
        start = self.pose(T, centre)
        offset = start.position - end.position
        if (distance := float(np.linalg.norm(offset))) > _MAX_START_DISTANCE * RADIUS:
            start = start._replace(position=end.position + offset * (_MAX_START_DISTANCE * RADIUS / distance))
        return start


def camera_up(points: Floats) -> str | None:
    """Return which direction is up if points (N, 3) are in the frame of a depth camera, else None.

    All points are ahead of a camera. If z points ahead, y points down; in the frames of OpenGL z points
    back, and y up.
    """
    for sign, up in ((1, "-y"), (-1, "y")):
        depth = sign * points[:, 2]
        narrow = np.abs(points[:, :2]).max(axis=1) < _CAMERA_ANGLE * depth
        if (depth > 0).mean() > 0.995 and narrow.mean() > 0.95:
            return up
    return None


def _direction(name: str) -> Floats:
    direction = np.zeros(3)
    direction["xyz".index(name[-1])] = -1.0 if name.startswith("-") else 1.0
    return direction


def _axes(points: Floats, up: Floats, camera: bool) -> Floats:
    """Return a rotation (3, 3) whose third column is `up`, and whose first is the longest horizontal one."""
    if camera:  # seen from where the camera was
        first = np.array([1.0, 0.0, 0.0])
    else:
        flat = points - points.mean(axis=0)
        flat = flat - np.outer(flat @ up, up)
        first = np.linalg.eigh(flat.T @ flat)[1][:, -1]
        first = first - up * (first @ up)
        if np.linalg.norm(first) < 0.5:  # all points are above each other
            first = np.roll(np.abs(up), 1)
        first = first * np.sign(first[np.abs(first).argmax()])
    first = first / np.linalg.norm(first)
    return np.stack([first, np.cross(up, first), up], axis=1)
