"""The XML of an E57 file, looked at before libE57 builds a tree of it.

That takes time with the square of how many children a structure has, and stack with every level.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import BinaryIO
from xml.parsers import expat

_HEADER = struct.Struct("<8s8xQQQQ")  # signature, length of the file, place and length of the XML, page
_CHECKSUM = 4  # bytes at the end of every page that are no content
_PAGE = 1024
_DEEPEST = 30  # levels; scans need ten
_WIDEST = 1000  # children of a structure; those of a vector, which holds the scans, are not looked up by name


def check_header(path: Path) -> None:
    """Refuse a file whose XML is not in it, or has a form that no scanner writes."""
    size = path.stat().st_size
    with path.open("rb") as file:
        head = file.read(_HEADER.size)
        if len(head) < _HEADER.size or not head.startswith(b"ASTM-E57"):
            raise ValueError("it does not begin with an E57 header")
        _, _, start, length, page = _HEADER.unpack(head)
        if page != _PAGE or start + length > size:
            raise ValueError(f"it is cut off: its XML should end at byte {start + length} of {size}")
        _check_xml(_content(file, start, length))


def _content(file: BinaryIO, start: int, length: int) -> bytes:
    """Bytes from a place in the file, without the checksums of the pages."""
    first = start // _PAGE
    file.seek(first * _PAGE)
    raw = file.read(length + (length // (_PAGE - _CHECKSUM) + 2) * _CHECKSUM + _PAGE)
    pages = (raw[at : at + _PAGE][:-_CHECKSUM] for at in range(0, len(raw), _PAGE))
    begin = start - first * _PAGE
    return b"".join(pages)[begin : begin + length]


def _check_xml(content: bytes) -> None:
    counts: list[int] = []  # children so far of each open element; a vector may have any number

    def begin(name: str, attributes: dict[str, str]) -> None:
        if counts:
            counts[-1] += 1
        if len(counts) >= _DEEPEST or (counts and counts[-1] > _WIDEST):
            raise ValueError("its XML has more levels, or more children in one, than a scan can need")
        counts.append(-len(content) if attributes.get("type") == "Vector" else 0)

    def refuse(*_: object) -> None:
        raise ValueError("its XML defines entities")

    parser = expat.ParserCreate()
    parser.StartElementHandler = begin
    parser.EndElementHandler = lambda name: counts.pop()
    parser.EntityDeclHandler = refuse
    try:
        parser.Parse(content, True)
    except expat.ExpatError as error:
        raise ValueError(f"its XML is damaged: {error}") from error
