"""Small valid files of formats that WSDesc reads but does not write: PTX, VTK, glTF."""

from __future__ import annotations

import base64
import json
import struct
import zlib
from pathlib import Path

import numpy as np

_VERTICES = np.random.default_rng(0).normal(size=(5, 3)).round(2)
_STATION = "{0}\n{1}\n0 0 0\n1 0 0\n0 1 0\n0 0 1\n1 0 0 0\n0 1 0 0\n0 0 1 0\n5 6 7 1\n"


def ptx(folder: Path) -> list[bytes]:
    rows = [" ".join(map(str, vertex)) for vertex in _VERTICES.tolist()]
    gray = _STATION.format(2, 3) + "".join(f"{row} 0.5\n" for row in ["0 0 0", *rows])
    color = _STATION.format(5, 1) + "".join(f"{row} 0.5 1 2 3\n" for row in rows)
    return [gray.encode(), color.encode(), (gray + color).encode()]


def vtk(folder: Path) -> list[bytes]:
    """Return text, binary, and binary with offsets as in version 5.1."""
    polygons = [3, 0, 1, 2, 4, 0, 1, 2, 3]
    head = "# vtk DataFile Version {}\na scan\n{}\nDATASET POLYDATA\nPOINTS 5 float\n"
    texts = [
        head.format("3.0", "ASCII"),
        " ".join(map(str, _VERTICES.ravel().tolist())),
        "\nPOLYGONS 2 9\n3 0 1 2\n4 0 1 2 3\nTRIANGLE_STRIPS 1 5\n4 0 1 2 3\nPOINT_DATA 5\n",
        "SCALARS intensity float 1\nLOOKUP_TABLE default\n1 2 3 4 5\nNORMALS n float\n" + "0 0 1 " * 5,
        "\nCOLOR_SCALARS c 3\n" + "0 0.5 1 " * 5 + "\nFIELD f 1\nring%20number 1 5 int\n1 2 3 4 5\n",
    ]
    points, numbers = _VERTICES.astype(">f4").tobytes(), np.arange(5, dtype=">i2").tobytes()
    binary = head.format("3.0", "BINARY").encode() + points
    binary += b"\nPOLYGONS 2 9\n" + np.array(polygons, ">i4").tobytes()
    binary += b"\nPOINT_DATA 5\nSCALARS a short\nLOOKUP_TABLE default\n" + numbers + b"\n"
    late = head.format("5.1", "BINARY").encode() + points + b"\nMETADATA\nINFORMATION 0\n\n"
    late += b"POLYGONS 3 7\nOFFSETS vtktypeint64\n" + np.array([0, 3, 7], ">i8").tobytes()
    late += b"\nCONNECTIVITY vtktypeint64\n" + np.array([0, 1, 2, 0, 1, 2, 3], ">i8").tobytes() + b"\n"
    return ["".join(texts).encode(), binary, late]


def vtp(folder: Path) -> list[bytes]:
    """Return text, base64, compressed base64 and appended raw bytes."""
    return [vtp_file(kind) for kind in ("ascii", "binary", "zlib", "raw")]


