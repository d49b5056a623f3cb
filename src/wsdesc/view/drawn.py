"""Scans reduced to their drawn points, with the units and warnings of their files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from wsdesc.cloud.cloud import Cloud
from wsdesc.cloud.units import different_units, extent, measure
from wsdesc.core.errors import InputError
from wsdesc.core.geometry import Floats
from wsdesc.view.colours import OwnColours, own_colours
from wsdesc.view.geometry import thin_index

_MIN_POINTS = 200  # drawn points per scan, also of many scans
_METRES = (".e57", ".ptx", ".bin")  # formats whose unit is the metre
_PATH = re.compile(r"(?<![\w.])(?:[A-Za-z]:)?[\\/](?:[^\s:;,\\/]+[\\/])+([^\s:;,\\/]+)")
_FIRST_FOLDERS = re.compile(r"^[^\s:;,]*[\\/](?=[^\s:;,\\/]+: )")  # of a relative path that begins a sentence
_UNIT = re.compile(rb'UNIT\["([^"]+)"', re.IGNORECASE)  # in the coordinate system of a LAS file


class DrawnCloud(NamedTuple):
    """The drawn points of a scan, and figures of the whole scan."""

    points: Floats  # (N, 3)
    total: int
    colours: OwnColours | None
    viewpoint: Floats | None
    unit: str

    @classmethod
    def of(cls, cloud: Cloud, max_points: int) -> DrawnCloud:
        """Thin a cloud to at most `max_points`."""
        index = thin_index(cloud.points, max_points)
        colours = own_colours(cloud.attributes, index)
        return cls(cloud.points[index], len(cloud), colours, cloud.viewpoint, unit_of(cloud))

    @property
    def centre(self) -> Floats:
        """Median (3,) of the points, about which the scan is rotated."""
        return np.asarray(np.median(self.points, axis=0))


def points_per_scan(max_points: int, scans: int = 1) -> int:
    """Divide the drawn points among scans; each has at least `_MIN_POINTS`."""
    return max(_MIN_POINTS, max_points // scans)


def unit_of(cloud: Cloud) -> str:
    """Return "m" if the file of a cloud states that its unit is the metre; otherwise an empty name."""
    if cloud.storage is None:
        return ""
    if cloud.storage.format in _METRES:
        return "m"
    named = {name.lower() for record in cloud.storage.crs for name in _UNIT.findall(record.data)}
    lengths = named - {b"degree", b"radian", b"grad"}
    return "m" if lengths and lengths <= {b"metre", b"meter", b"m"} else ""


def common_unit(clouds: Iterable[DrawnCloud]) -> str:
    """Return the name of the unit of several scans; empty if it is unknown or differs."""
    units = {cloud.unit for cloud in clouds}
    return units.pop() if len(units) == 1 else ""


def scan_facts(cloud: Cloud) -> list[str]:
    """Return lines about the size and the attributes of a scan."""
    size = " × ".join(f"{side:.4g}" for side in np.ptp(cloud.points, axis=0))
    names = ", ".join(cloud.attributes)
    return [f"size {size}", *([f"attributes: {names}"] if names else [])]


def hide_folders(sentence: str) -> str:
    """Shorten paths to the names of the files: a page may be shared."""
    return _FIRST_FOLDERS.sub("", _PATH.sub(r"\1", sentence))


def unit_warnings(clouds: Mapping[str, Floats]) -> list[str]:
    """Return a sentence if the scans cannot have the same unit of length."""
    extents = {name: extent(points) for name, points in clouds.items() if len(points) > 1}
    if len(extents) < 2:
        return []
    small, large = min(extents, key=extents.__getitem__), max(extents, key=extents.__getitem__)
    if different_units(extents[small], extents[large]) is None:
        return []
    return [
        f"The scans seem to have different units: the extent of {small} is {extents[small]:.3g}, that of "
        f"{large} {extents[large]:.3g}."
    ]


def scans_resolution(clouds: Sequence[Floats]) -> float:
    """Return the working resolution of scans; of too few points, a fiftieth of their extent."""
    try:
        return measure(*clouds).resolution
    except InputError:
        return float(np.ptp(np.concatenate(clouds), axis=0).max()) / 50 or 1.0
