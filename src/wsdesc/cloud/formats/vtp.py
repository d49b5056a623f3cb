"""VTK polydata in XML (.vtp): points, point data, and polygons if wanted, of all pieces.

Arrays are text, base64, or appended as base64 or raw bytes; without compression or with zlib.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from wsdesc.cloud.formats import FileContent
from wsdesc.cloud.formats.faces import Ragged, check_faces, strip_triangles, triangulate
from wsdesc.cloud.formats.limits import check_columns, check_unpacked
from wsdesc.cloud.formats.vtp_arrays import ArrayReader
from wsdesc.cloud.formats.vtp_xml import Piece, parse_xml


def read(path: Path, faces: bool) -> FileContent:
    content = path.read_bytes()
    document = parse_xml(content)
    if document.kind != "PolyData":
        raise ValueError(f"the dataset is {document.kind[:40] or 'missing'}, only PolyData is supported")
    arrays = ArrayReader(document, len(content))
    pieces = [_read_piece(arrays, piece, faces) for piece in document.pieces]
    pieces = [piece for piece in pieces if len(piece.points)]
    if not pieces:
        return FileContent(np.empty((0, 3)), {})
    starts = np.cumsum([0, *(len(piece.points) for piece in pieces)])
    shapes = [{n: (v.dtype, v.shape[1:]) for n, v in piece.attributes.items()} for piece in pieces]
    common = [name for name in shapes[0] if all(shapes[0][name] == shape.get(name) for shape in shapes)]
    return FileContent(
        np.concatenate([piece.points for piece in pieces]),
        {name: np.concatenate([piece.attributes[name] for piece in pieces]) for name in common},
        np.concatenate(
            [p.faces + start for p, start in zip(pieces, starts, strict=False) if p.faces is not None]
        )
        if faces
        else None,
    )


def _read_piece(arrays: ArrayReader, piece: Piece, faces: bool) -> FileContent:
    check_columns(len(piece.arrays))
    check_unpacked(24 * piece.points, arrays.size)
    attributes, points = {}, np.empty((0, 3))
    for array in piece.arrays:
        if array.section == "Points":
            points = arrays.table(array, piece.points).astype(np.float64)
            if points.shape != (piece.points, 3):
                raise ValueError(f"the points are an array {points.shape}, not ({piece.points}, 3)")
        elif array.section == "PointData" and array.is_numeric:
            values = arrays.table(array, piece.points)
            name = "normals" if array.name == piece.normals and values.shape[1] == 3 else array.name
            attributes[name] = values[:, 0] if values.shape[1] == 1 else values
    if len(points) != piece.points:
        raise ValueError(f"a piece of {piece.points} points has none")
    return FileContent(points, attributes, _faces(arrays, piece) if faces else None)


def _faces(arrays: ArrayReader, piece: Piece) -> np.ndarray:
    parts = [np.empty((0, 3), np.int64)]
    for section, split in (("Polys", triangulate), ("Strips", strip_triangles)):
        named = {array.name: array for array in piece.arrays if array.section == section}
        if {"connectivity", "offsets"} <= named.keys():
            values, ends = (
                arrays.vector(named[name]).astype(np.int64) for name in ("connectivity", "offsets")
            )
            lengths = np.diff(ends, prepend=0)
            if len(ends) and (ends[-1] != len(values) or (lengths < 0).any()):
                raise ValueError(f"the offsets of the faces do not fit to {len(values)} vertex indices")
            parts.append(split(Ragged(values, lengths)) if len(ends) else parts[0])
    return check_faces(np.concatenate(parts), piece.points)
