"""The interface of all virtual sensors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from wsdesc.core.geometry import Floats, make_pose
from wsdesc.datasets.synthetic.camera import Scene
from wsdesc.datasets.synthetic.scanning import SyntheticScan
from wsdesc.datasets.synthetic.shapes import rotation

Rng: TypeAlias = np.random.Generator


class GlazedScene(Scene, Protocol):
    """A scene with panes."""

    @property
    def glass(self) -> NDArray[np.bool_]:
        """Whether each item (M,) is glass."""


@dataclass(frozen=True)
class Heading:
    """Orientation of a sensor that looks along x, in radians; positive pitch looks down."""

    yaw: float
    pitch: float = 0.0
    roll: float = 0.0

    @property
    def matrix(self) -> Floats:
        """The rotation R_world_sensor (3, 3)."""
        return rotation(self.yaw, self.pitch, self.roll)

    def pose(self, at: Floats, axes: Floats | None = None) -> Floats:
        """Compute the pose T_world_sensor (4, 4) at a position (3,); `axes` (3, 3) change the frame."""
        return make_pose(self.matrix if axes is None else np.einsum("ij,jk->ik", self.matrix, axes), at)


class Sensor(Protocol):
    """One device with its fixed properties."""

    @property
    def name(self) -> str:
        """One of `SENSORS`."""

    @property
    def height(self) -> tuple[float, float]:
        """Range of heights above the ground, in metres."""

    @property
    def tilt(self) -> float:
        """Standard deviation of pitch and roll, in radians."""

    @property
    def reach(self) -> tuple[float, float]:
        """Shortest and longest measured range, in metres."""

    @property
    def aimed(self) -> bool:
        """Whether the sensor looks in one direction only."""

    @property
    def probe(self) -> Floats:
        """A few unit rays (P, 3) that cover the field of view; x is forward, z is up."""

    def scan(self, scene: GlazedScene, at: Floats, heading: Heading, rng: Rng) -> SyntheticScan:
        """Scan from a position (3,)."""
