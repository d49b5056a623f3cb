"""Buffers and accessors of a glTF file, with checks of every index and length."""

from __future__ import annotations

import binascii
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote

import numpy as np

from wsdesc.cloud.formats.limits import check_unpacked

_COMPONENTS = {5120: "i1", 5121: "u1", 5122: "i2", 5123: "u2", 5125: "u4", 5126: "f4"}
_WIDTHS = {"SCALAR": 1, "VEC2": 2, "VEC3": 3, "VEC4": 4}
_DATA_URI = "base64,"


def item(container: Any, key: Any) -> dict[str, Any]:
    """Return the dictionary at an index of a list, or at a key of a dictionary."""
    value = None
    if isinstance(container, dict):
        value = container.get(key)
    elif isinstance(container, list) and isinstance(key, int) and 0 <= key < len(container):
        value = container[key]
    if not isinstance(value, dict):
        raise ValueError(f"the file has no object {str(key)[:40]!r} where it needs one")
    return value


def listed(container: Any, key: str) -> list[Any]:
    """Return the list at a key of a dictionary; it is empty if there is none."""
    value = container.get(key, []) if isinstance(container, dict) else None
    if not isinstance(value, list):
        raise ValueError(f"{key} is not a list")
    return value


def whole(container: dict[str, Any], key: str, default: int | None = None) -> int:
    """Return the non-negative whole number at a key."""
    value = container.get(key, default)
    if not isinstance(value, int) or value < 0:
        raise ValueError(f"{key} is not a whole number")
    return value


class Buffers:
    """Reader of accessors. Buffers and accessors are loaded once, when they are first used."""

    def __init__(self, document: dict[str, Any], folder: Path, chunk: bytes, size: int) -> None:
        """Prepare for a file of `size` bytes in `folder` with the binary chunk of a GLB."""
        self.document, self.folder = document, folder
        self.size = size  # bytes of the file and of the buffers beside it
        self.unpacked = 0  # bytes of all accessors so far
        self.loaded: dict[str | None, bytes] = {None: chunk}  # by URI
        self.unpacked_accessors: dict[int, np.ndarray] = {}

    def accessor(self, index: Any) -> np.ndarray:
        """Read the numbers (count, components) of an accessor; normalised integers become float32.

        Parts that share an accessor get the same read-only array.
        """
        array = self.unpacked_accessors.get(index) if isinstance(index, int) else None
        if array is None:
            array = self.unpacked_accessors[index] = self._unpack(index)
            array.flags.writeable = False
        return array

    def _unpack(self, index: Any) -> np.ndarray:
        accessor = item(listed(self.document, "accessors"), index)
        kind, width = _COMPONENTS.get(accessor.get("componentType", 0)), _WIDTHS.get(accessor.get("type", ""))
        if kind is None or width is None:
            raise ValueError("an accessor has an unknown type")
        if "sparse" in accessor or "bufferView" not in accessor:
            raise ValueError("sparse accessors are not supported; export the mesh without them")
        row, count = np.dtype("<" + kind).itemsize * width, whole(accessor, "count")
        self.unpacked += count * row
        check_unpacked(self.unpacked, self.size)
        view = item(listed(self.document, "bufferViews"), accessor["bufferView"])
        data, stride = self._buffer(whole(view, "buffer")), whole(view, "byteStride", row) or row
        start, inside = whole(view, "byteOffset", 0), whole(accessor, "byteOffset", 0)
        needed = inside + (count - 1) * stride + row if count else 0
        if stride < row or needed > whole(view, "byteLength") or start + needed > len(data):
            raise ValueError(f"an accessor of {count} elements does not fit into its buffer")
        rows = np.ndarray((count, width), "<" + kind, data, start + inside, (stride, row // width))
        if accessor.get("normalized") and kind[0] in "iu":
            return (rows / np.iinfo(kind).max).astype(np.float32)
        return rows.astype(kind)

    def _buffer(self, index: int) -> bytes:
        buffer = item(listed(self.document, "buffers"), index)
        uri, length = buffer.get("uri"), whole(buffer, "byteLength")
        uri = None if uri is None else str(uri)
        if uri not in self.loaded:
            self.loaded[uri] = self._load(str(uri))
        if len(self.loaded[uri]) < length:
            raise ValueError(f"the file is truncated: a buffer of {length} bytes is incomplete")
        return self.loaded[uri]

    def _load(self, uri: str) -> bytes:
        """Decode a data URI, or read a file in the folder of the glTF file or below it."""
        if uri.startswith("data:"):
            return binascii.a2b_base64(uri.partition(_DATA_URI)[2])
        name = PurePosixPath(unquote(uri))
        if name.is_absolute() or ".." in name.parts or ":" in uri or "\\" in uri:
            raise ValueError(f"the buffer {uri[:60]!r} is not in the folder of the file")
        path = self.folder / name
        if not path.is_file():
            raise ValueError(f"the buffer {uri[:60]!r} is missing beside the file")
        content = path.read_bytes()
        self.size += len(content)
        return content
