"""Numbers and keywords of a legacy VTK file, text or binary."""

from __future__ import annotations

import re
from typing import BinaryIO

import numpy as np

from wsdesc.cloud.formats.faces import Ragged
from wsdesc.cloud.formats.limits import check_columns

_TYPES = {
    "unsigned_char": "u1",
    "char": "i1",
    "signed_char": "i1",
    "unsigned_short": "u2",
    "short": "i2",
    "unsigned_int": "u4",
    "int": "i4",
    "unsigned_long": "u8",
    "long": "i8",
    "float": "f4",
    "double": "f8",
    "vtkidtype": "i4",  # binary files store 32 bits
    "vtktypeint64": "i8",
    "vtktypeuint64": "u8",
    "vtktypeint32": "i4",
    "vtktypeuint32": "u4",
    "vtktypeuint8": "u1",
    "vtktypeint8": "i1",
    "vtktypeint16": "i2",
    "vtktypeuint16": "u2",
    "vtktypefloat32": "f4",
    "vtktypefloat64": "f8",
}
_MAX_LINE = 10_000  # characters
_KEYWORD = re.compile(rb"^[ \t]*(?!nan\b|inf\b)[a-z_]", re.IGNORECASE | re.MULTILINE)
_WORDS = 1_000_000  # bytes of a text that are split at a time


def read_header(file: BinaryIO) -> bool:
    """Read the first three lines; return whether the file is binary."""
    first, _, kind = (file.readline(_MAX_LINE).strip() for _ in range(3))
    if not first.startswith(b"# vtk DataFile") or kind.upper() not in (b"ASCII", b"BINARY"):
        raise ValueError("the file does not start with the header of a legacy VTK file")
    return kind.upper() == b"BINARY"


class Sections:
    """Cursor over the content after the header."""

    def __init__(self, content: bytes, binary: bool) -> None:
        self.content, self.binary, self.at = content, binary, 0

    def keyword(self) -> list[str]:
        """Return the words of the next line that is not blank, none at the end."""
        while self.at < len(self.content):
            words = self._line().split()
            if words:
                return words
        return []

    def _line(self) -> str:
        end = self.content.find(b"\n", self.at, self.at + _MAX_LINE)
        end = min(self.at + _MAX_LINE, len(self.content)) if end < 0 else end
        line, self.at = self.content[self.at : end], end + 1
        return line.decode("latin-1")

    def lookup_table(self) -> None:
        """Skip the line LOOKUP_TABLE before the numbers, if it is present."""
        start = self.at
        if self.keyword()[:1] != ["LOOKUP_TABLE"]:
            self.at = start

    def skip_metadata(self) -> None:
        """Skip lines up to a blank one."""
        while self.at < len(self.content) and self._line().strip():
            pass

    def table(self, rows: int, columns: int, kind: str) -> np.ndarray:
        """Read numbers (rows, columns) of a type."""
        name = _TYPES.get(kind.lower())
        if name is None:
            raise ValueError(f"unknown type {kind[:40]!r}")
        check_columns(columns)
        return self._numbers(rows * columns, np.dtype(name)).reshape(rows, columns)

    def cells(self, count: int, size: int) -> Ragged:
        """Read lists of vertex indices: offsets and connectivity, or lists that start with their length."""
        start = self.at
        words = self.keyword()
        if words[:1] == ["OFFSETS"]:
            offsets = self.table(count, 1, words[-1])[:, 0].astype(np.int64)
            words = self.keyword()
            if words[:1] != ["CONNECTIVITY"]:
                raise ValueError("a section CONNECTIVITY is missing")
            return ragged(self.table(size, 1, words[-1])[:, 0].astype(np.int64), offsets)
        self.at = start
        values = self.table(size, 1, "int")[:, 0].astype(np.int64)
        lengths, at, plain = np.empty(min(count, size), np.int64), 0, values.tolist()
        for row in range(count):
            if at >= size or not 0 <= plain[at] < size - at:
                raise ValueError(f"the {size} numbers of a section are not {count} lists of vertices")
            lengths[row] = plain[at]
            at += 1 + plain[at]
        starts = np.cumsum(lengths + 1) - lengths - 1
        keep = np.ones(size, bool)
        keep[starts] = False
        keep[at:] = False
        return Ragged(values[keep], lengths)

    def _numbers(self, count: int, kind: np.dtype) -> np.ndarray:
        left = len(self.content) - self.at
        needed = count * kind.itemsize if self.binary else 2 * count - 1
        if needed > left:
            raise ValueError(f"the file is truncated: {count} numbers need {needed} bytes, {left} follow")
        if self.binary:
            values = np.frombuffer(self.content, kind.newbyteorder(">"), count, self.at)
            self.at += needed
            return values.astype(kind)
        keyword = _KEYWORD.search(self.content, self.at)
        return self._parse(len(self.content) if keyword is None else keyword.start(), count, kind)

    def _parse(self, end: int, count: int, kind: np.dtype) -> np.ndarray:
        """Parse the text up to an offset, a part at a time: words take ten times their length."""
        start, self.at, parse = self.at, end, float if kind.kind == "f" else int
        values, filled = np.empty(count, kind), 0
        while start < end:
            stop = min(start + _WORDS, end)
            while stop < end and not self.content[stop : stop + 1].isspace():
                stop += 1
            words = self.content[start:stop].split()
            if filled + len(words) > count:
                raise ValueError(f"a section has more than {count} numbers")
            with np.errstate(over="ignore"):
                values[filled : filled + len(words)] = [parse(word) for word in words]
            filled, start = filled + len(words), stop
        if filled < count:
            raise ValueError(f"the file is truncated: {count} numbers are announced, {filled} follow")
        return values


def ragged(values: np.ndarray, offsets: np.ndarray) -> Ragged:
    """Build rows from values (n,) and offsets (rows + 1,): row k ends at offset k + 1, and the first is 0."""
    lengths = np.diff(offsets)
    if len(offsets) and (offsets[0] != 0 or offsets[-1] != len(values) or (lengths < 0).any()):
        raise ValueError(f"the offsets of the cells do not fit to {len(values)} vertex indices")
    return Ragged(values, lengths)
