"""PTX, the text format of Leica: one or several stations, each with its pose and a grid of points.

A station has the numbers of columns and rows, and the position and the axes of the scanner. Then comes its
pose as a matrix (4, 4) for row vectors. One line per point follows: x, y, z, intensity and, optionally, red,
green and blue. Rays without an echo are points at the origin; they are dropped.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np

from wsdesc.cloud.formats import FileContent, no_station

_MAX_LINE = 1000  # characters
_HEADER_LINES = 10
_NAMES = ("x", "y", "z", "intensity", "red", "green", "blue")
_WIDTHS = (3, 4, 7)
_MAX_STATIONS = 10_000
_TOLERANCE = 1e-3  # largest error of the rotation matrix of a station


class _Station(NamedTuple):
    """Header of a station; the file is at its first point."""

    points: int
    T_file_station: np.ndarray  # (4, 4)


def read(path: Path, faces: bool, station: int | None = None) -> FileContent:
    """Read all stations, or that with the number `station` from 1, in the frame of the file."""
    parts, viewpoints = [], []
    with path.open("rb") as file:
        for index, header in enumerate(_stations(file), start=1):
            if station is None or station == index:
                parts.append(_read_points(file, header))
                viewpoints.append(header.T_file_station[:3, 3])
            else:
                _skip_points(file, header)
    if not parts:
        if station is None:
            raise ValueError("the file has no stations")
        raise ValueError(no_station(station, count_stations(path)))
    width = min(part.shape[1] for part in parts)
    table = np.concatenate([part[:, :width] for part in parts])  # (N, width)
    attributes = {name: table[:, i].copy() for i, name in enumerate(_NAMES[3:width], start=3)}
    for name in ("red", "green", "blue"):
        if name in attributes:
            attributes[name] = np.clip(attributes[name], 0, 255).astype(np.uint8)
    viewpoint = viewpoints[0] if len(viewpoints) == 1 else None
    return FileContent(table[:, :3].copy(), attributes, viewpoint=viewpoint)


def count_stations(path: Path) -> int:
    """Return the number of stations in a file."""
    return len(station_poses(path))


def station_poses(path: Path) -> list[np.ndarray]:
    """Return the pose (4, 4) of each station in the frame of the file."""
    poses = []
    with path.open("rb") as file:
        for header in _stations(file):
            _skip_points(file, header)
            poses.append(header.T_file_station)
    return poses


def _stations(file: BinaryIO) -> Iterator[_Station]:
    """Yield the header of each station. The caller reads or skips its points before the next one."""
    for _ in range(_MAX_STATIONS):
        first = _next_line(file)
        if not first:
            return
        lines = [first, *(file.readline(_MAX_LINE) for _ in range(_HEADER_LINES - 1))]
        try:
            columns, rows = int(lines[0]), int(lines[1])
            M = np.array([[float(word) for word in line.split()] for line in lines[6:]])
        except ValueError as error:
            raise ValueError("the file does not have the header of a PTX station") from error
        if columns < 0 or rows < 0 or M.shape != (4, 4):
            raise ValueError("the file does not have the header of a PTX station")
        left = os.fstat(file.fileno()).st_size - file.tell()
        if columns * rows * 6 - 1 > left:  # three digits, two spaces, a line end
            raise ValueError(f"the file is truncated: {columns} × {rows} points do not fit into {left} bytes")
        yield _Station(columns * rows, _pose(M))
    raise ValueError(f"the file has more than {_MAX_STATIONS} stations")


def _next_line(file: BinaryIO) -> bytes:
    """Return the next line that is not blank, or b"" at the end of the file."""
    line = file.readline(_MAX_LINE)
    while line and line.isspace():
        line = file.readline(_MAX_LINE)
    return line


def _pose(M: np.ndarray) -> np.ndarray:
    """Return the pose for column vectors. Some programs write it in that form."""
    row_vectors = np.array_equal(M[:, 3], [0, 0, 0, 1]) or not np.array_equal(M[3], [0, 0, 0, 1])
    T = M.T if row_vectors else M
    with np.errstate(all="ignore"):
        defect = np.abs(T[:3, :3] @ T[:3, :3].T - np.eye(3)).max()
    if not (np.isfinite(T).all() and defect < _TOLERANCE and np.array_equal(T[3], [0, 0, 0, 1])):
        raise ValueError("invalid pose of a station: the matrix is not a rotation and a translation")
    return np.asarray(T)


def _read_points(file: BinaryIO, station: _Station) -> np.ndarray:
    """Read the points (n, 3, 4 or 7) of a station that have an echo, in the frame of the file."""
    if station.points == 0:
        return np.empty((0, _WIDTHS[-1]))
    table = np.loadtxt(file, comments=None, max_rows=station.points, ndmin=2, encoding="latin-1")
    if table.shape[1] not in _WIDTHS:
        raise ValueError(f"the points have {table.shape[1]} columns, PTX has 4 or 7")
    if len(table) < station.points:
        raise ValueError(f"the file is truncated: {station.points} points are announced, {len(table)} follow")
    table = table[(table[:, :3] != 0).any(axis=1)]
    R, t = station.T_file_station[:3, :3], station.T_file_station[:3, 3]
    with np.errstate(all="ignore"):
        table[:, :3] = table[:, :3] @ R.T + t
    return np.asarray(table)


def _skip_points(file: BinaryIO, station: _Station) -> None:
    for _ in range(station.points):
        _next_line(file)
