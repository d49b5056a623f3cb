"""Arrays of an npz archive, none of them larger than the archive makes believable. Never a pickle."""

from __future__ import annotations

import io
import zipfile
from math import prod
from pathlib import Path

import numpy as np
from numpy.lib import format as npy

from wsdesc.cloud.formats.limits import check_columns, check_unpacked

_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # all that numpy writes; others unpack without bound
LONGEST_HEADER = 20_000  # bytes; numpy itself refuses half of it
_PART = 2**20  # bytes
_NUMBER = 8  # bytes of memory for each, as most of them become float64


def read_arrays(path: str | Path, kinds: str = "biuf") -> dict[str, np.ndarray]:
    """The arrays by name whose type is of one of numpy's `kinds`; a ValueError, mostly, for damaged ones."""
    size = Path(path).stat().st_size
    with zipfile.ZipFile(path) as archive:
        members = [info for info in archive.infolist() if info.filename.endswith(".npy")]
        check_columns(len(members))
        check_unpacked(sum(info.file_size for info in members), size)
        arrays, numbers = {}, 0
        for info in members:
            content = _content(archive, info)
            shape, fortran, dtype, start = header_of(content)
            if dtype.kind not in kinds or dtype.itemsize == 0:
                continue
            if min(shape, default=0) < 0 or start + prod(shape) * dtype.itemsize != len(content):
                raise ValueError(
                    f"it is cut off or damaged: the array {info.filename} is not {shape} {dtype}"
                )
            numbers += prod(shape)
            check_unpacked(numbers * _NUMBER, size)
            array = np.frombuffer(content, dtype, prod(shape), start)
            array = array.reshape(shape[::-1]).T if fortran else array.reshape(shape)
            arrays[info.filename.removesuffix(".npy")] = array
    return arrays


def _content(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytearray:
    if info.compress_type not in _METHODS:
        raise ValueError(f"the array {info.filename} is compressed in a way that numpy does not write")
    with archive.open(info) as member:
        content, at = bytearray(info.file_size), 0
        while part := member.read(_PART):  # with a number, no more than that is unpacked at a time
            if at + len(part) > len(content):
                break
            content[at : at + len(part)] = part
            at += len(part)
        if part or at < len(content):  # reaching the end also compared the checksum
            raise ValueError(f"the array {info.filename} is not as long as it says")
    return content


def header_of(content: bytes | bytearray) -> tuple[tuple[int, ...], bool, np.dtype, int]:
    """Shape, whether columns come first, type, and where the numbers begin, of an npy file's first bytes."""
    file = io.BytesIO(content[:LONGEST_HEADER])
    version = npy.read_magic(file)
    reader = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape, fortran, dtype = reader(file)
    return shape, fortran, dtype, file.tell()
