"""Result of `wsdesc.find`: the instances of an object in a scene."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wsdesc.cloud.apply import apply_pose
from wsdesc.cloud.convert import Scan
from wsdesc.cloud.viewpoint import Viewpoint
from wsdesc.core.atomic import atomic_write
from wsdesc.core.errors import FileFormatError, InputError
from wsdesc.core.geometry import check_rigid
from wsdesc.core.json_file import read_object

SUCCESS = 0.9  # confidence of an instance
PLAUSIBLE = 0.05  # probability of an alternative
_LARGEST_FILE = 50_000_000  # bytes


@dataclass(frozen=True, eq=False)
class Instance:
    """One instance of the object in the scene.

    Attributes:
        T_scene_object: (4, 4) rigid transformation from object to scene coordinates, in their unit.
        confidence: Calibrated probability that the object is there in this pose, up to its symmetries.
        visible: Share of the object's surface that the scene shows, 0 … 1.
        rmse: Root mean square point-to-plane distance where object and scene touch, in their unit.
    """

    T_scene_object: NDArray[np.float64]
    confidence: float
    visible: float
    rmse: float

    def apply(self, scan: Scan) -> Any:
        """Move the object, or anything in its coordinates, into the scene, as `Registration.apply`."""
        return apply_pose(scan, self.T_scene_object)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "T_scene_object": self.T_scene_object.tolist(),
            "confidence": self.confidence,
            "visible": self.visible,
            "rmse": self.rmse if math.isfinite(self.rmse) else None,
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Instance:
        """Read the values of `to_dict`."""
        rmse = values["rmse"]
        return cls(
            check_rigid(values["T_scene_object"], "T_scene_object"),
            float(values["confidence"]),
            float(values["visible"]),
            math.inf if rmse is None else float(rmse),
        )

    def __repr__(self) -> str:
        at = ", ".join(f"{x:.4g}" for x in self.T_scene_object[:3, 3])
        return f"Instance(confidence={self.confidence:.3f}, visible={self.visible:.2f}, at=({at}))"


@dataclass(frozen=True, eq=False)
class Finding:
    """Instances of an object in a scene.

    Attributes:
        instances: Instances with a confidence of at least 0.9, most probable first.
        alternatives: Other plausible poses, most probable first.
        diameter: Diameter of the object, in the unit of the files.
        resolution: Working resolution, in the same unit.
        viewpoint: Viewpoint of the scene whose free space was used; None if it is not known.
        warnings: Sentences about the result: why nothing was found, and what to try next.
        timings: Seconds of each step.
    """

    instances: list[Instance]
    alternatives: list[Instance]
    diameter: float
    resolution: float
    viewpoint: Viewpoint | None = None
    warnings: list[str] = field(default_factory=list)
    timings: dict[str, float] = field(default_factory=dict)

    @property
    def success(self) -> bool:
        """True if at least one instance was found."""
        return bool(self.instances)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "success": self.success,
            "instances": [instance.to_dict() for instance in self.instances],
            "alternatives": [instance.to_dict() for instance in self.alternatives],
            "diameter": self.diameter,
            "resolution": self.resolution,
            "viewpoint": None if self.viewpoint is None else self.viewpoint.to_dict(),
            "warnings": self.warnings,
            "timings": {name: round(seconds, 4) for name, seconds in self.timings.items()},
        }

    def save(self, path: str | Path) -> None:
        """Write the result to a .json file."""
        if Path(path).suffix.lower() != ".json":
            raise FileFormatError(f"{path}: a finding is saved as .json")
        with atomic_write(path) as temporary:
            temporary.write_text(json.dumps(self.to_dict(), indent=2) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> Finding:
        """Read a .json file that `save` wrote.

        Raises:
            FileFormatError: The file cannot be read, or is not a finding.
        """
        invalid = "not a finding that `Finding.save` wrote"
        values = read_object(path, largest=_LARGEST_FILE, kind="a finding", invalid=invalid)
        try:
            viewpoint = values["viewpoint"]
            return cls(
                [Instance.from_dict(instance) for instance in values["instances"]],
                [Instance.from_dict(instance) for instance in values["alternatives"]],
                float(values["diameter"]),
                float(values["resolution"]),
                None if viewpoint is None else Viewpoint.read(viewpoint["position"], viewpoint["source"]),
                [str(warning) for warning in values["warnings"]],
                {str(name): float(seconds) for name, seconds in values["timings"].items()},
            )
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError, InputError) as error:
            raise FileFormatError(f"{path}: {invalid}") from error

    def __repr__(self) -> str:
        best = max((i.confidence for i in [*self.instances, *self.alternatives]), default=0.0)
        return f"Finding(instances={len(self.instances)}, best confidence={best:.3f})"
