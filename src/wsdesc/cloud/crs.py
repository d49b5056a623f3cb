"""Coordinate systems as records of LAS files, from an EPSG code or from well-known text."""

from __future__ import annotations

import re
import struct

from wsdesc.cloud.formats.las_header import CRS_WKT
from wsdesc.cloud.storage import Record
from wsdesc.core.errors import FileFormatError, InputError
from wsdesc.core.file_parts import expand_home

_GEO_KEYS = 34735  # number of the record with GeoTIFF keys
_MODEL, _GEOGRAPHIC, _PROJECTED = 1024, 2048, 3072  # GeoTIFF keys
_MAX_WKT = 65_000  # bytes of a record
_GEOGRAPHIC_CODES = range(4000, 5000)  # EPSG codes of systems in degrees
_FIRST_WORDS = ("PROJC", "GEOG", "GEODC", "COMPD_CS", "COMPOUNDCRS", "BOUNDCRS", "ENGCRS", "LOCAL_CS", "VERT")


def read_crs_option(text: str) -> tuple[Record, ...]:
    """Return the records of a coordinate system.

    Args:
        text: "EPSG:25832", well-known text, or the path of a .wkt or .prj file with such text.

    Raises:
        FileFormatError: The file cannot be read.
        InputError: The text is none of these.
    """
    code = re.fullmatch(r"(?:EPSG:)?(\d{4,5})", text.strip(), re.IGNORECASE)
    if code is not None:
        return (_epsg_record(int(code[1])),)
    if text.lower().endswith((".wkt", ".prj")):
        path = expand_home(text)
        try:
            if path.stat().st_size > _MAX_WKT:
                raise FileFormatError(f"{path}: too large for the text of a coordinate system")
            text = path.read_text(encoding="utf-8")
        except OSError as error:
            raise FileFormatError(f"{path}: cannot be read: {error.strerror or error}") from error
        except ValueError as error:
            raise FileFormatError(f"{path}: not a text file in UTF-8") from error
    text = text.strip()
    if not text.upper().startswith(_FIRST_WORDS) or len(text.encode()) > _MAX_WKT:
        raise InputError(
            f"crs: {text[:40]!r} is not a coordinate system: give EPSG:25832, for example, or a .wkt file"
        )
    return (Record(CRS_WKT, "OGC coordinate system", text.encode() + b"\0"),)


def _epsg_record(code: int) -> Record:
    """Return the GeoTIFF keys of an EPSG code."""
    geographic = code in _GEOGRAPHIC_CODES
    keys = [(_MODEL, 2 if geographic else 1), (_GEOGRAPHIC if geographic else _PROJECTED, code)]
    values = [1, 1, 0, len(keys)]
    for key, value in keys:
        values += [key, 0, 1, value]
    return Record(_GEO_KEYS, f"EPSG:{code}", struct.pack(f"<{len(values)}H", *values))
