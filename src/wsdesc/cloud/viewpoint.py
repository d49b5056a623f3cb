"""Viewpoint of a scan: the position of the scanner, as given, read from the file or detected."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

import numpy as np
from numpy.typing import NDArray

from wsdesc.cloud.cloud import as_array
from wsdesc.cloud.viewpoint_detection import detect_viewpoint
from wsdesc.core.errors import InputError
from wsdesc.core.geometry import inverse, transform

ViewpointSource = Literal["given", "file", "detected"]

ViewpointOption = Literal["none"] | Sequence[float] | None
"""A position (x, y, z) in the scan's coordinates, "none" for no viewpoint, None to find it."""

MAX_DISTANCE = 100.0  # radii of the scan between its centre and a given viewpoint; farther is an error


@dataclass(frozen=True, eq=False)
class Viewpoint:
    """Position of the scanner.

    Attributes:
        position: (3,) float64, in the scan's coordinates.
        source: "given" by the user, from the "file", or "detected" in the points.
    """

    position: NDArray[np.float64]
    source: ViewpointSource

    @classmethod
    def read(cls, position: Any, source: str) -> Viewpoint:
        """Check and convert values from a file.

        Raises:
            InputError: The position is not three finite numbers, or the source is unknown.
        """
        if source not in get_args(ViewpointSource):
            raise InputError(f"the source of a viewpoint is unknown: {source!r}")
        return cls(check_viewpoint(position), cast(ViewpointSource, source))

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {"position": self.position.tolist(), "source": self.source}

    def __str__(self) -> str:
        if not self.position.any():
            return f"{self.source} at the origin"
        return f"{self.source} at ({', '.join(f'{value:.6g}' for value in self.position)})"


def check_viewpoint(position: Any, name: str = "viewpoint") -> NDArray[np.float64]:
    """Return a position as (3,) float64.

    Raises:
        InputError: It is not three finite numbers.
    """
    try:
        array = as_array(position).astype(np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} must be three numbers x, y, z, not {position!r}") from error
    if array.shape != (3,) or not np.isfinite(array).all():
        raise InputError(f"{name} must be three finite numbers x, y, z, not {position!r}")
    return array


def find_viewpoint(
    points: NDArray[Any],
    T_scan_local: NDArray[np.float64],
    wanted: ViewpointOption = None,
    in_file: NDArray[np.float64] | None = None,
    name: str = "viewpoint",
) -> Viewpoint | None:
    """Find the viewpoint of a scan.

    A given viewpoint is used as it is. Otherwise that of the file, then the origin is used, if the points
    look like a scan from there. Programs write other positions too, such as the centre of merged scans.

    Args:
        points: (N, 3), finite, in a local frame.
        T_scan_local: (4, 4), from the local frame to the scan's coordinates.
        wanted: Position in the scan's coordinates, "none", or None for the file's or the origin.
        in_file: (3,) position in the scan's coordinates that the file states.
        name: Name of the given position in error messages.

    Raises:
        InputError: The given position is not three finite numbers, or far from the scan.
    """
    if isinstance(wanted, str) and wanted == "none":
        return None
    T_local_scan = inverse(T_scan_local)
    if wanted is not None:
        position = check_viewpoint(wanted, name)
        distance = float(np.linalg.norm(transform(position[None], T_local_scan)[0]))
        radius = float(np.abs(points).max())
        if distance > MAX_DISTANCE * radius:
            raise InputError(
                f"{name} is {distance:.3g} away from the centre of a scan with a radius of {radius:.3g}: "
                "give the position of the scanner in the coordinates of the scan"
            )
        return Viewpoint(position, "given")
    origin = np.zeros(3)
    positions: list[tuple[NDArray[np.float64], ViewpointSource]] = [(origin, "detected")]
    if in_file is not None:
        positions.insert(0, (np.asarray(in_file, np.float64), "file"))
    for position, source in positions:
        if detect_viewpoint(points, transform(position[None], T_local_scan)[0]):
            return Viewpoint(position, source)
    return None
