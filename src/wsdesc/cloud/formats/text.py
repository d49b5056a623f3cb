"""Text files with one point per line: xyz, txt, csv, pts.

Columns are separated by commas, semicolons or white space. The first three are x, y and z unless a line of
names, which may be a comment, says otherwise. Lines that start with # or // are comments. A single number on
the first line, as in pts files, is the number of points.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import numpy as np

from wsdesc.cloud.formats import FileContent
from wsdesc.cloud.formats.columns import from_columns, to_columns

_COMMENTS = ("#", "//")
_MAX_LINE = 100_000  # characters
_CHUNK = 100_000  # points written at a time


class _TableLayout(NamedTuple):
    first_row: int  # lines before the first point
    width: int
    separator: str | None
    names: list[str] | None
    announced: int | None  # number of points on the first line


def read(path: Path, faces: bool) -> FileContent:
    with path.open(encoding="utf-8-sig", errors="replace") as file:
        layout = _read_layout(file)
        file.seek(0)
        options: dict[str, Any] = {"delimiter": layout.separator, "comments": _COMMENTS, "ndmin": 2}
        try:
            table = np.loadtxt(file, skiprows=layout.first_row, **options)  # (N, columns)
        except ValueError as error:  # the text after the semicolon is for developers
            raise ValueError(f"after {layout.first_row} lines, {str(error).split(';')[0]}") from error
    if layout.announced is not None and layout.announced != len(table):
        raise ValueError(f"the first line announces {layout.announced} points, {len(table)} follow")
    if layout.names is None:
        if layout.width < 3:
            raise ValueError(f"the lines have {layout.width} columns, at least three are needed")
        names = ["x", "y", "z", *(f"column_{i}" for i in range(3, layout.width))]
    else:
        names = layout.names
    return from_columns({name: np.ascontiguousarray(table[:, i]) for i, name in enumerate(names)})


def _read_layout(file: TextIO) -> _TableLayout:
    """Derive the columns from the lines up to the first point."""
    names: list[str] | None = None
    comment: list[str] = []
    count: int | None = None
    number = 0
    while line := file.readline(_MAX_LINE):
        if "\0" in line or len(line) == _MAX_LINE:
            raise ValueError("this is not a text with one point per line")
        if line.isspace():
            number += 1
            continue
        words, separator = _split(line.strip().lstrip("#/"))
        if line.strip().startswith(_COMMENTS):
            comment = words if {"x", "y", "z"} <= {word.lower() for word in words} else comment
        elif words and all(map(_is_number, words)):
            if not (len(words) == 1 and words[0].isdecimal() and count is None):
                break
            count = int(words[0])
        elif words and names is None:
            names = words
        elif words:
            raise ValueError(f"line {number + 1} has a column that is not a number: {line.strip()[:60]!r}")
        number += 1
    else:
        raise ValueError("the file has no points")
    if names is None and len(comment) == len(words):
        names = comment
    if names is not None and len(names) != len(words):
        raise ValueError(f"there are {len(names)} column names, but the first point has {len(words)} columns")
    if names is not None and len(set(names)) < len(names):
        raise ValueError(f"two columns have the same name (columns: {', '.join(names)})")
    return _TableLayout(number, len(words), separator, names, count)


def _split(line: str) -> tuple[list[str], str | None]:
    separator = next((character for character in ";," if character in line), None)
    return [word.strip(" \t\"'") for word in line.split(separator)] if line else [], separator


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def write(path: Path, points: np.ndarray, attributes: Mapping[str, np.ndarray]) -> None:
    """Write the shortest exact numbers; column names in csv files and if there are attributes."""
    columns = to_columns(points.astype(np.float64), attributes)
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
