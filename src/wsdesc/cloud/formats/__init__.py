"""File formats of point clouds, one module per family, imported with the first file of that family.

Each module has `read(path, faces) -> FileContent`, where `faces` requests the triangles. Modules of writable
formats have `write(path, points, attributes)`. Some formats take further arguments: see `WITH_STATIONS`,
`WITH_STORAGE` and `WITH_VIEWPOINT`. Both functions get a path with one of the module's extensions. They raise
a ValueError with the reason; `wsdesc.cloud.files` adds the name of the file and a remedy.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

from wsdesc.cloud.storage import Storage

# extension -> module of this package
_FAMILY = {
    ".ply": "ply",
    ".pcd": "pcd",
    ".xyz": "text",
    ".txt": "text",
    ".csv": "text",
    ".pts": "text",
    ".asc": "text",
    ".xyzn": "text",
    ".xyzrgb": "text",
    ".npy": "arrays",
    ".npz": "arrays",
    ".obj": "mesh",
    ".off": "mesh",
    ".stl": "mesh",
    ".las": "las",
    ".laz": "las",
    ".e57": "e57",
    ".ptx": "ptx",
    ".bin": "kitti",
    ".vtk": "vtk",
    ".vtp": "vtp",
    ".gltf": "gltf",
    ".glb": "gltf",
}
_READ_ONLY = (".xyzn", ".xyzrgb", ".stl", ".ptx", ".vtk", ".vtp", ".gltf", ".glb")
READABLE = tuple(_FAMILY)
WRITABLE = tuple(extension for extension in _FAMILY if extension not in _READ_ONLY)
WITH_STATIONS = (".e57", ".ptx")  # `read` takes the number of a station; the module has `count_stations`
SINGLE = Storage(single=True)  # float32 coordinates
WITH_STORAGE = (".las", ".laz")  # `write` takes the `Storage` of the cloud
WITH_VIEWPOINT = (".pcd", ".e57", ".npz")  # `write` takes the position of the scanner
WITHOUT_ATTRIBUTES = (".npy", ".obj", ".off")  # written with coordinates only


class FileContent(NamedTuple):
    """Content of a file before any check of the numbers."""

    points: np.ndarray  # (N, 3) float64
    attributes: dict[str, np.ndarray]  # name -> array with N rows
    faces: np.ndarray | None = None  # (F, 3) int64 triangles, if wanted
    storage: Storage = Storage()
    viewpoint: np.ndarray | None = None  # (3,) position of the scanner, if the file states it
    sampled: bool = False  # whether the file states that no scanner saw the points

    def finite(self) -> FileContent:
        """Drop points that are not finite, and the faces around them."""
        keep = np.isfinite(self.points).all(axis=1)
        faces = self.faces
        if faces is not None:
            faces = (np.cumsum(keep) - 1)[faces[keep[faces].all(axis=1)]]
        attributes = {name: values[keep] for name, values in self.attributes.items()}
        return self._replace(points=self.points[keep], attributes=attributes, faces=faces)


def no_station(station: int, count: int) -> str:
    """Return the message that a file has no station of this number."""
    return f"the file has {count} stations, there is no station {station}; choose a number from 1 to {count}"


def module_for(extension: str) -> Any:
    """Import the module that reads and writes files with this (lower-case) extension."""
    return import_module(f"{__name__}.{_FAMILY[extension]}")
