"""LAS and LAZ, by laspy. Coordinates are integers times a scale plus an offset, returned in float64."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from wsdesc.cloud.formats import FileContent
from wsdesc.cloud.formats.columns import to_columns
from wsdesc.cloud.formats.las_header import check_header
from wsdesc.cloud.formats.limits import check_columns
from wsdesc.core.errors import InputError

_CHUNK = 1_000_000  # points read at a time,
_BUFFER = 2**26  # or as many as fit into so many bytes
_COARSEST = 1e-4  # scale, in the unit of the points, unless the extent needs more than 32 bits
_FINEST = 1e-7  # scale as a share of the extent, about the precision of float32
_POINT_FORMATS = (0, 1, 2, 3, 6, 7, 8)  # without wave packets


def read(path: Path, faces: bool) -> FileContent:
    import laspy

    layout = check_header(path)
    points: list[np.ndarray] = []
    attributes: dict[str, list[np.ndarray]] = {}
    # One thread: with several, the library allocates the chunk size of the header, and aborts if that fails.
    backend = laspy.LazBackend.Lazrs
    chunk_size = max(1, min(_CHUNK, _BUFFER // max(layout.row, 1)))
    with laspy.open(path, laz_backend=backend, read_evlrs=False) as file, np.errstate(all="ignore"):
        if (file.header.point_count, file.header.point_format.size) != (layout.points, layout.row):
            raise ValueError("the header is damaged: point count or record length are inconsistent")
        # Extra dimensions may have the name of a standard one.
        dimensions = dict.fromkeys(file.header.point_format.dimension_names)
        names = [name for name in dimensions if name not in ("X", "Y", "Z")]
        check_columns(len(names))
        for chunk in file.chunk_iterator(chunk_size):
            points.append(np.stack([chunk.x, chunk.y, chunk.z], axis=1))  # (≤ chunk_size, 3)
            for name in names:
                attributes.setdefault(name, []).append(np.array(chunk[name]))
    count = sum(map(len, points))
    if count < layout.points:
        raise ValueError(
            f"the file is truncated: the header announces {layout.points} points, {count} follow"
        )
    if count == 0:
        return FileContent(np.empty((0, 3)), {})
    return FileContent(
        np.concatenate(points), {name: np.concatenate(parts) for name, parts in attributes.items()}
    )


def write(path: Path, points: np.ndarray, attributes: Mapping[str, np.ndarray]) -> None:
    import laspy

    columns = to_columns(points.astype(np.float64), attributes)
    xyz = [columns.pop(axis) for axis in "xyz"]

    def supported(point_format: int) -> int:
        return len(columns.keys() & set(laspy.PointFormat(point_format).dimension_names))

    header = laspy.LasHeader(point_format=max(_POINT_FORMATS, key=supported))
    header.offsets, header.scales = _offset_and_scale(points)
    standard = set(header.point_format.dimension_names)
    header.add_extra_dims(
        [laspy.ExtraBytesParams(name, c.dtype) for name, c in columns.items() if name not in standard]
    )
    las = laspy.LasData(header)
    las.x, las.y, las.z = xyz
    for name, column in columns.items():
        try:
            las[name] = column
            fits = np.array_equal(las[name], column)
        except OverflowError:
            fits = False
        if not fits:
            kind = header.point_format.dimension_by_name(name)
            raise InputError(
                f"attribute {name!r}: the values do not fit into {kind.num_bits} bits, as in LAS"
            )
    las.write(str(path))


def _offset_and_scale(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Choose the centre as offset, and the finest useful power of ten as scale for which 32 bits suffice.

    The offset is a multiple of the scale, so that coordinates on a decimal grid stay on it.
    """
    low, high = points.min(axis=0).astype(np.float64), points.max(axis=0).astype(np.float64)
    half = float((high - low).max() / 2)
    wanted = min(_COARSEST, max(half, 1e-9) * _FINEST)
    finest = half / (2**31 - 4)
    exponent = np.floor(np.log10(wanted))
    if 10.0**exponent < finest:
        exponent = np.ceil(np.log10(finest))
    scale = 10.0**exponent
    return np.round((low + high) / 2 / scale) * scale, np.full(3, scale)
