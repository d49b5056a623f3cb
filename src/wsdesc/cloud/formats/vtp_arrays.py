"""Numbers of the arrays of a VTK file in XML."""

from __future__ import annotations

import binascii
import zlib

import numpy as np

from wsdesc.cloud.formats.limits import check_columns, check_unpacked
from wsdesc.cloud.formats.vtp_xml import DataArray, Document

_TYPES = {
    **{f"Int{bits}": f"i{bits // 8}" for bits in (8, 16, 32, 64)},
    **{f"UInt{bits}": f"u{bits // 8}" for bits in (8, 16, 32, 64)},
    **{f"Float{bits}": f"f{bits // 8}" for bits in (32, 64)},
}
_ZLIB = "vtkZLibDataCompressor"


class ArrayReader:
    """Decoder of the arrays of a document."""

    def __init__(self, document: Document, size: int) -> None:
        """Prepare for arrays of a file of `size` bytes."""
        if document.compressor not in ("", _ZLIB):
            raise ValueError(
                f"unsupported compression {document.compressor[:40]!r}: save it with zlib or none"
            )
        if document.header_type not in ("UInt32", "UInt64"):
            raise ValueError(f"unknown header_type {document.header_type[:40]!r}")
        self.document, self.size = document, size
        self.appended = memoryview(document.appended)
        self.order = ">" if document.big_endian else "<"
        self.word = np.dtype(self.order + _TYPES[document.header_type])  # of the lengths before the data
        self.unpacked = 0  # bytes of all arrays so far

    def table(self, array: DataArray, rows: int) -> np.ndarray:
        """Read an array (rows, components)."""
        values, text = self.vector(array), array.attributes.get("NumberOfComponents", "1")
        columns = int(text) if text.isdecimal() and len(text) < 10 else 0
        check_columns(columns)
        if columns < 1 or len(values) != rows * columns:
            raise ValueError(
                f"the array {array.name[:40]!r} has {len(values)} numbers, not {rows} × {text[:10]}"
            )
        return values.reshape(rows, columns)

    def vector(self, array: DataArray) -> np.ndarray:
        """Read all numbers of an array."""
        kind = _TYPES.get(array.attributes.get("type", ""))
        if kind is None:
            raise ValueError(f"unknown type of the array {array.name[:40]!r}")
        match array.attributes.get("format", "ascii"):
            case "ascii":
                parse = float if kind[0] == "f" else int
                with np.errstate(over="ignore"):
                    return np.array([parse(word) for word in "".join(array.parts).split()], kind)
            case "binary":
                data = self._decode("".join("".join(array.parts).split()).encode("ascii", "replace"), True)
            case "appended":
                offset = array.attributes.get("offset", "0")
                at = int(offset) if offset.isdecimal() and len(offset) < 19 else self.size
                data = self._decode(self.appended[at:], self.document.appended_base64)
            case other:
                raise ValueError(f"unknown format {other[:40]!r} of an array")
        if len(data) % np.dtype(kind).itemsize:
            raise ValueError(f"the array {array.name[:40]!r} has an incomplete number")
        return np.frombuffer(data, self.order + kind).astype(kind)

    def _decode(self, data: bytes | memoryview, base64: bool) -> bytes:
        """Return the bytes of an array; its length, or those of compressed blocks, stand before them."""
        first = self._take(data, 0, self.word.itemsize, base64)
        (count,) = np.frombuffer(first, self.word).tolist()
        if not self.document.compressor:
            self._check(count)
            width = -(-len(first) // 3) * 4
            if base64 and data[width - 1 : width] == b"=":  # the length is encoded apart from the data
                return self._take(data, width, count, base64)
            return self._take(data, 0, len(first) + count, base64)[len(first) :]
        if count > self.size:
            raise ValueError(f"the file is truncated: {count} blocks are announced")
        head_size = (3 + count) * self.word.itemsize
        head = np.frombuffer(self._take(data, 0, head_size, base64), self.word).tolist()
        _, block, last, *sizes = head
        self._check(max(count - 1, 0) * block + (last or block) * (count > 0))
        # In base64, the blocks are encoded apart from the lengths.
        start = -(-head_size // 3) * 4 if base64 else head_size
        packed = self._take(data, start, sum(sizes), base64)
        parts, at = [], 0
        for number, size in enumerate(sizes):
            length = last if number == count - 1 and last else block
            parts.append(_unpack(packed[at : at + size], length))
            at += size
        return b"".join(parts)

    def _check(self, count: int) -> None:
        self.unpacked += count
        check_unpacked(self.unpacked, self.size)

    @staticmethod
    def _take(data: bytes | memoryview, start: int, count: int, base64: bool) -> bytes:
        """Return `count` bytes from the offset `start` of the data, which may be base64."""
        end = start + (-(-count // 3) * 4 if base64 else count)
        if end > len(data):
            raise ValueError(f"the file is truncated: an array needs {end} bytes, {len(data)} follow")
        part = data[start:end]
        part = binascii.a2b_base64(part) if base64 else bytes(part)
        if len(part) < count:
            raise ValueError("the base64 data of an array are damaged")
        return part[:count]


def _unpack(packed: bytes, length: int) -> bytes:
    content = zlib.decompressobj().decompress(packed, length) if length else b""
    if len(content) != length:
        raise ValueError("the compressed data of an array are damaged")
    return content
