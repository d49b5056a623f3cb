"""Read a large cloud part by part. LAS and LAZ files are never completely in memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from wsdesc.cloud.cloud import Cloud
from wsdesc.cloud.convert import as_cloud
from wsdesc.cloud.files import read_errors
from wsdesc.cloud.formats import FileContent, las
from wsdesc.core.errors import FileFormatError

_STREAMED = (".las", ".laz")


def read_chunks(path: Path) -> Iterator[np.ndarray]:
    """Yield the finite points (N, 3) float64 of a file: of LAS and LAZ part by part, of others all at once.

    Raises:
        FileFormatError: The file cannot be read, or none of its points is finite.
    """
    if path.suffix.lower() not in _STREAMED:
        yield as_cloud(path).points
        return
    contents = (FileContent(points, {}) for points in las.read_chunks(path))
    for content in _finite_parts(path, contents):
        yield content.points


def read_cloud_chunks(path: Path) -> Iterator[Cloud]:
    """Yield the finite points of a file with their attributes; otherwise as `read_chunks`."""
    if path.suffix.lower() not in _STREAMED:
        yield as_cloud(path)
        return
    for content in _finite_parts(path, las.read_cloud_chunks(path)):
        yield Cloud(content.points, content.attributes)


def _finite_parts(path: Path, contents: Iterator[FileContent]) -> Iterator[FileContent]:
    count = 0
    with read_errors(path):
        if not path.is_file():
            raise FileFormatError(f"{path}: there is no such file; check the path")
        for content in contents:
            finite = content.finite()
            count += len(finite.points)
            if len(finite.points):
                yield finite
    if count == 0:
        raise FileFormatError(f"{path}: has no finite points; export the scan again")
