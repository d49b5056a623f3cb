"""Legacy VTK files (.vtk), text or binary: points, point data, and polygons if wanted.

The sections follow each other without a directory, so that all of them are parsed. Binary numbers are big
endian. Grids without explicit points are rejected.
"""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn
from urllib.parse import unquote

import numpy as np

from wsdesc.cloud.formats import SINGLE, FileContent
from wsdesc.cloud.formats.faces import Ragged, check_faces, strip_triangles, triangulate
from wsdesc.cloud.formats.limits import check_columns
from wsdesc.cloud.formats.vtk_sections import Sections, read_header
from wsdesc.cloud.storage import Storage

_POINT_SETS = ("POLYDATA", "UNSTRUCTURED_GRID", "STRUCTURED_GRID")
_CELLS = ("VERTICES", "LINES", "POLYGONS", "TRIANGLE_STRIPS", "CELLS")
_SURFACE_CELLS = (5, 7, 8, 9)  # triangle, polygon, pixel, quad
_PIXEL = 8  # corners in the order of rows
_COMPONENTS = {"NORMALS": 3, "VECTORS": 3, "TENSORS": 9}


def read(path: Path, faces: bool) -> FileContent:
    with path.open("rb") as file:
        binary = read_header(file)
        return _Reader(Sections(file.read(), binary)).read(faces)


class _Reader:
    """Parser of the sections after the header."""

    def __init__(self, sections: Sections) -> None:
        self.sections = sections
        self.points: np.ndarray | None = None
        self.attributes: dict[str, np.ndarray] = {}
        self.cells: dict[str, Ragged] = {}
        self.cell_types: np.ndarray | None = None
        self.owner, self.count = "", 0  # POINT_DATA or CELL_DATA, and its number of rows

    def read(self, faces: bool) -> FileContent:
        while words := self.sections.keyword():
            if not self._section(words):
                break
        if self.points is None:
            raise ValueError("the file has no section POINTS")
        count = len(self.points)
        attributes = {name: values for name, values in self.attributes.items() if len(values) == count}
        faces_read = self._faces() if faces else None
        storage = SINGLE if self.points.dtype == np.float32 else Storage()
        return FileContent(self.points.astype(np.float64), attributes, faces_read, storage)

    def _section(self, words: list[str]) -> bool:
        """Parse one section; return False if the rest of the file cannot be parsed."""
        match [words[0].upper(), *words[1:]]:
            case ["DATASET", kind, *_]:
                if kind.upper() not in _POINT_SETS:
                    raise ValueError(f"the dataset {kind[:40]} has no explicit points")
            case ["POINTS", count, kind]:
                self.points = self.sections.table(_number(count), 3, kind)
            case [name, count, size] if name in _CELLS:
                self.cells[name] = self.sections.cells(_number(count), _number(size))
            case ["CELL_TYPES", count]:
                self.cell_types = self.sections.table(_number(count), 1, "int")
            case ["POINT_DATA" | "CELL_DATA" as owner, count]:
                self.owner, self.count = owner, _number(count)
            case ["FIELD", _, count]:
                return self._field(_number(count))
            case ["METADATA", *_]:
                self.sections.skip_metadata()
            case ["DIMENSIONS", *_]:
                pass
            case _:
                return self._data(words)
        return True

    def _data(self, words: list[str]) -> bool:
        """Parse an array of point data or cell data."""
        match [words[0].upper(), *words[1:]]:
            case ["SCALARS", name, kind, *width]:
                self.sections.lookup_table()
                self._add(name, self.sections.table(self.count, _number(*width) if width else 1, kind))
            case ["NORMALS" | "VECTORS" | "TENSORS" as section, name, kind]:
                values = self.sections.table(self.count, _COMPONENTS[section], kind)
                self._add("normals" if section == "NORMALS" else name, values)
            case ["TEXTURE_COORDINATES", name, width, kind]:
                self._add(name, self.sections.table(self.count, _number(width), kind))
            case ["COLOR_SCALARS", _, width]:
                kind = "unsigned_char" if self.sections.binary else "float"
                colors = self.sections.table(self.count, _number(width), kind)[:, :3]  # without opacity
                self._add("colors", colors if self.sections.binary else _as_bytes(colors))
            case ["LOOKUP_TABLE", _, count]:
                self.sections.table(_number(count), 4, "unsigned_char" if self.sections.binary else "float")
            case _:
                _reject(words)
        return True

    def _field(self, arrays: int) -> bool:
        check_columns(arrays)
        for _ in range(arrays):
            words = self.sections.keyword()
            if words[:1] == ["METADATA"]:
                self.sections.skip_metadata()
                words = self.sections.keyword()
            if len(words) != 4:
                _reject(words)
            name, width, rows, kind = words
            if kind.lower() in ("string", "variant", "bit"):
                return False  # without a length, the end of the array is unknown
            self._add(name, self.sections.table(_number(rows), _number(width), kind))
        return True

    def _add(self, name: str, values: np.ndarray) -> None:
        check_columns(len(self.attributes) + 1)
        if self.owner == "POINT_DATA":
            self.attributes[unquote(name)] = values[:, 0] if values.shape[1] == 1 else values

    def _faces(self) -> np.ndarray:
        parts = [np.empty((0, 3), np.int64)]
        if "POLYGONS" in self.cells:
            parts.append(triangulate(self.cells["POLYGONS"]))
        if "TRIANGLE_STRIPS" in self.cells:
            parts.append(strip_triangles(self.cells["TRIANGLE_STRIPS"]))
        if "CELLS" in self.cells and self.cell_types is not None:
            parts.append(self._surface_cells(self.cells["CELLS"], self.cell_types[:, 0]))
        assert self.points is not None
        return check_faces(np.concatenate(parts), len(self.points))

    @staticmethod
    def _surface_cells(cells: Ragged, types: np.ndarray) -> np.ndarray:
        if len(types) != len(cells.lengths):
            raise ValueError(f"there are {len(cells.lengths)} cells, but {len(types)} cell types")
        keep = np.isin(types, _SURFACE_CELLS)
        values = cells.values.copy()
        starts = np.cumsum(cells.lengths) - cells.lengths
        for start in starts[(types == _PIXEL) & (cells.lengths == 4)]:
            values[start + 2 : start + 4] = values[start + 2 : start + 4][::-1]
        return triangulate(Ragged(values[np.repeat(keep, cells.lengths)], cells.lengths[keep]))


def _number(word: str) -> int:
    if not word.isdecimal() or len(word) > 18:
        raise ValueError(f"{word[:40]!r} is not a count")
    return int(word)


def _as_bytes(colors: np.ndarray) -> np.ndarray:
    with np.errstate(invalid="ignore"):
        return np.asarray(np.nan_to_num(np.clip(colors * 255, 0, 255)).round(), np.uint8)


def _reject(words: list[str]) -> NoReturn:
    raise ValueError(f"unknown section {' '.join(words)[:60]!r}")
