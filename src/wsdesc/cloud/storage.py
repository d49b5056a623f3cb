"""The storage of a cloud in its file, so that `write_cloud` can write a changed cloud in the same way."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple


class Record(NamedTuple):
    """A record of a LAS file that describes the coordinate system."""

    number: int
    description: str
    data: bytes


class ExtraDimension(NamedTuple):
    """An attribute of a LAS file that the format itself does not define."""

    name: str
    type: str  # as laspy names it
    description: str
    offsets: tuple[float, ...] | None
    scales: tuple[float, ...] | None


class LasStorage(NamedTuple):
    """Properties of a LAS file."""

    point_format: int
    version: str
    scale: float  # finest of the three axes
    global_encoding: int
    extra: tuple[ExtraDimension, ...]


@dataclass(frozen=True)
class Storage:
    """How a file stores a cloud.

    Attributes:
        format: Extension of the file, such as ".ply".
        single: Whether the coordinates are float32.
        rounding: Largest rounding error of float32 coordinates, in their unit.
        las: Properties of a LAS file.
        crs: Coordinate system, as records of a LAS file.
    """

    format: str = ""
    single: bool = False
    rounding: float = 0.0
    las: LasStorage | None = None
    crs: tuple[Record, ...] = ()

    def with_crs_of(self, other: Storage | None) -> Storage:
        """Return a copy with the coordinate system of another file, if that has one."""
        return self if other is None or not other.crs else replace(self, crs=other.crs)
