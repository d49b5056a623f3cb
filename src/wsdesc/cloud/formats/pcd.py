"""PCD of the Point Cloud Library. pypcd4 reads the header and writes; the body is read here.

pypcd4 returns fewer points without a word when a binary file is cut off between two of them, wants exactly
one space between the numbers of a text, believes sizes before it allocates, and mixes up the values of
fields with several values a point in compressed files.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from wsdesc.cloud.formats import Reading
from wsdesc.cloud.formats.columns import from_columns, to_columns
from wsdesc.cloud.formats.limits import check_unpacked

_LONGEST_HEADER = 1000  # lines
_MOST_COMPRESSED = 88  # bytes that a byte of LZF data can stand for: three bytes repeat up to 264


def read(path: Path, faces: bool) -> Reading:
    from pypcd4.pypcd4 import Encoding, MetaData

    with path.open("rb") as file:
        header = MetaData.parse_header(_header_lines(file))
        if len({len(header.fields), len(header.size), len(header.type), len(header.count)}) > 1:
            raise ValueError("its header does not say size, type and count of every field")
        row = _row_type(header)
        left = path.stat().st_size - file.tell()
        if header.data == Encoding.ASCII:
            columns = _read_text(file, row, header.points, left)
        elif header.data == Encoding.BINARY:
            columns = _read_binary(file, row, header.points, left)
        else:
            columns = _read_compressed(file, row, header.points, left)
    return from_columns(columns)


def _header_lines(file: BinaryIO) -> list[str]:
    lines = []
    for _ in range(_LONGEST_HEADER):
        line = file.readline(10_000).decode("latin-1").strip()
        if line and not line.startswith("#"):
            lines.append(line)
        if line.startswith("DATA"):
            return lines
    raise ValueError("its header has no line DATA")


def _row_type(header: Any) -> np.dtype:
    """One point, as in the file; fields called _ are padding and get names that nobody asks for."""
    fields: list[tuple[str, str] | tuple[str, str, tuple[int]]] = []
    named = [name for name in header.fields if name.isprintable() and not name.startswith("#")]
    for name, kind, size, count in zip(header.fields, header.type, header.size, header.count, strict=True):
        number = f"<{kind.lower()}{size}"
        label = name if name in named else f" padding {len(fields)}"
        fields.append((label, number) if count == 1 else (label, number, (count,)))
    return np.dtype(fields)


def _columns(row: np.dtype) -> list[str]:
    return [name for name in row.names or () if not name.startswith(" ")]


def _require(needed: int, left: int, points: int) -> None:
    if needed > left:
        raise ValueError(f"it is cut off: {points} points need {needed} bytes, {left} follow the header")


def _read_text(file: BinaryIO, row: np.dtype, points: int, left: int) -> dict[str, np.ndarray]:
    numbers = sum(int(np.prod(row[name].shape)) for name in row.names or ())
    _require(points * 2 * numbers - 1, left, points)
    rows = np.empty(0, row)
    if points > 0:  # else a point may be said to have any number of values
        rows = np.loadtxt(file, row, comments=None, max_rows=points, ndmin=1, encoding="latin-1")
    if len(rows) < points:
        raise ValueError(f"it is cut off: {points} points are promised, {len(rows)} follow")
    return {name: np.ascontiguousarray(rows[name]) for name in _columns(row)}


def _read_binary(file: BinaryIO, row: np.dtype, points: int, left: int) -> dict[str, np.ndarray]:
    _require(points * row.itemsize, left, points)
    rows = np.fromfile(file, row, points)
    return {name: np.ascontiguousarray(rows[name]) for name in _columns(row)}


def _read_compressed(file: BinaryIO, row: np.dtype, points: int, left: int) -> dict[str, np.ndarray]:
    """LZF; unpacked, it is all values of the first field, then all of the second, and so on."""
    import lzf  # type: ignore[import-not-found]  # comes with pypcd4

    _require(8, left, points)
    packed, unpacked = struct.unpack("<II", file.read(8))
    if unpacked != points * row.itemsize or unpacked > packed * _MOST_COMPRESSED:
        raise ValueError(f"{points} points need {points * row.itemsize} bytes unpacked, not {unpacked}")
    _require(packed, left - 8, points)
    check_unpacked(points * (24 + row.itemsize), left)
    body = lzf.decompress(file.read(packed), unpacked)
    if body is None or len(body) != unpacked:
        raise ValueError("its compressed data are damaged")
    columns, start = {}, 0
    for name in row.names or ():
        shape = (points, *row[name].shape)
        values = np.frombuffer(body, row[name].base, int(np.prod(shape)), start)
        start += values.nbytes
        columns[name] = values.reshape(shape).copy()
    return {name: columns[name] for name in _columns(row)}


def write(path: Path, points: np.ndarray, attributes: Mapping[str, np.ndarray]) -> None:
    from pypcd4 import Encoding, PointCloud

    columns = to_columns(points, attributes)
    types = [column.dtype for column in columns.values()]
    PointCloud.from_points(list(columns.values()), list(columns), types).save(path, Encoding.BINARY)
