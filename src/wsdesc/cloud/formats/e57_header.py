"""Check of the XML of an E57 file before libE57 parses it.

libE57 takes time quadratic in the number of children of a structure, and stack with every level.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import BinaryIO
from xml.parsers import expat

_HEADER = struct.Struct("<8s8xQQQQ")  # signature, file length, XML offset and length, page
_CHECKSUM = 4  # bytes at the end of every page
_PAGE = 1024
_MAX_DEPTH = 30  # levels; scans need ten
_MAX_CHILDREN = 1000  # children of a structure; vectors, such as the list of scans, have no limit


def check_header(path: Path) -> None:
    """Raise a ValueError if the XML is incomplete, or has a form that no scanner writes."""
    size = path.stat().st_size
    with path.open("rb") as file:
        head = file.read(_HEADER.size)
        if len(head) < _HEADER.size or not head.startswith(b"ASTM-E57"):
            raise ValueError("the file does not start with an E57 header")
        _, _, start, length, page = _HEADER.unpack(head)
        if page != _PAGE:
            raise ValueError(f"the page size is {page} bytes, only {_PAGE} is supported")
        if start + length > size:
            raise ValueError(f"the file is truncated: the XML ends at byte {start + length} of {size}")
        _check_xml(_content(file, start, length))


def _content(file: BinaryIO, start: int, length: int) -> bytes:
    """Read `length` bytes from the offset `start`, without the checksums of the pages."""
    first_page = start // _PAGE
    file.seek(first_page * _PAGE)
    raw = file.read(length + (length // (_PAGE - _CHECKSUM) + 2) * _CHECKSUM + _PAGE)
    pages = (raw[at : at + _PAGE][:-_CHECKSUM] for at in range(0, len(raw), _PAGE))
    begin = start - first_page * _PAGE
    return b"".join(pages)[begin : begin + length]


def _check_xml(content: bytes) -> None:
    children: list[int] = []  # so far, of each open element; negative for vectors, which may have any number

    def begin(name: str, attributes: dict[str, str]) -> None:
        if children:
            children[-1] += 1
        if len(children) >= _MAX_DEPTH or (children and children[-1] > _MAX_CHILDREN):
            raise ValueError(
                f"the XML has more than {_MAX_DEPTH} levels, or more than {_MAX_CHILDREN} children in one"
            )
        children.append(-len(content) if attributes.get("type") == "Vector" else 0)

    def reject_entity(*_: object) -> None:
        raise ValueError("the XML defines entities, which are not supported")

    parser = expat.ParserCreate()
    parser.StartElementHandler = begin
    parser.EndElementHandler = lambda name: children.pop()
    parser.EntityDeclHandler = reject_entity
    try:
        parser.Parse(content, True)
    except expat.ExpatError as error:
        raise ValueError(f"the XML is damaged: {error}") from error
