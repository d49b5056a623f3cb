"""glTF 2.0: .gltf and .glb. The vertices of all meshes in the scene are the points, with the poses of nodes.

trimesh is not used: it would be a dependency for one format, and loads textures and materials. Unit and axes
are those of the file (metres, y up). Draco and meshopt compression are rejected.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from wsdesc.cloud.formats import FileContent
from wsdesc.cloud.formats.faces import Ragged, check_faces, strip_triangles
from wsdesc.cloud.formats.gltf_buffers import Buffers, item, listed
from wsdesc.cloud.formats.limits import check_unpacked

_POINT_BYTES = 100  # memory per vertex with its attributes
_TRIANGLES, _STRIP, _FAN = 4, 5, 6  # modes of a primitive
_MAX_NODES = 10_000  # nodes of the scene; a node with two parents counts twice
_MAX_PRIMITIVES = 10_000  # primitives of all instances of meshes
_JSON, _BIN = 0x4E4F534A, 0x004E4942  # chunk types


def read(path: Path, faces: bool) -> FileContent:
    size = path.stat().st_size
    with path.open("rb") as file:
        text, chunk = _read_chunks(file, size) if path.suffix.lower() == ".glb" else (file.read(), b"")
    document = json.loads(text.decode("utf-8-sig"))
    if not isinstance(document, dict) or not str(item(document, "asset").get("version", "")).startswith("2"):
        raise ValueError("this is not a file of glTF 2.0")
    required = [name for name in listed(document, "extensionsRequired") if "compression" in str(name).lower()]
    if required:
        raise ValueError(
            f"the extension {str(required[0])[:60]} is not supported; export without compression"
        )
    buffers = Buffers(document, path.parent, chunk, size)
    instances = _instances(document)
    if sum(len(listed(mesh, "primitives")) for _, mesh in instances) > _MAX_PRIMITIVES:
        raise ValueError(f"the scene has more than {_MAX_PRIMITIVES} parts")
    parts, vertices = [], 0
    for T, mesh in instances:
        to_local = np.linalg.pinv(T[:3, :3])  # a node may be flat
        for primitive in listed(mesh, "primitives"):
            part = _read_primitive(buffers, primitive, T, to_local, faces)
            vertices += len(part.points) + (0 if part.faces is None else len(part.faces))
            check_unpacked(_POINT_BYTES * vertices, buffers.size)
            parts.append(part)
    return _joined(parts, faces)


def _read_chunks(file: BinaryIO, size: int) -> tuple[bytes, bytes]:
    """Return the JSON and the binary chunk of a GLB file."""
    head = file.read(12)
    if len(head) < 12 or head[:4] != b"glTF":
        raise ValueError("the file does not start with a GLB header")
    (length,) = struct.unpack_from("<I", head, 8)
    if length > size:
        raise ValueError(f"the file is truncated: {length} bytes are announced, it has {size}")
    chunks: dict[int, bytes] = {}
    while len(head := file.read(8)) == 8:
        count, kind = struct.unpack("<II", head)
        if count > size - file.tell():
            raise ValueError(f"the file is truncated: a chunk of {count} bytes is incomplete")
        chunks.setdefault(kind, file.read(count))
    if _JSON not in chunks:
        raise ValueError("the file has no JSON chunk")
    return chunks[_JSON], chunks.get(_BIN, b"")


def _instances(document: dict[str, Any]) -> list[tuple[np.ndarray, dict[str, Any]]]:
    """List the meshes of the scene with their poses (4, 4); without a scene, all meshes once."""
    nodes, meshes, scenes = (listed(document, name) for name in ("nodes", "meshes", "scenes"))
    if not scenes:
        return [(np.eye(4), mesh) for mesh in meshes if isinstance(mesh, dict)]
    scene = item(scenes, document.get("scene", 0))
    instances, visited = [], 0
    stack = [(index, np.eye(4)) for index in reversed(listed(scene, "nodes"))]
    while stack:
        index, T_scene_parent = stack.pop()
        visited += 1
        if visited > _MAX_NODES:
            raise ValueError(f"the scene has more than {_MAX_NODES} nodes, or a node contains itself")
        node = item(nodes, index)
        T = T_scene_parent @ _transformation(node)
        if "mesh" in node:
            instances.append((T, item(meshes, node["mesh"])))
        children = listed(node, "children")
        if len(children) + len(stack) > _MAX_NODES:
            raise ValueError(f"the scene has more than {_MAX_NODES} nodes, or a node contains itself")
        stack += [(child, T) for child in reversed(children)]
    return instances


def _transformation(node: dict[str, Any]) -> np.ndarray:
    """Return the matrix (4, 4) of a node, given as such or as translation, rotation and scale."""
    if "matrix" in node:
        return _numbers(node, "matrix", 16).reshape(4, 4).T
    T = np.eye(4)
    if "rotation" in node:
        x, y, z, w = _numbers(node, "rotation", 4)
        cross = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
        T[:3, :3] += 2 * w * cross + 2 * cross @ cross
    if "scale" in node:
        T[:3, :3] *= _numbers(node, "scale", 3)
    if "translation" in node:
        T[:3, 3] = _numbers(node, "translation", 3)
    return T


def _numbers(node: dict[str, Any], name: str, count: int) -> np.ndarray:
    values = np.array(node[name], np.float64)
    if values.shape != (count,) or not np.isfinite(values).all():
        raise ValueError(f"the {name} of a node must be {count} numbers")
    return values


def _read_primitive(
    buffers: Buffers, primitive: Any, T: np.ndarray, to_local: np.ndarray, faces: bool
) -> FileContent:
    names = item(primitive, "attributes")
    if "POSITION" not in names:
        return FileContent(np.empty((0, 3)), {}, np.empty((0, 3), np.int64) if faces else None)
    local = buffers.accessor(names["POSITION"]).astype(np.float64)
    if local.shape[1:] != (3,):
        raise ValueError("the positions of a mesh are not vectors of three numbers")
    attributes = {}
    with np.errstate(all="ignore"):
        points = local @ T[:3, :3].T + T[:3, 3]
        if "NORMAL" in names:
            normals = buffers.accessor(names["NORMAL"]).astype(np.float64) @ to_local
            attributes["normals"] = (normals / np.linalg.norm(normals, axis=1, keepdims=True)).astype(
                np.float32
            )
        if "COLOR_0" in names:
            attributes["colors"] = _colors(buffers.accessor(names["COLOR_0"]))
    attributes = {name: values for name, values in attributes.items() if len(values) == len(points)}
    triangles = _triangles(buffers, primitive, len(points)) if faces else None
    return FileContent(points, attributes, triangles)


def _colors(values: np.ndarray) -> np.ndarray:
    """Convert colours to uint8 (N, 3), without opacity."""
    if values.dtype.kind == "f":
        values = np.nan_to_num(np.clip(values * 255, 0, 255)).round()
    elif values.dtype == np.uint16:
        values = values >> 8
    return values.reshape(len(values), -1)[:, :3].astype(np.uint8)


def _triangles(buffers: Buffers, primitive: dict[str, Any], vertices: int) -> np.ndarray:
    mode = primitive.get("mode", _TRIANGLES)
    if "indices" in primitive:
        corners = buffers.accessor(primitive["indices"]).reshape(-1).astype(np.int64)
    else:
        corners = np.arange(vertices)
    if mode == _TRIANGLES:
        triangles = corners[: len(corners) // 3 * 3].reshape(-1, 3)
    elif mode == _STRIP:
        triangles = strip_triangles(Ragged(corners, np.array([len(corners)])))
    elif mode == _FAN and len(corners) > 2:
        triangles = np.stack(
            [np.broadcast_to(corners[:1], len(corners) - 2), corners[1:-1], corners[2:]], axis=1
        )
    else:
        triangles = np.empty((0, 3), np.int64)
    return check_faces(triangles, vertices)


def _joined(parts: list[FileContent], faces: bool) -> FileContent:
    """Join meshes, with the attributes that all of them have."""
    parts = [part for part in parts if len(part.points)]
    if not parts:
        return FileContent(np.empty((0, 3)), {})
    widths = [{name: values.shape[1:] for name, values in part.attributes.items()} for part in parts]
    common = [name for name in widths[0] if all(widths[0][name] == width.get(name) for width in widths)]
    starts = np.cumsum([0, *(len(part.points) for part in parts[:-1])])
    triangles = [p.faces + s for p, s in zip(parts, starts, strict=True) if p.faces is not None]
    return FileContent(
        np.concatenate([part.points for part in parts]),
        {name: np.concatenate([part.attributes[name] for part in parts]) for name in common},
        np.concatenate(triangles) if faces else None,
    )
