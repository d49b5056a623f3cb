"""PLY, read and written with numpy's structured types.

Why not trimesh: it returns the points that are there when an ascii file is
cut off, refuses files whose faces are not all of one size or whose vertices have lists of several lengths,
and takes 0.9 GB for 10 million coloured points against 0.4 GB here. PLY should also be readable where only
numpy is installed.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

import numpy as np

from wsdesc.cloud.formats import Reading
from wsdesc.cloud.formats.columns import from_columns, to_columns
from wsdesc.cloud.formats.faces import check_faces, fans
from wsdesc.cloud.formats.ply_elements import read_element, skip_element
from wsdesc.cloud.formats.ply_header import Element, read_header
from wsdesc.cloud.formats.ply_lists import Columns
from wsdesc.core.errors import InputError


def read(path: Path, faces: bool) -> Reading:
    with path.open("rb") as file:
        order, elements = read_header(file)
        _check_size(file, path.stat().st_size, order, elements)
        wanted = {"vertex", "face"} if faces else {"vertex"}
        found: dict[str, Columns] = {}
        for element in elements:
            if element.name in wanted:
                found[element.name] = read_element(file, element, order)
                if wanted == found.keys():
                    break
            else:
                skip_element(file, element, order)
    if "vertex" not in found:
        raise ValueError("it has no element vertex")
    reading = from_columns({k: v for k, v in found["vertex"].items() if isinstance(v, np.ndarray)})
    if not found.get("face"):
        return reading
    return reading._replace(faces=check_faces(_triangles(found["face"]), len(reading.points)))


def _triangles(columns: Columns) -> np.ndarray:
    for name in ("vertex_indices", "vertex_index"):
        if name in columns:
            return fans(columns[name])
    raise ValueError(f"its faces have no vertex_indices (properties: {', '.join(columns)})")


def _check_size(file: BinaryIO, size: int, order: str, elements: list[Element]) -> None:
    """Refuse a header that promises more than the file can hold, before anything is allocated."""
    left = size - file.tell()
    needed = sum(element.rows * element.least_row_size(ascii=not order) for element in elements)
    if needed - (not order) > left:  # the last line of a text needs no end
        rows = ", ".join(f"{element.rows} × {element.name}" for element in elements)
        raise ValueError(f"it is cut off: the header promises {rows}, at least {needed} bytes, {left} follow")


_TYPE_NAMES = {
    "i1": "char",
    "u1": "uchar",
    "i2": "short",
    "u2": "ushort",
    "i4": "int",
    "u4": "uint",
    "f4": "float",
    "f8": "double",
}
_CHUNK = 1_000_000  # rows held twice while writing


def write(path: Path, points: np.ndarray, attributes: Mapping[str, np.ndarray]) -> None:
    columns = {name: _storable(name, column) for name, column in to_columns(points, attributes).items()}
    header = ["ply", "format binary_little_endian 1.0", f"element vertex {len(points)}"]
    header += [f"property {_TYPE_NAMES[c.dtype.str[1:]]} {name}" for name, c in columns.items()]
    row = np.dtype([(name, c.dtype.newbyteorder("<")) for name, c in columns.items()])
    with path.open("wb") as file:
        file.write(("\n".join([*header, "end_header"]) + "\n").encode("ascii"))
        for start in range(0, len(points), _CHUNK):
            rows = np.empty(min(_CHUNK, len(points) - start), row)
            for name, column in columns.items():
                rows[name] = column[start : start + _CHUNK]
            file.write(rows.data)


def _storable(name: str, column: np.ndarray) -> np.ndarray:
    """The column in a type that PLY has; 64-bit integers only as far as a smaller type holds them exactly."""
    if column.dtype.str[1:] in _TYPE_NAMES:
        return column
    for narrower in ("i4", "u4", "f8"):
        stored = column.astype(narrower)
        if np.array_equal(stored.astype(column.dtype), column):
            return stored
    raise InputError(f"attribute {name!r}: its {column.dtype} values do not fit into any type of PLY")
