"""Structure of a VTK file in XML: pieces and their arrays. Entities are rejected."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from xml.parsers import expat

_MAX_DEPTH = 20  # levels; a file has six
_SECTIONS = ("Points", "PointData", "Polys", "Strips")
_APPENDED = re.compile(rb"<AppendedData[^>]{0,200}>\s*_")


@dataclass
class DataArray:
    """An array of the file: its attributes in the XML, and its text."""

    section: str  # that contains it, such as Points
    attributes: dict[str, str]
    parts: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.attributes.get("Name", "")

    @property
    def is_numeric(self) -> bool:
        return self.attributes.get("type") != "String" and bool(self.name)


@dataclass
class Piece:
    """Part of the points with their arrays."""

    points: int
    normals: str = ""  # name of the array of normals
    arrays: list[DataArray] = field(default_factory=list)


@dataclass
class Document:
    """Content of a file."""

    kind: str = ""  # type of the dataset
    big_endian: bool = False
    header_type: str = "UInt32"
    compressor: str = ""
    pieces: list[Piece] = field(default_factory=list)
    appended: bytes = b""  # after the _
    appended_base64: bool = False


def parse_xml(content: bytes) -> Document:
    """Parse the XML; appended data, which may be raw bytes, are cut out before."""
    document = Document()
    appended = _APPENDED.search(content)
    if appended:
        document.appended = content[appended.end() :]
        document.appended_base64 = b"base64" in appended.group()
        content = content[: appended.start()] + b"</VTKFile>"
    _Handler(document).parse(content)
    return document


class _Handler:
    """Handler of the events of the parser."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.open: list[str] = []
        self.section = ""
        self.array: DataArray | None = None

    def parse(self, content: bytes) -> None:
        parser = expat.ParserCreate()
        parser.buffer_text = True
        parser.StartElementHandler = self._begin
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._text
        parser.EntityDeclHandler = self._reject_entity
        try:
            parser.Parse(content, True)
        except expat.ExpatError as error:
            raise ValueError(f"the XML is damaged: {error}") from error

    def _begin(self, name: str, attributes: dict[str, str]) -> None:
        self.open.append(name)
        if len(self.open) > _MAX_DEPTH:
            raise ValueError(f"the XML has more than {_MAX_DEPTH} levels")
        document = self.document
        if name == "VTKFile":
            document.kind = attributes.get("type", "")
            document.big_endian = attributes.get("byte_order") == "BigEndian"
            document.header_type = attributes.get("header_type", "UInt32")
            document.compressor = attributes.get("compressor", "")
        elif name == "Piece":
            document.pieces.append(Piece(_count(attributes.get("NumberOfPoints", ""))))
        elif name in _SECTIONS and document.pieces:
            self.section = name
            if name == "PointData":
                document.pieces[-1].normals = attributes.get("Normals", "")
        elif name == "DataArray" and self.section and document.pieces:
            self.array = DataArray(self.section, attributes)
            document.pieces[-1].arrays.append(self.array)

    def _end(self, name: str) -> None:
        self.open.pop()
        if name == "DataArray":
            self.array = None
        elif name == self.section:
            self.section = ""

    def _text(self, text: str) -> None:
        if self.array is not None and self.open[-1] == "DataArray":
            self.array.parts.append(text)

    def _reject_entity(self, *_: object) -> None:
        raise ValueError("the XML defines entities, which are not supported")


def _count(text: str) -> int:
    if not text.strip().isdecimal() or len(text) > 18:
        raise ValueError(f"{text[:40]!r} is not a number of points")
    return int(text)
