"""Layout of a text with one point per line: separator, decimal mark, column names, first point."""

from __future__ import annotations

import csv
import re
from typing import NamedTuple, TextIO

from wsdesc.cloud.formats.columns import xyz_names

COMMENTS = ("#", "//", "%")
_MAX_LINE = 100_000  # characters
_DECIMAL_COMMA = re.compile(r"[+-]?\d+(,\d+)?([eE][+-]?\d+)?")
_GRID = "ncols"  # first word of a raster in the format of ESRI, which also has the extension asc


class TextLayout(NamedTuple):
    """How the lines of a text are to be read."""

    first_row: int  # lines before the first point
    separator: str | None  # None for white space
    decimal_comma: bool
    quoted: bool
    words: list[str]  # of the first point
    names: list[str] | None
    announced: int | None  # number of points on the first line

    @property
    def numeric(self) -> list[int]:
        """Indices of the columns that hold numbers."""
        return [i for i, word in enumerate(self.words) if _is_number(word)]


def read_layout(file: TextIO) -> TextLayout:
    """Derive the layout from the lines up to the first point. A point has three numbers or only numbers."""
    names: list[str] | None = None
    comment: list[str] = []
    count: int | None = None
    number = 0
    while line := file.readline(_MAX_LINE):
        if "\0" in line or len(line) == _MAX_LINE:
            raise ValueError("this is not a text with one point per line")
        text = line.strip()
        words, separator, decimal_comma = _split(text.lstrip("#/%"))
        if text.startswith(COMMENTS):
            comment = words if _has_coordinates(words) else comment
        elif not text:
            pass
        elif _is_point(words):
            if not (len(words) == 1 and words[0].isdecimal() and count is None):
                break
            count = int(words[0])
        elif words[0].lower() == _GRID:
            raise ValueError("this is a raster of heights, not a scan; convert it to points")
        elif names is None:
            names = words
        else:
            raise ValueError(f"line {number + 1} has a column that is not a number: {text[:60]!r}")
        number += 1
    else:
        raise ValueError("the file has no points")
    if names is None and len(comment) == len(words):
        names = comment
    if names is not None and len(names) != len(words):
        raise ValueError(f"there are {len(names)} column names, but the first point has {len(words)} columns")
    if names is not None and len(set(names)) < len(names):
        raise ValueError(f"two columns have the same name (columns: {', '.join(names)})")
    return TextLayout(number, separator, decimal_comma, '"' in line, words, names, count)


def _split(line: str) -> tuple[list[str], str | None, bool]:
    """Split a line; return also the separator and whether the decimal mark is a comma."""
    if not line:
        return [], None, False
    separator = next((mark for mark in ";|" if mark in line), None)
    if separator is None and "," in line:
        plain = line.split()
        if len(plain) < 3 or not all(map(_DECIMAL_COMMA.fullmatch, plain)):
            separator = ","
    if '"' in line and separator is not None:
        words = next(csv.reader([line], delimiter=separator, skipinitialspace=True))
    else:
        words = line.split(separator)
    words = [word.strip(" \t\"'") for word in words]
    decimal_comma = any("," in word for word in words) and all("." not in word for word in words)
    if decimal_comma:
        words = [word.replace(",", ".") for word in words]
    return words, separator, decimal_comma


def _has_coordinates(words: list[str]) -> bool:
    try:
        xyz_names(words)
    except ValueError:
        return False
    return True


def _is_point(words: list[str]) -> bool:
    numbers = sum(map(_is_number, words))
    return numbers >= 3 or numbers == len(words)


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True
