"""Meshes: obj, off, stl. The vertices are the points; faces are read if wanted, and never written.

trimesh is not used. It rejects polygons with more than four corners in off, and several solids in stl. It
reads truncated files without an error, and takes seconds for a megabyte of materials.
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
from wsdesc.cloud.formats import FileContent
from wsdesc.cloud.formats.faces import Ragged, check_faces, triangulate

_CHUNK = 100_000  # points written at a time
_TRIANGLE = np.dtype([("normal", "<f4", 3), ("corners", "<f4", (3, 3)), ("attribute", "<u2")])


def read(path: Path, faces: bool) -> FileContent:
    """Read the vertices in the order of the file, and triangles if wanted."""
    readers = {".obj": _read_obj, ".off": _read_off, ".stl": _read_stl}
    with path.open("rb") as file:
        return readers[path.suffix.lower()](file, faces)


class _Polygons:
    """Growing list of polygons."""

    def __init__(self) -> None:
        self.corners, self.lengths = array("q"), array("q")

    def add(self, corners: list[int]) -> None:
        self.corners.extend(corners)
        self.lengths.append(len(corners))

    def triangles(self, vertices: int) -> np.ndarray:
        ragged = Ragged(np.array(self.corners, np.int64), np.array(self.lengths, np.int64))
        return check_faces(triangulate(ragged), vertices)


def _read_obj(file: BinaryIO, faces: bool) -> FileContent:
    """Read the lines `v x y z …` and `f a/… b/… c/… …`; the others describe the appearance."""
    coordinates, polygons = array("d"), _Polygons()
    for line in _joined_lines(file):
        if line.startswith((b"v ", b"v\t")):
            _add_vertex(coordinates, line.split()[1:4])
        elif faces and line.startswith((b"f ", b"f\t")):
            numbers = [int(word.partition(b"/")[0]) for word in line.split()[1:]]
            if 0 in numbers:
                raise ValueError("a face has the vertex index 0; indices start at 1")
            # Negative indices count back from the last vertex so far.
            polygons.add([n - 1 if n > 0 else n + len(coordinates) // 3 for n in numbers])
    return _content(coordinates, polygons if faces else None)


def _joined_lines(file: BinaryIO) -> Iterator[bytes]:
    """Yield stripped lines; a line that ends with a backslash is joined with the next one."""
    parts: list[bytes] = []
    for line in file:
        if line.rstrip(b"\r\n").endswith(b"\\"):
            parts.append(line.rstrip(b"\\\r\n"))
        else:
            yield b" ".join([*parts, line]).strip() if parts else line.strip()
            parts.clear()
    if parts:
        yield b" ".join(parts).strip()


def _read_off(file: BinaryIO, faces: bool) -> FileContent:
    """Read one line per vertex, then one line per face: the number of corners and the vertex indices."""
    lines = (line for raw in file if (line := raw.partition(b"#")[0].strip()))
    head = next(lines, b"")
    if re.fullmatch(rb"[A-Z]+", head):  # the counts are on the first or on the second line
        head += b" " + next(lines, b"")
    counts = re.match(rb"(?:ST)?C?N?OFF\s*(\d{1,18})\s+(\d{1,18})", head)
    if counts is None:
        raise ValueError("the file does not start with OFF and the counts")
    vertices, polygon_count = map(int, counts.groups())
    coordinates, polygons, face_lines = array("d"), _Polygons(), 0
    for line in islice(lines, vertices):
        _add_vertex(coordinates, line.split()[:3])
    for line in islice(lines, polygon_count):
        face_lines += 1
        if faces:
            words = line.split()
            corners = [int(word) for word in words[1 : 1 + int(words[0])]]
            if len(corners) != int(words[0]):
                raise ValueError(f"a face with {int(words[0])} corners has {len(corners)} indices")
            polygons.add(corners)
    rows = len(coordinates) // 3 + face_lines
    if rows < vertices + polygon_count:
        announced = f"{vertices} vertices and {polygon_count} faces"
        raise ValueError(f"the file is truncated: the header announces {announced}, {rows} lines follow")
    return _content(coordinates, polygons if faces else None)


def _read_stl(file: BinaryIO, faces: bool) -> FileContent:
    """Read three vertices per triangle, binary or text. Vertices repeat in every triangle around them."""
    head = file.read(84)
    size = os.fstat(file.fileno()).st_size
    expected = 84 + _TRIANGLE.itemsize * int.from_bytes(head[80:], "little")
    if size >= 84 and expected == size:
        vertices = np.fromfile(file, _TRIANGLE)["corners"].reshape(-1, 3).astype(np.float64)
    elif head.lstrip().startswith(b"solid") and b"\0" not in head:
        file.seek(0)
        vertices = _read_text_stl(file)
    else:
        raise ValueError(f"the file should have {expected} bytes and has {size}")
    if not faces:
        return FileContent(vertices[first_occurrences(vertices)] if len(vertices) else vertices, {})
    return FileContent(vertices, {}, np.arange(len(vertices)).reshape(-1, 3))


def _read_text_stl(file: BinaryIO) -> np.ndarray:
    coordinates, last = array("d"), b""
    for line in file:
        words = line.split()
        if words and words[0].lower() == b"vertex":
            _add_vertex(coordinates, words[1:4])
        last = words[0].lower() if words else last
    if last != b"endsolid":
        raise ValueError("the file is truncated: endsolid is missing")
    if len(coordinates) % 9:
        raise ValueError("the file is damaged: a triangle does not have three vertices")
    return np.array(coordinates).reshape(-1, 3)


def _add_vertex(coordinates: array[float], words: list[bytes]) -> None:
    if len(words) < 3:
        raise ValueError("a vertex does not have three coordinates")
    coordinates.extend(map(float, words))


def _content(coordinates: array[float], polygons: _Polygons | None) -> FileContent:
    vertices = np.array(coordinates).reshape(-1, 3)  # (N, 3)
    return FileContent(vertices, {}, polygons.triangles(len(vertices)) if polygons else None)


def write(path: Path, points: np.ndarray, attributes: Mapping[str, np.ndarray]) -> None:
    prefix = "v " if path.suffix.lower() == ".obj" else ""
    with path.open("w", encoding="ascii", newline="\n") as file:
        if not prefix:
            file.write(f"OFF\n{len(points)} 0 0\n")
        for start in range(0, len(points), _CHUNK):
            rows = points[start : start + _CHUNK].astype(np.float64).tolist()
            file.writelines(f"{prefix}{x!r} {y!r} {z!r}\n" for x, y, z in rows)
