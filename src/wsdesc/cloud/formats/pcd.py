"""PCD, the format of the Point Cloud Library. pypcd4 parses the header; the data are read and written here.

pypcd4 does not read the data, for these reasons:
- It reads binary files that are truncated between two points without an error.
- It needs exactly one space between the numbers of a text.
- It allocates unchecked sizes.
- It confuses the values of compressed fields with several values per point, and writes no such fields.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from wsdesc.cloud.formats import FileContent
from wsdesc.cloud.formats.attributes import VECTORS, pcd_attributes
from wsdesc.cloud.formats.columns import from_columns, to_columns
from wsdesc.cloud.formats.limits import check_unpacked

_MAX_HEADER = 1000  # lines
_MAX_LZF_RATIO = 88  # three bytes of LZF data expand to at most 264


def read(path: Path, faces: bool) -> FileContent:
    from pypcd4.pypcd4 import Encoding, MetaData

    with path.open("rb") as file:
        header = MetaData.parse_header(_header_lines(file))
        if len({len(header.fields), len(header.size), len(header.type), len(header.count)}) > 1:
            raise ValueError("the header must have a size, a type and a count for every field")
        row = _row_type(header)
        left = path.stat().st_size - file.tell()
        if header.data == Encoding.ASCII:
            columns = _read_text(file, row, header.points, left)
        elif header.data == Encoding.BINARY:
            columns = _read_binary(file, row, header.points, left)
        else:
            columns = _read_compressed(file, row, header.points, left)
    return from_columns(columns)._replace(viewpoint=_viewpoint(header.viewpoint))


def _viewpoint(values: Sequence[float]) -> np.ndarray | None:
    """Return the position of the sensor. Programs that do not know it write the origin."""
    position = np.array(values[:3], np.float64)
    return position if len(position) == 3 and np.isfinite(position).all() and position.any() else None


def _header_lines(file: BinaryIO) -> list[str]:
    lines = []
    for _ in range(_MAX_HEADER):
        line = file.readline(10_000).decode("latin-1").strip()
        if line and not line.startswith("#"):
            lines.append(line)
        if line.startswith("DATA"):
            return lines
    raise ValueError("the header has no line DATA")


def _row_type(header: Any) -> np.dtype:
    """Return the type of one point. Padding, which is called _, gets names that start with a space."""
    fields: list[tuple[str, str] | tuple[str, str, tuple[int]]] = []
    named = [name for name in header.fields if name.isprintable() and not name.startswith("#")]
    for name, kind, size, count in zip(header.fields, header.type, header.size, header.count, strict=True):
        value = f"<{kind.lower()}{size}"
        label = name if name in named else f" padding {len(fields)}"
        fields.append((label, value) if count == 1 else (label, value, (count,)))
    return np.dtype(fields)


def _columns(row: np.dtype) -> list[str]:
    return [name for name in row.names or () if not name.startswith(" ")]


def _check_size(needed: int, left: int, points: int) -> None:
    if needed > left:
        raise ValueError(f"the file is truncated: {points} points need {needed} bytes, {left} follow")


def _read_text(file: BinaryIO, row: np.dtype, points: int, left: int) -> dict[str, np.ndarray]:
    numbers = sum(int(np.prod(row[name].shape)) for name in row.names or ())
    _check_size(points * 2 * numbers - 1, left, points)
    rows = np.empty(0, row)
    if points > 0:  # without points, the header may claim any number of values per point
        rows = np.loadtxt(file, row, comments=None, max_rows=points, ndmin=1, encoding="latin-1")
    if len(rows) < points:
        raise ValueError(f"the file is truncated: the header announces {points} points, {len(rows)} follow")
    return {name: np.ascontiguousarray(rows[name]) for name in _columns(row)}


def _read_binary(file: BinaryIO, row: np.dtype, points: int, left: int) -> dict[str, np.ndarray]:
    _check_size(points * row.itemsize, left, points)
    rows = np.fromfile(file, row, points)
    return {name: np.ascontiguousarray(rows[name]) for name in _columns(row)}


def _read_compressed(file: BinaryIO, row: np.dtype, points: int, left: int) -> dict[str, np.ndarray]:
    """Decompress LZF data: all values of the first field, then all of the second, and so on."""
    import lzf  # type: ignore[import-not-found]  # comes with pypcd4

    _check_size(8, left, points)
    compressed, expanded = struct.unpack("<II", file.read(8))
    if expanded != points * row.itemsize or expanded > compressed * _MAX_LZF_RATIO:
        raise ValueError(f"{points} points need {points * row.itemsize} bytes, not {expanded}")
    _check_size(compressed, left - 8, points)
    check_unpacked(points * (24 + row.itemsize), left)
    body = lzf.decompress(file.read(compressed), expanded)
    if body is None or len(body) != expanded:
        raise ValueError("the compressed data are damaged")
    columns, start = {}, 0
    for name in row.names or ():
        shape = (points, *row[name].shape)
        values = np.frombuffer(body, row[name].base, int(np.prod(shape)), start)
        start += values.nbytes
        columns[name] = values.reshape(shape).copy()
    return {name: columns[name] for name in _columns(row)}


_KINDS = {"f": "F", "i": "I", "u": "U"}
_CHUNK = 1_000_000  # rows copied at a time while writing


def write(
    path: Path,
    points: np.ndarray,
    attributes: Mapping[str, np.ndarray],
    viewpoint: np.ndarray | None = None,
) -> None:
    """Write a binary file. Colours become rgb and normals normal_x, …; other vectors stay one field."""
    if any(name in attributes and attributes[name].ndim == 2 for name in VECTORS):
        attributes = pcd_attributes(attributes)
    fields = to_columns(points, attributes, vectors=True)
    flat = {name: values.reshape(len(values), -1) for name, values in fields.items()}
    row = np.dtype([(name, v.dtype.newbyteorder("<"), (v.shape[1],)) for name, v in flat.items()])
    header: dict[str, list[object]] = {
        "VERSION": [0.7],
        "FIELDS": list(flat),
        "SIZE": [v.dtype.itemsize for v in flat.values()],
        "TYPE": [_KINDS[v.dtype.kind] for v in flat.values()],
        "COUNT": [v.shape[1] for v in flat.values()],
        "WIDTH": [len(points)],
        "HEIGHT": [1],
        "VIEWPOINT": [*(np.zeros(3) if viewpoint is None else viewpoint).tolist(), 1, 0, 0, 0],
        "POINTS": [len(points)],
        "DATA": ["binary"],
    }
    lines = [" ".join(map(str, [name, *values])) for name, values in header.items()]
    with path.open("wb") as file:
        file.write(("# .PCD v0.7 - Point Cloud Data file format\n" + "\n".join(lines) + "\n").encode("ascii"))
        for start in range(0, len(points), _CHUNK):
            rows = np.empty(min(_CHUNK, len(points) - start), row)
            for name, values in flat.items():
                rows[name] = values[start : start + _CHUNK]
            file.write(rows.data)
