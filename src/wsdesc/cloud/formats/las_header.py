"""Check of the header of a LAS or LAZ file against the size of the file, before a library reads it.

The libraries allocate memory for counts in the file. The LAZ library aborts the process if that fails.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from wsdesc.cloud.formats.limits import check_unpacked
from wsdesc.cloud.storage import Record

_VLR = struct.Struct("<2x16sHH32s")  # header of a variable length record: user, number, length, description
_EVLR = struct.Struct("<2x16sHQ32s")  # the same for records after the points
_MIN_HEADER, _HEADER_1_4 = 227, 375  # bytes of the headers of LAS 1.0 and 1.4, the shortest and the longest
CRS_USER = "LASF_Projection"
CRS_WKT = 2112  # number of the record with the coordinate system as text
_CRS = (2111, CRS_WKT, 34735, 34736, 34737)  # WKT, and GeoTIFF keys with their numbers and texts
_MAX_CRS = 65_535  # bytes of a record, as before the points
_MAX_RECORDS = 10_000
_POINT, _RGB, _RGB_NIR, _WAVES, _BYTES = 10, 11, 12, 13, 14  # item types of layered compression
_LAYERS = {_POINT: 9, _RGB: 1, _RGB_NIR: 2, _WAVES: 1}  # per item; extra bytes have one per byte
_LAYERED = 3  # first item version with layers: point formats 6 and later
_VARIABLE = 2**32 - 1  # chunk size that refers to the chunk table
_MAX_COMPRESSED_ROW = 8192  # bytes of a compressed point; decompression takes a few kB for each of them


@dataclass(frozen=True)
class LasLayout:
    """Location and number of the points, from the header."""

    start: int  # offset of the points
    header: int  # bytes of the header
    records: int  # number of variable length records
    row: int  # bytes of a point
    points: int
    compressed: bool


def check_header(path: Path) -> LasLayout:
    """Return the layout, or raise a ValueError if the file is too small for it."""
    size = path.stat().st_size
    with path.open("rb") as file:
        layout = _layout(file.read(_HEADER_1_4))
        needed = max(layout.start, layout.header + layout.records * _VLR.size)
        rows = 0 if layout.compressed else layout.points * layout.row
        if needed + rows > size:  # a compressed point may take less than a byte
            raise ValueError(f"the file is truncated: {layout.points} points do not fit into {size} bytes")
        if layout.compressed:
            check_unpacked(layout.points * (24 + layout.row), size)
            _check_compression(file, layout, size)
    return layout


def _layout(head: bytes) -> LasLayout:
    if not head.startswith(b"LASF") or len(head) < _MIN_HEADER:
        raise ValueError("the file does not start with a LAS header")
    header, start, records, kind, row, points = struct.unpack_from("<HIIBHI", head, 94)
    if _is_1_4(head):
        (points,) = struct.unpack_from("<Q", head, 247)
    return LasLayout(start, header, records, row, points, bool(kind & 0x80))


def _is_1_4(head: bytes) -> bool:
    """Return whether the header has the fields of LAS 1.4: long counts, and records after the points."""
    return tuple(head[24:26]) >= (1, 4) and len(head) >= _HEADER_1_4


def read_crs(path: Path) -> tuple[Record, ...]:
    """Return the records of the coordinate system, before and after the points; damaged ones are ignored."""
    size = path.stat().st_size
    with path.open("rb") as file:
        head = file.read(_HEADER_1_4)
        layout = _layout(head)
        records = [*_records(file, layout.header, layout.records, _VLR, size)]
        if _is_1_4(head):
            start, count = struct.unpack_from("<QI", head, 235)
            records += _records(file, start, count, _EVLR, size)
    return tuple(record for record in records if record.number in _CRS)


def _records(file: BinaryIO, at: int, count: int, head: struct.Struct, size: int) -> Iterator[Record]:
    """Yield those of the `count` records from the offset `at` that describe the coordinate system."""
    for _ in range(min(count, _MAX_RECORDS)):
        if at + head.size > size:
            return
        file.seek(at)
        user, number, length, description = head.unpack(file.read(head.size))
        at += head.size + length
        if _name(user) == CRS_USER and length <= _MAX_CRS and at <= size:
            yield Record(number, _name(description), file.read(length))


def _name(text: bytes) -> str:
    return text.split(b"\0")[0].decode("ascii", "replace")


def _check_compression(file: BinaryIO, layout: LasLayout, size: int) -> None:
    for record in _laszip_records(file, layout):
        if len(record) < 34:
            raise ValueError("the file is damaged: the LASzip record is too short")
        (chunk_size,) = struct.unpack_from("<I", record, 12)
        items = list(struct.iter_unpack("<HHH", record[34 : 34 + (len(record) - 34) // 6 * 6]))
        items = items[: int.from_bytes(record[32:34], "little")]  # type, size and version
        if sum(item for _, item, _ in items) != layout.row or layout.row > _MAX_COMPRESSED_ROW:
            raise ValueError(
                "the file is damaged: point record length differs between header and LASzip record"
            )
        chunks = _count_chunks(file, layout.start, size)
        if chunks > size:
            raise ValueError("the file is damaged: the chunk table is longer than the file")
        # The library chooses the decompressor by the items, not by the type in the record.
        if any(version >= _LAYERED for *_, version in items):
            if chunk_size != _VARIABLE:
                chunks = -(-layout.points // max(chunk_size, 1))
            layers = sum(item if kind == _BYTES else _LAYERS.get(kind, 0) for kind, item, _ in items)
            _check_layers(file, layout, layers, chunks, size)


def _laszip_records(file: BinaryIO, layout: LasLayout) -> Iterator[bytes]:
    at = layout.header
    for _ in range(layout.records):
        file.seek(at)
        head = file.read(_VLR.size)
        if len(head) < _VLR.size:
            return
        user, number, length, _ = _VLR.unpack(head)
        if number == 22204 and user.split(b"\0")[0] == b"laszip encoded":
            yield file.read(length)
        at += _VLR.size + length


def _count_chunks(file: BinaryIO, start: int, size: int) -> int:
    """Return the number of chunks in the chunk table. The library does not check where the table is."""
    table = _number(file, start, 8)
    if table == -1:  # a streaming writer stores the offset of the table at the end
        table = _number(file, max(size - 8, 0), 8)
    if not start + 8 <= table <= size - 8:
        raise ValueError("the file is truncated or damaged: the chunk table is outside of the file")
    return _number(file, table + 4, 4)


def _check_layers(file: BinaryIO, layout: LasLayout, layers: int, chunks: int, size: int) -> None:
    """Raise a ValueError if a layer ends outside of the file: the library allocates before it reads.

    Every chunk starts with a point, the number of points and the sizes of its layers.
    """
    at = layout.start + 8
    for _ in range(chunks):
        file.seek(at + layout.row)
        head = file.read(4 + 4 * layers)
        if len(head) < 4 + 4 * layers:
            raise ValueError("the file is truncated in the middle of a chunk")
        at += layout.row + len(head) + sum(struct.unpack_from(f"<{layers}I", head, 4))
        if at > size:
            raise ValueError("the file is truncated or damaged: a chunk is longer than the file")


def _number(file: BinaryIO, at: int, width: int) -> int:
    """Read an integer of `width` bytes; of eight, −1 has a meaning, so these are signed."""
    file.seek(at)
    return int.from_bytes(file.read(width), "little", signed=width == 8)
