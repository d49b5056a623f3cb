"""Parser of the header of a PLY file: elements, numbers of rows, properties."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import BinaryIO

import numpy as np

_TYPES = {
    "char": "i1",
    "uchar": "u1",
    "short": "i2",
    "ushort": "u2",
    "int": "i4",
    "uint": "u4",
    "float": "f4",
    "double": "f8",
    "int8": "i1",
    "uint8": "u1",
    "int16": "i2",
    "uint16": "u2",
    "int32": "i4",
    "uint32": "u4",
    "float32": "f4",
    "float64": "f8",
}
_ORDERS = {"ascii": "", "binary_little_endian": "<", "binary_big_endian": ">"}
_MAX_LINE = 10_000  # characters
_MAX_LINES = 10_000


@dataclass(frozen=True)
class Property:
    """One value per row, or one list per row if it has the type of a count. Types as in NumPy."""

    name: str
    type: str
    count: str | None = None


@dataclass
class Element:
    """A table of the file: its name, number of rows, and properties."""

    name: str
    rows: int
    properties: list[Property] = field(default_factory=list)

    @property
    def truncated(self) -> str:
        """The message that the file ends within the rows."""
        return f"the file is truncated in the {self.rows} rows of element {self.name}"

    @property
    def has_lists(self) -> bool:
        return any(p.count for p in self.properties)

    def min_row_size(self, ascii: bool) -> int:
        """Return the least bytes of a row, with empty lists; in text, a digit and a space per number."""
        if ascii:
            return 2 * len(self.properties)
        return sum(np.dtype(p.count or p.type).itemsize for p in self.properties)


def read_header(file: BinaryIO) -> tuple[str, list[Element]]:
    """Return the byte order ("<", ">" or "" for ASCII) and the elements; stop at the first row."""
    if file.readline(_MAX_LINE).strip() != b"ply":
        raise ValueError("the first line is not 'ply'")
    order: str | None = None
    elements: list[Element] = []
    for _ in range(_MAX_LINES):
        line = file.readline(_MAX_LINE)
        words = line.decode("latin-1").split()
        if not line.endswith(b"\n"):
            break
        match words:
            case ["end_header"]:
                if order is None:
                    raise ValueError("the header has no format line")
                return order, elements
            case ["format", name, *_] if name in _ORDERS:
                order = _ORDERS[name]
            case ["element", name, rows] if rows.isdecimal():
                elements.append(Element(name, int(rows)))
            case ["property", "list", count, kind, name] if count in _TYPES and kind in _TYPES and elements:
                if _TYPES[count][0] == "f":
                    raise ValueError(f"the length of the list {name} is not an integer")
                elements[-1].properties.append(Property(name, _TYPES[kind], _TYPES[count]))
            case ["property", kind, name] if kind in _TYPES and elements:
                elements[-1].properties.append(Property(name, _TYPES[kind]))
            case [] | ["comment" | "obj_info", *_]:
                pass
            case _:
                raise ValueError(f"the header has an invalid line: {' '.join(words)[:60]!r}")
    raise ValueError("the header has no end_header")
