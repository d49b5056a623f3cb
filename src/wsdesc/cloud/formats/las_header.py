"""What a LAS or LAZ file says about its own size, compared with its size before a library believes it.

The libraries allocate or loop for counts in the file; the one that unpacks LAZ ends the process where the
memory is not there.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from wsdesc.cloud.formats.limits import check_unpacked

_VLR = struct.Struct("<2x16sHH32x")  # of a record beside the points: who wrote it, its number, its length
_POINT, _RGB, _RGB_NIR, _WAVES, _BYTES = 10, 11, 12, 13, 14  # items of layered compression
_LAYERS = {_POINT: 9, _RGB: 1, _RGB_NIR: 2, _WAVES: 1}  # compressed parts of each; a byte has one itself
_LAYERED = 3  # the version of items from which on they are in layers: point formats 6 and later
_VARIABLE = 2**32 - 1  # in place of the points of a chunk: the table says how many each has
_LONGEST_PACKED_ROW = 8192  # bytes of a compressed point; unpacking keeps some kB for each of them


@dataclass(frozen=True)
class Layout:
    """The parts of the header that say where points are, and how many."""

    start: int  # of the points
    header: int  # bytes of it
    records: int  # beside the points
    row: int  # bytes of a point
    points: int
    compressed: bool


def check_header(path: Path) -> Layout:
    """The layout of the file, once all that it promises can be in it."""
    size = path.stat().st_size
    with path.open("rb") as file:
        layout = _layout(file.read(375))
        needed = max(layout.start, layout.header + layout.records * _VLR.size)
        rows = 0 if layout.compressed else layout.points * layout.row
        if needed + rows > size:  # a compressed point may take less than a byte
            raise ValueError(
                f"it is cut off: {layout.points} points are promised, which {size} bytes cannot hold"
            )
        if layout.compressed:
            check_unpacked(layout.points * (24 + layout.row), size)
            _check_compression(file, layout, size)
    return layout


def _layout(head: bytes) -> Layout:
    if not head.startswith(b"LASF") or len(head) < 227:
        raise ValueError("it does not begin with a LAS header")
    header, start, records, kind, row, points = struct.unpack_from("<HIIBHI", head, 94)
    if tuple(head[24:26]) >= (1, 4) and len(head) >= 375:
        (points,) = struct.unpack_from("<Q", head, 247)
    return Layout(start, header, records, row, points, bool(kind & 0x80))


def _check_compression(file: BinaryIO, layout: Layout, size: int) -> None:
    for record in _records_of_laszip(file, layout):
        if len(record) < 34:
            raise ValueError("it is damaged: what it says about its compression is too short")
        (at_once,) = struct.unpack_from("<I", record, 12)
        items = list(struct.iter_unpack("<HHH", record[34 : 34 + (len(record) - 34) // 6 * 6]))
        items = items[: int.from_bytes(record[32:34], "little")]  # kind, size and version of each
        if sum(item for _, item, _ in items) != layout.row or layout.row > _LONGEST_PACKED_ROW:
            raise ValueError(f"it is damaged: its points have {layout.row} bytes, unpacked they have others")
        chunks = _chunks(file, layout.start, size)
        if chunks > size:
            raise ValueError("it is damaged: its table of chunks is longer than the file")
        # The library goes by the items, whatever the record calls its compressor.
        if any(version >= _LAYERED for *_, version in items):
            if at_once != _VARIABLE:
                chunks = -(-layout.points // max(at_once, 1))
            layers = sum(item if kind == _BYTES else _LAYERS.get(kind, 0) for kind, item, _ in items)
            _check_layers(file, layout, layers, chunks, size)


def _records_of_laszip(file: BinaryIO, layout: Layout) -> Iterator[bytes]:
    at = layout.header
    for _ in range(layout.records):
        file.seek(at)
        head = file.read(_VLR.size)
        if len(head) < _VLR.size:
            return
        user, number, length = _VLR.unpack(head)
        if number == 22204 and user.split(b"\0")[0] == b"laszip encoded":
            yield file.read(length)
        at += _VLR.size + length


def _chunks(file: BinaryIO, start: int, size: int) -> int:
    """How many chunks a compressed file claims. The library looks for their table wherever it is told to."""
    table = _number(file, start, 8)
    if table == -1:  # the writer could not go back, and left the place of the table at the end
        table = _number(file, max(size - 8, 0), 8)
    if not start + 8 <= table <= size - 8:
        raise ValueError("it is cut off or damaged: its table of chunks is not in it")
    return _number(file, table + 4, 4)


def _check_layers(file: BinaryIO, layout: Layout, layers: int, chunks: int, size: int) -> None:
    """Every chunk begins with a point, the number of points and the sizes of its layers, which must be there.

    The library reserves memory for a layer before it reads it.
    """
    at = layout.start + 8
    for _ in range(chunks):
        file.seek(at + layout.row)
        head = file.read(4 + 4 * layers)
        if len(head) < 4 + 4 * layers:
            raise ValueError("it is cut off in the middle of a chunk")
        at += layout.row + len(head) + sum(struct.unpack_from(f"<{layers}I", head, 4))
        if at > size:
            raise ValueError("it is cut off or damaged: a chunk is longer than the file")


def _number(file: BinaryIO, at: int, width: int) -> int:
    file.seek(at)
    return int.from_bytes(file.read(width), "little", signed=width == 8)
