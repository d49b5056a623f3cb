"""Points as lines of text: xyz, txt, csv, pts.

Columns are separated by commas, semicolons or white space. The first three are x, y and z unless a line of
names (a comment will do) says otherwise. Lines that begin with # or // are comments. A number alone on the
first line, as in pts files, is the count of points.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import numpy as np

from wsdesc.cloud.formats import Reading
from wsdesc.cloud.formats.columns import from_columns, to_columns

_COMMENTS = ("#", "//")
_LONGEST_LINE = 100_000


class _Layout(NamedTuple):
    first_row: int  # lines before the first point
    width: int
    separator: str | None
    names: list[str] | None
    promised: int | None  # points, by the first line


def read(path: Path, faces: bool) -> Reading:
    with path.open(encoding="utf-8-sig", errors="replace") as file:
        layout = _look_ahead(file)
        file.seek(0)
        options: dict[str, Any] = {"delimiter": layout.separator, "comments": _COMMENTS, "ndmin": 2}
        try:
            table = np.loadtxt(file, skiprows=layout.first_row, **options)  # (N, columns)
        except ValueError as error:  # what follows a semicolon is advice to programmers
            raise ValueError(f"after {layout.first_row} lines, {str(error).split(';')[0]}") from error
    if layout.promised is not None and layout.promised != len(table):
        raise ValueError(f"its first line promises {layout.promised} points, {len(table)} follow")
    if layout.names is None:
        if layout.width < 3:
            raise ValueError(f"its lines have {layout.width} columns, x, y and z need three")
        names = ["x", "y", "z", *(f"column_{i}" for i in range(3, layout.width))]
    else:
        names = layout.names
    return from_columns({name: np.ascontiguousarray(table[:, i]) for i, name in enumerate(names)})


def _look_ahead(file: TextIO) -> _Layout:
    """What the lines up to the first point say about the columns."""
    names: list[str] | None = None
    remark: list[str] = []
    count: int | None = None
    number = 0
    while line := file.readline(_LONGEST_LINE):
        if "\0" in line or len(line) == _LONGEST_LINE:
            raise ValueError("it is not a text of one point a line")
        if line.isspace():
            number += 1
            continue
        words, separator = _split(line.strip().lstrip("#/"))
        if line.strip().startswith(_COMMENTS):
            remark = words if {"x", "y", "z"} <= {word.lower() for word in words} else remark
        elif words and all(map(_is_number, words)):
            if not (len(words) == 1 and words[0].isdecimal() and count is None):
                break
            count = int(words[0])
        elif words and names is None:
            names = words
        elif words:
            raise ValueError(f"line {number + 1} is not made of numbers: {line.strip()[:60]!r}")
        number += 1
    else:
        raise ValueError("it has no points")
    if names is None and len(remark) == len(words):
        names = remark
    if names is not None and len(names) != len(words):
        raise ValueError(f"{len(names)} columns are named, the first point has {len(words)}")
    if names is not None and len(set(names)) < len(names):
        raise ValueError(f"two columns have one name (columns: {', '.join(names)})")
    return _Layout(number, len(words), separator, names, count)


def _split(line: str) -> tuple[list[str], str | None]:
    separator = next((sign for sign in ";," if sign in line), None)
    return [word.strip(" \t\"'") for word in line.split(separator)] if line else [], separator


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


_CHUNK = 100_000


def write(path: Path, points: np.ndarray, attributes: Mapping[str, np.ndarray]) -> None:
    """Numbers in the shortest form that reads back exactly; names in csv, or where there are attributes."""
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
