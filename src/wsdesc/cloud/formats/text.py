"""Text files with one point per line: xyz, txt, csv, pts, asc.

Columns are separated by commas, semicolons, vertical bars or white space; the decimal mark is a point or a
comma. The first three columns of numbers are x, y and z unless a line of names, which may be a comment, says
otherwise. A first column that counts the points is not x. Columns of words are ignored, and empty cells are
NaN. Lines that start with #, // or % are comments. A single number on the first line, as in pts files, is the
number of points.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from wsdesc.cloud.formats import FileContent
from wsdesc.cloud.formats.columns import from_columns, to_columns
from wsdesc.cloud.formats.text_layout import COMMENTS, TextLayout, read_layout

_CHUNK = 100_000  # points written at a time
_SEPARATOR = ";"  # separator in lines without quotes
_MAX_WHOLE = 2**53  # largest integer that float64 represents exactly, as all smaller ones
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")  # marks at the start of the file


def read(path: Path, faces: bool) -> FileContent:
    with path.open("rb") as start:
        encoding = "utf-16" if start.read(2) in _UTF_16 else "utf-8-sig"
    with path.open(encoding=encoding, errors="replace") as file:
        layout = read_layout(file)
        columns = layout.numeric
        if layout.names is None and len(columns) < 3:
            raise ValueError(f"the lines have {len(columns)} columns of numbers, at least three are needed")
        try:
            table = _load(file, layout)
        except ValueError as error:
            table = _load_otherwise(file, layout, error)
    if layout.announced is not None and layout.announced != len(table):
        raise ValueError(f"the first line announces {layout.announced} points, {len(table)} follow")
    names = [layout.names[i] for i in columns] if layout.names else _default_names(table)
    return from_columns({name: np.ascontiguousarray(table[:, i]) for i, name in enumerate(names)})


def _load_otherwise(file: TextIO, layout: TextLayout, error: ValueError) -> np.ndarray:
    """Return the columns of numbers (N, columns) of a text whose first point does not show its layout."""
    attempts: list[tuple[TextLayout, bool]] = []
    if not layout.decimal_comma and layout.separator != ",":  # the first point may have whole numbers only
        attempts.append((layout._replace(decimal_comma=True), False))
    if layout.separator:  # programs leave a cell empty that has no value
        attempts += [(layout, True), *((other, True) for other, _ in attempts)]
    for other, empty in attempts:
        with suppress(ValueError):
            return _load(file, other, empty)
    reason = str(error).split(";", maxsplit=1)[0]  # the rest is for developers
    raise ValueError(f"after {layout.first_row} lines, {reason}") from error


def _load(file: TextIO, layout: TextLayout, empty: bool = False) -> np.ndarray:
    """Return the columns of numbers (N, columns); with `empty`, cells without a value are NaN."""
    file.seek(0)
    options: dict[str, Any] = {"delimiter": layout.separator, "comments": COMMENTS, "ndmin": 2}
    lines: Iterable[str] = islice(file, layout.first_row, None)
    if layout.separator and (layout.quoted or layout.decimal_comma):
        lines, options["delimiter"] = _without_quotes(lines, layout), _SEPARATOR
    elif layout.decimal_comma:
        lines = (line.replace(",", ".") for line in lines)
    if empty:
        lines = _with_nan(lines, options["delimiter"])
    if len(layout.numeric) < len(layout.words):  # otherwise every line must have the same number of columns
        options["usecols"] = layout.numeric
    return np.loadtxt(lines, **options)


def _with_nan(lines: Iterable[str], separator: str) -> Iterator[str]:
    """Write nan into empty cells."""
    for line in lines:
        if line.strip():
            yield separator.join(
                word if word.strip() else "nan" for word in line.rstrip("\r\n").split(separator)
            )


def _without_quotes(lines: Iterable[str], layout: TextLayout) -> Iterator[str]:
    """Remove quotes and replace decimal commas, which NumPy does not support."""
    for words in csv.reader(lines, delimiter=layout.separator or " ", skipinitialspace=True):
        plain = (word.replace(_SEPARATOR, " ") for word in words)
        yield _SEPARATOR.join(word.replace(",", ".") if layout.decimal_comma else word for word in plain)


def _default_names(table: np.ndarray) -> list[str]:
    """Name the columns of a table (N, columns) without a header: a counter, then x, y, z and further ones."""
    shift = int(_starts_with_counter(table))
    names = [f"column_{i}" for i in range(table.shape[1])]
    names[shift : shift + 3] = "xyz"
    if shift:
        names[0] = "id"
    return names


def _starts_with_counter(table: np.ndarray) -> bool:
    """Return whether the first column is k, k + 1, … next to three columns with other than whole numbers."""
    if len(table) < 3 or table.shape[1] < 4 or table[0, 0] not in (0, 1):
        return False
    with np.errstate(invalid="ignore"):
        counts = bool((np.diff(table[:, 0]) == 1).all())
        return counts and bool((table[:, 1:4] % 1 != 0).any(axis=0).all())


def _whole_numbers(column: np.ndarray) -> np.ndarray:
    """Convert numbers to int64 if all are whole, so that 7 is not written as 7.0."""
    if column.dtype.kind != "f" or not np.abs(column).max() < _MAX_WHOLE:
        return column
    return column.astype(np.int64) if (column % 1 == 0).all() else column


def write(path: Path, points: np.ndarray, attributes: Mapping[str, np.ndarray]) -> None:
    """Write the shortest exact numbers; column names in csv files and if there are attributes."""
    columns = to_columns(points.astype(np.float64), attributes)
    columns |= {
        name: _whole_numbers(column) for name, column in columns.items() if name not in ("x", "y", "z")
    }
    extension = path.suffix.lower()
    separator = "," if extension == ".csv" else " "
    with path.open("w", encoding="ascii", newline="\n") as file:
        if extension == ".pts":
            file.write(f"{len(points)}\n")
        elif extension == ".csv" or attributes:
            file.write(("" if extension == ".csv" else "# ") + separator.join(columns) + "\n")
        for start in range(0, len(points), _CHUNK):
            texts = [map(repr, column[start : start + _CHUNK].tolist()) for column in columns.values()]
            file.writelines(separator.join(row) + "\n" for row in zip(*texts, strict=True))
