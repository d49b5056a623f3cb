"""Result of the location of a scan in a map."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from wsdesc.registration.result import Pose, Registration


@dataclass(frozen=True, eq=False, repr=False)
class Location(Registration):
    """Pose of a scan in the coordinates of a map, and its confidence.

    It is a `Registration` whose source is the scan and whose target is the map. `overlap_target` and
    `described` refer to the part of the map at the pose. The confidence also depends on figures that only
    a map has; `evidence` holds those of a pair.
    """

    @property
    def T_map_scan(self) -> Pose:
        """(4, 4) rigid transformation from scan to map coordinates; the same as `T_target_source`."""
        return self.T_target_source

    def inverse(self) -> Registration:
        """Return the pose of the map in the frame of the scan."""
        return Registration(**{f.name: getattr(self, f.name) for f in fields(Registration)}).inverse()

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON. Infinite values become None."""
        return {"T_map_scan": self.T_map_scan.tolist(), **super().to_dict()}

    def __repr__(self) -> str:
        return super().__repr__().replace("Registration(", "Location(", 1)

    def __str__(self) -> str:
        text = super().__str__().replace("Registration:", "Location:", 1)
        return text.replace("T_target_source:", "T_map_scan:", 1)
