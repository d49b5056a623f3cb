"""LAS and LAZ by way of laspy: coordinates are integers times a scale plus an offset, given in float64."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from wsdesc.cloud.formats import Reading
from wsdesc.cloud.formats.columns import to_columns
from wsdesc.cloud.formats.las_header import check_header
from wsdesc.cloud.formats.limits import check_columns
from wsdesc.core.errors import InputError

_CHUNK = 1_000_000  # points read at a time,
_BUFFER = 2**26  # or as many as fit into these bytes
_COARSEST = 1e-4  # scale, in the unit of the points, unless they span more than 32 bits of it
_FINEST = 1e-7  # scale as a part of the extent, about what float32 would keep
_POINT_FORMATS = (0, 1, 2, 3, 6, 7, 8)  # those without wave packets


def read(path: Path, faces: bool) -> Reading:
    import laspy

    layout = check_header(path)
    points: list[np.ndarray] = []
    attributes: dict[str, list[np.ndarray]] = {}
    # One thread: with several, the library reserves memory for what the header calls a chunk, and where that
    # fails it ends the whole process.
    backend = laspy.LazBackend.Lazrs
    at_once = max(1, min(_CHUNK, _BUFFER // max(layout.row, 1)))
    with laspy.open(path, laz_backend=backend, read_evlrs=False) as file, np.errstate(all="ignore"):
        if (file.header.point_count, file.header.point_format.size) != (layout.points, layout.row):
            raise ValueError("it is damaged: its header cannot be told")
        every = dict.fromkeys(file.header.point_format.dimension_names)  # one of its own may be named alike
        names = [name for name in every if name not in ("X", "Y", "Z")]
        check_columns(len(names))
        for chunk in file.chunk_iterator(at_once):
            points.append(np.stack([chunk.x, chunk.y, chunk.z], axis=1))  # (≤ at_once, 3)
            for name in names:
                attributes.setdefault(name, []).append(np.array(chunk[name]))
    count = sum(map(len, points))
    if count < layout.points:
        raise ValueError(f"it is cut off: {layout.points} points are promised, {count} follow")
    if count == 0:
        return Reading(np.empty((0, 3)), {})
    return Reading(
        np.concatenate(points), {name: np.concatenate(parts) for name, parts in attributes.items()}
    )


def write(path: Path, points: np.ndarray, attributes: Mapping[str, np.ndarray]) -> None:
    import laspy

    columns = to_columns(points.astype(np.float64), attributes)
    xyz = [columns.pop(axis) for axis in "xyz"]

    def in_common(point_format: int) -> int:
        return len(columns.keys() & set(laspy.PointFormat(point_format).dimension_names))

    header = laspy.LasHeader(point_format=max(_POINT_FORMATS, key=in_common))
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
            raise InputError(f"attribute {name!r}: its values do not fit the {kind.num_bits} bits of LAS")
    las.write(str(path))


def _offset_and_scale(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The middle, and a power of ten as fine as useful, of which 32 bits suffice.

    The offset is a multiple of the scale, so that coordinates on a decimal grid stay on it.
    """
    low, high = points.min(axis=0).astype(np.float64), points.max(axis=0).astype(np.float64)
    reach = float((high - low).max() / 2)
    wanted = min(_COARSEST, max(reach, 1e-9) * _FINEST)
    possible = reach / (2**31 - 4)
    exponent = np.floor(np.log10(wanted))
    if 10.0**exponent < possible:
        exponent = np.ceil(np.log10(possible))
    scale = 10.0**exponent
    return np.round((low + high) / 2 / scale) * scale, np.full(3, scale)
