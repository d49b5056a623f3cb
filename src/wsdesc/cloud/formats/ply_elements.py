"""Rows of one element of a PLY file, as text or in either byte order.

Rows without lists, and rows whose lists all have the same length (triangles), are read a million at a time
into columns. `ply_lists` reads the other rows.
"""

from __future__ import annotations

import os
from typing import BinaryIO

import numpy as np

from wsdesc.cloud.formats.ply_header import Element
from wsdesc.cloud.formats.ply_lists import Columns, first_lengths, read_rows, skip_rows

_CHUNK = 1_000_000  # rows


def read_element(file: BinaryIO, element: Element, order: str) -> Columns:
    """Read all columns of the element at the current position of the file."""
    if element.rows == 0 or not element.properties:
        return {p.name: np.empty(0, p.type) for p in element.properties}
    if not element.has_lists:
        return _read_uniform(file, element, order, {})
    start = file.tell()
    lengths = first_lengths(file, element, order)
    try:
        return _read_uniform(file, element, order, lengths)
    except ValueError:  # other lengths than in the first row
        file.seek(start)
        return read_rows(file, element, order)


def skip_element(file: BinaryIO, element: Element, order: str) -> None:
    """Skip the rows of the element at the current position of the file."""
    if order and not element.has_lists:
        file.seek(element.rows * element.min_row_size(ascii=False), os.SEEK_CUR)
    elif element.properties:
        skip_rows(file, element, order)


def _read_uniform(file: BinaryIO, element: Element, order: str, lengths: dict[str, int]) -> Columns:
    """Read columns whose lists have the given lengths in every row; raise a ValueError otherwise."""
    fields: list[tuple[str, str] | tuple[str, str, tuple[int]]] = []
    for p in element.properties:
        if p.count:
            fields += [(f"length of {p.name}", order + p.count), (p.name, order + p.type, (lengths[p.name],))]
        else:
            fields.append((p.name, order + p.type))
    row = np.dtype(fields)
    numbers = len(element.properties) + sum(lengths.values())
    needed = element.rows * (row.itemsize if order else 2 * numbers) - (not order)
    if needed > _remaining(file):
        raise ValueError(element.truncated)
    columns = {
        p.name: np.empty((element.rows, *row[p.name].shape), row[p.name].base.newbyteorder("="))
        for p in element.properties
    }
    for start in range(0, element.rows, _CHUNK):
        rows = _next_rows(file, row, min(_CHUNK, element.rows - start), text=not order)
        if any((rows[f"length of {name}"] != length).any() for name, length in lengths.items()):
            raise ValueError("the lists have different lengths")
        for name, column in columns.items():
            column[start : start + len(rows)] = rows[name]
    return dict(columns)


def _next_rows(file: BinaryIO, row: np.dtype, count: int, text: bool) -> np.ndarray:
    if text:
        rows = np.loadtxt(file, row, comments=None, max_rows=count, ndmin=1, encoding="latin-1")
    else:
        rows = np.fromfile(file, row, count)
    if len(rows) < count:
        raise ValueError(f"the file is truncated: {count - len(rows)} rows are missing")
    return rows


def _remaining(file: BinaryIO) -> int:
    """Return the number of bytes after the current position."""
    return os.fstat(file.fileno()).st_size - file.tell()
