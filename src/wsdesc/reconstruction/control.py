"""Control points: points of scans whose world coordinates are known. Read from CSV files."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

from wsdesc.core.errors import FileFormatError
from wsdesc.core.file_parts import expand_home

Vector = tuple[float, float, float]
T = TypeVar("T")

_MAX_BYTES = 1 << 26  # of a file
_COLUMNS = ("scan", "x", "y", "z", "X", "Y", "Z", "sigma", "name")
_UP_COLUMNS = ("scan", "x", "y", "z")


class ControlPoint(NamedTuple):
    """A point of a scan whose world coordinates are known."""

    scan: str  # name of the scan: its file name
    point: Vector  # in the scan's coordinates
    world: Vector
    sigma: float | None = None  # standard deviation of each coordinate; None: the default of the run
    name: str = ""  # for reports


def read_control(path: str | Path) -> list[ControlPoint]:
    """Read control points from a CSV file.

    The columns are scan, x, y, z (in the scan), X, Y, Z (world), and optionally sigma and name, in this order
    or in that of a first line with these names. Fields are separated by commas, or by semicolons or
    tabs; then numbers may have decimal commas. Lines that start with # are comments.

    Raises:
        FileFormatError: The file cannot be read, or a line is invalid; the error names the line.
    """

    def parse(row: dict[str, str]) -> ControlPoint:
        sigma = _number(row, "sigma") if row.get("sigma") else None
        if sigma is not None and sigma <= 0:
            raise ValueError(f"sigma must be positive, not {sigma:g}")
        point = (_number(row, "x"), _number(row, "y"), _number(row, "z"))
        world = (_number(row, "X"), _number(row, "Y"), _number(row, "Z"))
        return ControlPoint(_scan(row), point, world, sigma, row.get("name", ""))

    points = _read_rows(expand_home(path), _COLUMNS, 7, parse)
    if not points:
        raise FileFormatError(f"{path}: no control points; the columns are scan,x,y,z,X,Y,Z[,sigma[,name]]")
    return points


def read_up(path: str | Path) -> dict[str, Vector]:
    """Read the up direction of scans from a CSV file with the columns scan, x, y, z.

    Raises:
        FileFormatError: The file cannot be read, or a line is invalid; the error names the line.
    """

    def parse(row: dict[str, str]) -> tuple[str, Vector]:
        up = (_number(row, "x"), _number(row, "y"), _number(row, "z"))
        if up == (0, 0, 0):
            raise ValueError("up must not be zero")
        return _scan(row), up

    return dict(_read_rows(expand_home(path), _UP_COLUMNS, 4, parse))


def _read_rows(
    path: Path, columns: Sequence[str], required: int, parse: Callable[[dict[str, str]], T]
) -> list[T]:
    """Parse all lines of a CSV file; the first `required` columns must exist."""
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise FileFormatError(f"{path}: larger than {_MAX_BYTES >> 20} MiB; is this the right file?")
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except OSError as error:
        raise FileFormatError(f"{path}: cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise FileFormatError(f"{path}: not a text file in UTF-8") from error
    numbered = [(n, line) for n, line in enumerate(lines, 1) if line.strip() and line.lstrip()[0] != "#"]
    if not numbered:
        return []
    delimiter = next((mark for mark in ";\t" if mark in numbered[0][1]), ",")
    names, items = list(columns), []
    for index, (number, line) in enumerate(numbered):
        try:
            fields = [field.strip() for field in next(csv.reader([line], delimiter=delimiter))]
            if index == 0 and fields[0].lower() == "scan":
                names = ["scan", *fields[1:]]
                missing = [name for name in columns[:required] if name not in names]
                if missing:
                    raise ValueError(f"the column {missing[0]!r} is missing; x, y, z differ from X, Y, Z")
                continue
            if not required <= len(fields) <= len(names):
                raise ValueError(f"{len(fields)} fields; needed are {','.join(columns[:required])}")
            items.append(parse(dict(zip(names, fields, strict=False))))
        except (ValueError, csv.Error) as error:
            raise FileFormatError(f"{path}, line {number}: {error}") from error
    return items


def _number(row: dict[str, str], name: str) -> float:
    try:
        value = float(row[name].replace(",", "."))  # a comma in a field is a decimal mark
    except (KeyError, ValueError):
        raise ValueError(f"{name} must be a number, not {row.get(name, '')[:40]!r}") from None
    if not math.isfinite(value):
        raise ValueError(f"{name} must be finite, not {value}")
    return value


def _scan(row: dict[str, str]) -> str:
    if not row["scan"]:
        raise ValueError("the name of the scan is missing")
    return row["scan"]