def vtp_file(kind: str, blocks: list[int] | None = None) -> bytes:
    """Return a file with arrays of a kind; `blocks` replaces the lengths before compressed ones."""
    appended = bytearray()

    def array(name: str, values: np.ndarray, width: int = 1) -> str:
        attributes = (
            f'type="{ {"f": "Float", "i": "Int"}[values.dtype.kind] }{8 * values.itemsize}" Name="{name}"'
        )
        attributes += f' NumberOfComponents="{width}"'
        data = values.tobytes()
        if kind == "ascii":
            text = " ".join(map(str, values.ravel().tolist()))
            return f'<DataArray {attributes} format="ascii">{text}</DataArray>'
        if kind == "raw":
            attributes += f' offset="{len(appended)}"'
            appended.extend(struct.pack("<I", len(data)) + data)
            return f'<DataArray {attributes} format="appended"/>'
        if kind == "binary":
            text = base64.b64encode(struct.pack("<I", len(data)) + data).decode()
        else:
            packed = zlib.compress(data)
            lengths = struct.pack("<4I", *(blocks or [1, len(data), 0, len(packed)]))
            text = base64.b64encode(lengths).decode() + base64.b64encode(packed).decode()
        return f'<DataArray {attributes} format="binary">{text}</DataArray>'

    compressor = ' compressor="vtkZLibDataCompressor"' if kind == "zlib" else ""
    corners, ends = np.array([0, 1, 2, 0, 1, 2, 3], "<i4"), np.array([3, 7], "<i4")
    text = (
        f'<?xml version="1.0"?><VTKFile type="PolyData" byte_order="LittleEndian"{compressor}><PolyData>'
        f'<Piece NumberOfPoints="5" NumberOfPolys="2"><PointData Normals="n">'
        f"{array('n', _VERTICES.astype('<f4'), 3)}{array('a', np.arange(5, dtype='<i4'))}</PointData>"
        f"<Points>{array('Points', _VERTICES.astype('<f4'), 3)}</Points><Polys>"
        f"{array('connectivity', corners)}{array('offsets', ends)}</Polys></Piece></PolyData>"
    )
    if kind == "raw":
        return (
            text.encode() + b'<AppendedData encoding="raw">_' + bytes(appended) + b"</AppendedData></VTKFile>"
        )
    return text.encode() + b"</VTKFile>"


def gltf_document() -> tuple[dict[str, object], bytes]:
    """Return the JSON and the buffer of two triangles with normals and colours, turned by a node."""
    faces = np.array([0, 1, 2, 0, 2, 3], "<u2").tobytes()
    colors = np.arange(20, dtype=np.uint8).tobytes()
    parts = [_VERTICES.astype("<f4").tobytes(), _VERTICES.astype("<f4").tobytes(), colors, faces]
    starts = np.cumsum([0, *map(len, parts)]).tolist()
    kinds = [(5126, "VEC3", 5), (5126, "VEC3", 5), (5121, "VEC4", 5), (5123, "SCALAR", 6)]
    views = [
        {"buffer": 0, "byteOffset": s, "byteLength": len(p)} for s, p in zip(starts, parts, strict=False)
    ]
    primitive = {"attributes": {"POSITION": 0, "NORMAL": 1, "COLOR_0": 2}, "indices": 3}
    document = {
        "asset": {"version": "2.0"},
        "scene": 0,
        "scenes": [{"nodes": [0]}],
        "nodes": [
            {"children": [1], "translation": [1, 2, 3]},
            {"mesh": 0, "rotation": [0.6, 0, 0, 0.8], "scale": [2, 2, 2]},
        ],
        "meshes": [{"primitives": [primitive, primitive | {"mode": 5}, primitive | {"mode": 6}]}],
        "accessors": [
            {"bufferView": k, "componentType": c, "type": t, "count": n, "normalized": k == 2}
            for k, (c, t, n) in enumerate(kinds)
        ],
        "bufferViews": views,
        "buffers": [{"byteLength": starts[-1]}],
    }
    return document, b"".join(parts)


def gltf(folder: Path) -> list[bytes]:
    document, content = gltf_document()
    uri = "data:application/octet-stream;base64," + base64.b64encode(content).decode()
    return [json.dumps(document | {"buffers": [{"byteLength": len(content), "uri": uri}]}).encode()]


def glb(folder: Path) -> list[bytes]:
    return [glb_file(*gltf_document())]


def glb_file(document: dict[str, object], content: bytes) -> bytes:
    """Return a GLB file of a JSON document and a buffer."""
    text = json.dumps(document).encode()
    text += b" " * (-len(text) % 4)
    content += bytes(-len(content) % 4)
    chunks = (
        struct.pack("<I4s", len(text), b"JSON") + text + struct.pack("<I4s", len(content), b"BIN\0") + content
    )
    return struct.pack("<4sII", b"glTF", 2, 12 + len(chunks)) + chunks
