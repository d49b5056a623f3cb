"""Virtual sensors: spinning, terrestrial and solid-state laser scanners, depth cameras, range scanners.

The noise grows with the range, grazing and dark surfaces lose returns, panes let most rays through, and the
sky returns nothing. The origin of a scan is the viewpoint of its sensor, except where images are fused or
rays are parallel.
"""

from __future__ import annotations

from collections.abc import Callable

from wsdesc.datasets.synthetic.sensors.imaging import (
    depth_camera,
    fused_camera,
    orthographic,
    structured_light,
)
from wsdesc.datasets.synthetic.sensors.laser import solid_state, spinning, terrestrial
from wsdesc.datasets.synthetic.sensors.sensor import Heading, Rng, Sensor

__all__ = ["SENSORS", "Heading", "Sensor", "draw_sensor"]

_MAKERS: dict[str, Callable[[Rng], Sensor]] = {
    "lidar16": lambda rng: spinning(16, rng),
    "lidar32": lambda rng: spinning(32, rng),
    "lidar64": lambda rng: spinning(64, rng),
    "lidar128": lambda rng: spinning(128, rng),
    "terrestrial": terrestrial,
    "solid_state": solid_state,
    "depth_camera": depth_camera,
    "fused_camera": fused_camera,
    "structured_light": structured_light,
    "orthographic": orthographic,
}
SENSORS = tuple(_MAKERS)


def draw_sensor(name: str, rng: Rng) -> Sensor:
    """Draw a device of a kind: its optics, range and errors."""
    return _MAKERS[name](rng)
