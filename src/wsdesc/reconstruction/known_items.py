"""Known poses, control points and up directions as factors of a pose graph, in model metres.

All of them measure the pose of a scan in the world. They differ in the directions that they determine: a
known pose all six, a control point the position of one point, up the tilt.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy.spatial.transform import Rotation

from wsdesc.cloud.local_frame import in_local_frames
from wsdesc.cloud.units import INDOOR_RESOLUTION
from wsdesc.core.geometry import Floats, inverse, transform
from wsdesc.reconstruction.known import Kind, Known
from wsdesc.reconstruction.least_squares import Factor

KNOWN_OUTLIER = 5.0  # standard deviations at which something known is left out
_EXACT = 1e-4  # metres and radians: standard deviation of the pose of a reference scan
_NEVER = 1e6  # standard deviations: a reference scan is never left out
_DRIFT = 2 * INDOOR_RESOLUTION  # metres that a component may be bent before known items pull it straight
_DRIFT_SHARE = 0.01  # the same as a share of the distance
_BENT = math.radians(2.0)
UP = np.array([0.0, 0.0, 1.0])  # in the world


class KnownItem(NamedTuple):
    """One known pose, control point or up direction."""

    kind: Kind
    scan: int
    name: str
    T_world_scan: Floats  # (4, 4) known pose; of a control point a translation; of up a rotation
    point: Floats  # (3,) in the scan: the scanner, the control point; of up the direction
    length: float  # standard deviation of the position
    angle: float  # standard deviation of the rotation, in radians
    exact: bool = False  # whether it belongs to the reference scan
    tilted: bool = False  # whether the tilt of the pose is not known

    def world_point(self) -> Floats:
        """Return where the point (3,) should be in the world."""
        return np.asarray(transform(self.point[None], self.T_world_scan)[0])

    def factor(self, world: int, T_world_scan: Floats) -> Factor:
        """Return the factor between the scan and the node `world`, near an approximate pose (4, 4)."""
        root, T, centre = np.zeros((6, 6)), self.T_world_scan, np.zeros(3)
        if self.kind == "up":
            # Of all poses that level the scan, take the one next to the approximate pose.
            R = T_world_scan[:3, :3]
            T = T_world_scan.copy()
            T[:3, :3] = rotation_between(R @ self.point, UP) @ R
            root[3, 3] = root[4, 4] = 1 / self.angle
        else:
            root[:3, :3] = np.eye(3) / self.length
            centre = self.world_point()
        if self.kind == "pose":
            root[3:, 3:] = np.diag([not self.tilted, not self.tilted, True]) / self.angle
        return Factor(self.scan, world, T, centre, 1.0, root, _NEVER if self.exact else KNOWN_OUTLIER)

    def errors(self, T_world_scan: Floats) -> tuple[float, float]:
        """Return the distance, and the angle in radians, between a pose (4, 4) and what is known."""
        R = T_world_scan[:3, :3]
        if self.kind == "up":
            return 0.0, float(np.arccos(np.clip((R @ self.point) @ UP, -1.0, 1.0)))
        distance = np.linalg.norm(transform(self.point[None], T_world_scan)[0] - self.world_point())
        angle = 0.0
        if self.kind == "pose":
            angle = Rotation.from_matrix(R @ self.T_world_scan[:3, :3].T).magnitude()
        return float(distance), float(angle)

    def agreement(self, T_world_scan: Floats, near: Floats) -> float:
        """Return 1 for a pose that satisfies the item, 0 for one that does not, and numbers between.

        The tolerance admits a component that is slightly bent, more so far away from the point `near`.
        """
        distance, angle = self.errors(T_world_scan)
        away = 0.0 if self.kind == "up" else float(np.linalg.norm(self.world_point() - near))
        worst = angle / (KNOWN_OUTLIER * self.angle + _BENT)
        if self.kind != "up":
            worst = max(worst, distance / (KNOWN_OUTLIER * self.length + _DRIFT + _DRIFT_SHARE * away))
        return max(0.0, 1 - worst**2)


def known_items(
    known: Known, index: Mapping[str, int], T_scan_local: Sequence[Floats], offset: Floats, metre: float
) -> list[KnownItem]:
    """Convert what is known to local frames of scans, in model metres.

    Args:
        known: With all standard deviations.
        index: Number of each usable scan, by name. Other scans are left out.
        T_scan_local: Local frames of the scans, in file coordinates.
        offset: (3,) world coordinates of the world's origin in the pose graph.
        metre: Length of a model metre, in the scans' unit.
    """
    o = known.options
    assert o.prior_sigma is not None
    assert o.control_sigma is not None
    T_world_local = np.eye(4)
    T_world_local[:3, 3] = offset
    items = []
    for name, prior in known.poses.items():
        if name not in index:
            continue
        local = T_scan_local[index[name]]
        T = in_local_frames(prior.T_world_scan, local, T_world_local)
        T[:3, 3] /= metre
        station = np.zeros(3) if prior.station is None else transform(prior.station[None], inverse(local))[0]
        exact = name == known.reference
        length, angle = (_EXACT, _EXACT) if exact else (o.prior_sigma / metre, math.radians(o.prior_angle))
        items.append(KnownItem("pose", index[name], "", T, station / metre, length, angle, exact))
    for row, point in enumerate(known.control):
        if point.scan not in index:
            continue
        local = T_scan_local[index[point.scan]]
        p = transform(np.array(point.point)[None], inverse(local))[0] / metre
        T = np.eye(4)
        T[:3, 3] = (np.array(point.world) - offset) / metre - p
        length = (point.sigma or o.control_sigma) / metre
        name = point.name or f"{row + 1}"
        items.append(KnownItem("control", index[point.scan], name, T, p, length, math.inf))
    for name, direction in known.up.items():
        if name in index:
            u = T_scan_local[index[name]][:3, :3].T @ np.array(direction)
            angle = math.radians(o.up_angle)
            items.append(KnownItem("up", index[name], "", np.eye(4), u, math.inf, angle))
    return items


def level_item(scan: int, T_world_scan: Floats) -> KnownItem:
    """Return an item that fixes position and heading of a scan, for components of which only up is known."""
    return KnownItem("pose", scan, "", T_world_scan, np.zeros(3), _EXACT, _EXACT, exact=True, tilted=True)


def rotation_between(a: Floats, b: Floats) -> Floats:
    """Return the smallest rotation (3, 3) that turns the unit vector a (3,) into b (3,)."""
    axis = np.cross(a, b)
    sine, cosine = float(np.linalg.norm(axis)), float(a @ b)
    if sine < 1e-12:
        axis, sine = np.cross(a, np.eye(3)[np.abs(a).argmin()]), max(sine, 1e-300)
    angle = math.atan2(sine if sine > 1e-12 else 0.0, cosine)
    return np.asarray(Rotation.from_rotvec(axis / np.linalg.norm(axis) * angle).as_matrix())
