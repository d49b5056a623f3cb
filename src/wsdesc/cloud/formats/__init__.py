"""File formats of point clouds, one module a family, loaded when a file of that family turns up.

A module has `read(path, faces) -> Reading`, where `faces` says whether triangles are wanted, and
`write(path, points, attributes)`. Both get a path with one of the module's extensions. They raise whatever
describes the trouble (a ValueError with the reason, mostly); `wsdesc.cloud.files` adds the file's name.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

# extension -> module of this package
_FAMILY = {
    ".ply": "ply",
    ".pcd": "pcd",
    ".xyz": "text",
    ".txt": "text",
    ".csv": "text",
    ".pts": "text",
    ".npy": "arrays",
    ".npz": "arrays",
    ".obj": "mesh",
    ".off": "mesh",
    ".stl": "mesh",
    ".las": "las",
    ".laz": "las",
    ".e57": "e57",
}
READABLE = tuple(_FAMILY)
WRITABLE = tuple(extension for extension in _FAMILY if extension != ".stl")
WITHOUT_ATTRIBUTES = (".npy", ".obj", ".off")  # written with coordinates only


class Reading(NamedTuple):
    """What a file holds: (N, 3) float64 points, attributes of N rows each, (F, 3) int64 triangles if any."""

    points: np.ndarray
    attributes: dict[str, np.ndarray]
    faces: np.ndarray | None = None


def module_for(extension: str) -> Any:
    """The module that reads and writes files with this (lower-case) extension."""
    return import_module(f"{__name__}.{_FAMILY[extension]}")
