"""The header of a PLY file: which elements follow, how many of each, with which properties."""

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
_LONGEST_LINE = 10_000
_MOST_LINES = 10_000


@dataclass(frozen=True)
class Property:
    """A value a row, or with `count`, the type of its length, a list of values a row. Types as in numpy."""

    name: str
    type: str
    count: str | None = None


@dataclass
class Element:
    name: str
    rows: int
    properties: list[Property] = field(default_factory=list)

    @property
    def has_lists(self) -> bool:
        return any(p.count for p in self.properties)

    def least_row_size(self, ascii: bool) -> int:
        """Bytes a row has at least: its numbers, or a digit and a space each; lists may be empty."""
        if ascii:
            return 2 * len(self.properties)
        return sum(np.dtype(p.count or p.type).itemsize for p in self.properties)


def read_header(file: BinaryIO) -> tuple[str, list[Element]]:
    """The byte order ("<", ">" or "" for ascii) and the elements; leaves the file where their rows begin."""
    if file.readline(_LONGEST_LINE).strip() != b"ply":
        raise ValueError("its first line is not 'ply'")
    order: str | None = None
    elements: list[Element] = []
    for _ in range(_MOST_LINES):
        line = file.readline(_LONGEST_LINE)
        words = line.decode("latin-1").split()
        if not line.endswith(b"\n"):
            break
        match words:
            case ["end_header"]:
                if order is None:
                    raise ValueError("its header has no format line")
                return order, elements
            case ["format", name, *_] if name in _ORDERS:
                order = _ORDERS[name]
            case ["element", name, rows] if rows.isdecimal():
                elements.append(Element(name, int(rows)))
            case ["property", "list", count, kind, name] if count in _TYPES and kind in _TYPES and elements:
                if _TYPES[count][0] == "f":
                    raise ValueError(f"the list {name} has a length that is not an integer")
                elements[-1].properties.append(Property(name, _TYPES[kind], _TYPES[count]))
            case ["property", kind, name] if kind in _TYPES and elements:
                elements[-1].properties.append(Property(name, _TYPES[kind]))
            case [] | ["comment" | "obj_info", *_]:
                pass
            case _:
                raise ValueError(f"its header has a line that is not PLY: {' '.join(words)[:60]!r}")
    raise ValueError("its header has no end")
