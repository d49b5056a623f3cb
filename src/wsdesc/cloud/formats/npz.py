"""Reading of npz archives with limits on the size of the arrays. Pickles are never loaded."""

from __future__ import annotations

import io
import zipfile
from math import prod
from pathlib import Path

import numpy as np
from numpy.lib import format as npy

from wsdesc.cloud.formats.limits import check_columns, check_unpacked

_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # as NumPy writes; others expand without limit
MAX_HEADER = 20_000  # bytes; NumPy itself accepts half of it
_CHUNK = 2**20  # bytes
_FLOAT64 = 8  # bytes; most numbers become float64


def read_arrays(path: str | Path, kinds: str = "biuf") -> dict[str, np.ndarray]:
    """Read the arrays whose type is one of NumPy's `kinds`, by name.

    Raises:
        ValueError: An array is damaged or implausibly large. Damaged archives raise errors of `zipfile`.
    """
    size = Path(path).stat().st_size
    with zipfile.ZipFile(path) as archive:
        members = [info for info in archive.infolist() if info.filename.endswith(".npy")]
        check_columns(len(members))
        check_unpacked(sum(info.file_size for info in members), size)
        arrays, numbers = {}, 0
        for info in members:
            content = _content(archive, info)
            shape, fortran, dtype, start = read_header(content)
            if dtype.kind not in kinds or dtype.itemsize == 0:
                continue
            if min(shape, default=0) < 0 or start + prod(shape) * dtype.itemsize != len(content):
                raise ValueError(
                    f"the array {info.filename} is truncated or damaged: it is not {shape} {dtype}"
                )
            numbers += prod(shape)
            check_unpacked(numbers * _FLOAT64, size)
            array = np.frombuffer(content, dtype, prod(shape), start)
            array = array.reshape(shape[::-1]).T if fortran else array.reshape(shape)
            arrays[info.filename.removesuffix(".npy")] = array
    return arrays


def _content(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytearray:
    if info.compress_type not in _METHODS:
        raise ValueError(f"the array {info.filename} has an unsupported compression: use numpy.savez")
    with archive.open(info) as member:
        content, at = bytearray(info.file_size), 0
        while part := member.read(_CHUNK):  # limits the memory of the decompression
            if at + len(part) > len(content):
                break
            content[at : at + len(part)] = part
            at += len(part)
        if part or at < len(content):  # zipfile checks the checksum at the end
            raise ValueError(f"the array {info.filename} does not have the length in the directory")
    return content


def read_header(content: bytes | bytearray) -> tuple[tuple[int, ...], bool, np.dtype, int]:
    """Parse the start of an npy file: shape, whether in Fortran order, type, offset of the numbers."""
    file = io.BytesIO(content[:MAX_HEADER])
    version = npy.read_magic(file)
    reader = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape, fortran, dtype = reader(file)
    return shape, fortran, dtype, file.tell()
