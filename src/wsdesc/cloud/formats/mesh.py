"""Meshes by way of trimesh: obj, off, stl. Points are the vertices; written are vertices alone."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from wsdesc.cloud.clean import first_occurrences
from wsdesc.cloud.formats import Reading
from wsdesc.cloud.formats.surface import check_faces


def read(path: Path, faces: bool) -> Reading:
    import trimesh

    extension = path.suffix.lower()
    # One mesh, vertices as in the file, and no other file opened for materials.
    options = {"maintain_order": True, "skip_materials": True, "group_material": False}
    content = path.read_bytes()
    if not (extension == ".stl" and _is_binary_stl(content)):
        text = content.decode("utf-8", errors="replace")
        if extension == ".off":
            _check_off(text)
        content = text.encode()  # clean UTF-8, or trimesh asks for a package that guesses encodings
    try:
        loaded = trimesh.load(
            io.BytesIO(content),
            file_type=extension[1:],
            process=False,
            **(options if extension == ".obj" else {}),
        )
    except Exception as error:
        raise ValueError(f"it is cut off or damaged ({error})") from error
    if not isinstance(loaded, trimesh.Trimesh | trimesh.PointCloud):
        raise ValueError("it has no vertices, or it is cut off")
    vertices = np.array(loaded.vertices, np.float64)  # (N, 3)
    if vertices.ndim != 2 or vertices.shape[1] != 3:
        raise ValueError("its vertices do not have three coordinates each")
    triangles = check_faces(np.asarray(getattr(loaded, "faces", np.empty((0, 3), np.int64))), len(vertices))
    if extension == ".stl" and not faces:  # which repeats a vertex for every triangle around it
        vertices = vertices[first_occurrences(vertices)]
    return Reading(vertices, {}, triangles)


def _is_binary_stl(content: bytes) -> bool:
    """Whether it is binary, and then whole; trimesh takes a cut one for text and finds nothing in it."""
    promised = int.from_bytes(content[80:84], "little") * 50 + 84
    if len(content) >= 84 and promised == len(content):
        return True
    if content.lstrip().startswith(b"solid") and b"\0" not in content:
        if b"endsolid" not in content:
            raise ValueError("it is cut off: there is no endsolid")
        return False
    raise ValueError(f"it should have {promised} bytes and has {len(content)}")


def _check_off(text: str) -> None:
    """Refuse counts that the lines do not bear out; trimesh makes do with fewer faces."""
    lines = [line for line in (line.split("#")[0].strip() for line in text.splitlines()) if line]
    header = re.match(r"\w*OFF\s*(\d+)\s+(\d+)", "\n".join(lines[:2]))
    if header is None:
        raise ValueError("it does not begin with OFF and its counts")
    vertices, faces = map(int, header.groups())
    rows = len(lines) - 1 - header[0].count("\n")
    if rows < vertices + faces:
        raise ValueError(
            f"it is cut off: {vertices} vertices and {faces} faces promised, {rows} lines follow"
        )


_CHUNK = 100_000


def write(path: Path, points: np.ndarray, attributes: Mapping[str, np.ndarray]) -> None:
    start_of_row = "v " if path.suffix.lower() == ".obj" else ""
    with path.open("w", encoding="ascii", newline="\n") as file:
        if not start_of_row:
            file.write(f"OFF\n{len(points)} 0 0\n")
        for start in range(0, len(points), _CHUNK):
            rows = points[start : start + _CHUNK].astype(np.float64).tolist()
            file.writelines(f"{start_of_row}{x!r} {y!r} {z!r}\n" for x, y, z in rows)
