"""Meshes: obj, off, stl. Points are the vertices; written are vertices alone.

Why not trimesh, which reads them all: it refuses polygons of more than four corners in off and files of
several solids in stl, returns what is there of a file that is cut off, and takes seconds for a megabyte of
materials.
"""

from __future__ import annotations

import os
import re
from array import array
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import BinaryIO

import numpy as np

from wsdesc.cloud.clean import first_occurrences
from wsdesc.cloud.formats import Reading
from wsdesc.cloud.formats.faces import Ragged, check_faces, fans

_TRIANGLE = np.dtype([("normal", "<f4", 3), ("corners", "<f4", (3, 3)), ("attribute", "<u2")])


def read(path: Path, faces: bool) -> Reading:
    """Vertices in the order of the file, and triangles if they are wanted."""
    readers = {".obj": _read_obj, ".off": _read_off, ".stl": _read_stl}
    with path.open("rb") as file:
        return readers[path.suffix.lower()](file, faces)


class _Polygons:
    """Corners of polygons, as they come."""

    def __init__(self) -> None:
        self.corners, self.lengths = array("q"), array("q")

    def add(self, corners: list[int]) -> None:
        self.corners.extend(corners)
        self.lengths.append(len(corners))

    def triangles(self, vertices: int) -> np.ndarray:
        ragged = Ragged(np.array(self.corners, np.int64), np.array(self.lengths, np.int64))
        return check_faces(fans(ragged), vertices)


def _read_obj(file: BinaryIO, faces: bool) -> Reading:
    """Lines `v x y z …` and `f a/… b/… c/… …`; everything else is about looks."""
    coordinates, polygons = array("d"), _Polygons()
    for line in _whole_lines(file):
        if line.startswith((b"v ", b"v\t")):
            _add_vertex(coordinates, line.split()[1:4])
        elif faces and line.startswith((b"f ", b"f\t")):
            numbers = [int(word.partition(b"/")[0]) for word in line.split()[1:]]
            if 0 in numbers:
                raise ValueError("a face names a vertex 0, the first is 1")
            # Negative numbers count back from the last vertex so far.
            polygons.add([n - 1 if n > 0 else n + len(coordinates) // 3 for n in numbers])
    return _reading(coordinates, polygons if faces else None)


def _whole_lines(file: BinaryIO) -> Iterator[bytes]:
    """Lines without the white space around, those joined that end with a backslash."""
    parts: list[bytes] = []
    for line in file:
        if line.rstrip(b"\r\n").endswith(b"\\"):
            parts.append(line.rstrip(b"\\\r\n"))
        else:
            yield b" ".join([*parts, line]).strip() if parts else line.strip()
            parts.clear()
    if parts:
        yield b" ".join(parts).strip()


def _read_off(file: BinaryIO, faces: bool) -> Reading:
    """A line a vertex, then a line a face: how many corners, and which vertices they are."""
    lines = (line for raw in file if (line := raw.partition(b"#")[0].strip()))
    head = next(lines, b"")
    if re.fullmatch(rb"[A-Z]+", head):  # counts may stand on the line of the name, or on the next
        head += b" " + next(lines, b"")
    counts = re.match(rb"(?:ST)?C?N?OFF\s*(\d{1,18})\s+(\d{1,18})", head)
    if counts is None:
        raise ValueError("it does not begin with OFF and its counts")
    vertices, polygons = map(int, counts.groups())
    coordinates, found, lengths = array("d"), _Polygons(), 0
    for line in islice(lines, vertices):
        _add_vertex(coordinates, line.split()[:3])
    for line in islice(lines, polygons):
        lengths += 1
        if faces:
            words = line.split()
            corners = [int(word) for word in words[1 : 1 + int(words[0])]]
            if len(corners) != int(words[0]):
                raise ValueError(f"a face of {int(words[0])} corners has {len(corners)}")
            found.add(corners)
    rows = len(coordinates) // 3 + lengths
    if rows < vertices + polygons:
        raise ValueError(
            f"it is cut off: {vertices} vertices and {polygons} faces promised, {rows} lines follow"
        )
    return _reading(coordinates, found if faces else None)


def _read_stl(file: BinaryIO, faces: bool) -> Reading:
    """Three vertices a triangle, binary or as text; a vertex is there for every triangle around it."""
    head = file.read(84)
    size = os.fstat(file.fileno()).st_size
    promised = 84 + _TRIANGLE.itemsize * int.from_bytes(head[80:], "little")
    if size >= 84 and promised == size:
        vertices = np.fromfile(file, _TRIANGLE)["corners"].reshape(-1, 3).astype(np.float64)
    elif head.lstrip().startswith(b"solid") and b"\0" not in head:
        file.seek(0)
        vertices = _vertices_of_solids(file)
    else:
        raise ValueError(f"it should have {promised} bytes and has {size}")
    if not faces:
        return Reading(vertices[first_occurrences(vertices)] if len(vertices) else vertices, {})
    return Reading(vertices, {}, np.arange(len(vertices)).reshape(-1, 3))


def _vertices_of_solids(file: BinaryIO) -> np.ndarray:
    coordinates, last = array("d"), b""
    for line in file:
        words = line.split()
        if words and words[0].lower() == b"vertex":
            _add_vertex(coordinates, words[1:4])
        last = words[0].lower() if words else last
    if last != b"endsolid":
        raise ValueError("it is cut off: there is no endsolid")
    if len(coordinates) % 9:
        raise ValueError("it is damaged: a triangle does not have three vertices")
    return np.array(coordinates).reshape(-1, 3)


def _add_vertex(coordinates: array[float], words: list[bytes]) -> None:
    if len(words) < 3:
        raise ValueError("a vertex does not have three coordinates")
    coordinates.extend(map(float, words))


def _reading(coordinates: array[float], polygons: _Polygons | None) -> Reading:
    vertices = np.array(coordinates).reshape(-1, 3)  # (N, 3)
    return Reading(vertices, {}, polygons.triangles(len(vertices)) if polygons else None)


_CHUNK = 100_000


def write(path: Path, points: np.ndarray, attributes: Mapping[str, np.ndarray]) -> None:
    start_of_row = "v " if path.suffix.lower() == ".obj" else ""
    with path.open("w", encoding="ascii", newline="\n") as file:
        if not start_of_row:
            file.write(f"OFF\n{len(points)} 0 0\n")
        for start in range(0, len(points), _CHUNK):
            rows = points[start : start + _CHUNK].astype(np.float64).tolist()
            file.writelines(f"{start_of_row}{x!r} {y!r} {z!r}\n" for x, y, z in rows)
