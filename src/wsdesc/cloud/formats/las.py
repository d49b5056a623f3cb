"""LAS and LAZ, by laspy. Coordinates are integers times a scale plus an offset, returned in float64."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from wsdesc.cloud.formats import FileContent
from wsdesc.cloud.formats.columns import to_columns
from wsdesc.cloud.formats.las_header import CRS_USER, CRS_WKT, check_header, read_crs
from wsdesc.cloud.formats.limits import check_columns
from wsdesc.cloud.storage import ExtraDimension, LasStorage, Storage
from wsdesc.core.errors import InputError

_CHUNK, _BUFFER = 1_000_000, 2**26  # largest numbers of points and of bytes that are read at a time
_COARSEST = 1e-4  # coarsest scale in the unit of the points, unless the extent needs more than 32 bits
_COARSEST_SHARE = 1e-2  # coarsest scale that is kept from another file, as a share of the extent
_LARGEST = 2**31 - 4  # largest stored integer, with room for rounding
_FINEST = 1e-7  # finest scale as a share of the extent: about the precision of float32
_KEPT_ENCODING = 0b1001  # bits of the kind of GPS time, and of synthetic return numbers
_FIRST_WITH_WKT = 6  # point format
_POINT_FORMATS = (0, 1, 2, 3, 6, 7, 8)  # without wave packets


def read(path: Path, faces: bool) -> FileContent:
    points: list[np.ndarray] = []
    attributes: dict[str, list[np.ndarray]] = {}
    storage: LasStorage | None = None
    for file, names, chunk in _chunks(path):
        storage = storage or _storage(file.header)
        points.append(_positions(chunk))  # (≤ chunk size, 3)
        for name in names:
            with np.errstate(all="ignore"):
                attributes.setdefault(name, []).append(np.array(chunk[name]))
    if not points:
        return FileContent(np.empty((0, 3)), {})
    return FileContent(
        np.concatenate(points),
        {name: np.concatenate(parts) for name, parts in attributes.items()},
        storage=Storage(las=storage, crs=read_crs(path)),
    )


def read_chunks(path: Path) -> Iterator[np.ndarray]:
    """Yield the points (N, 3) float64 of a file part by part, without their attributes."""
    for _, _, chunk in _chunks(path):
        yield _positions(chunk)


def read_cloud_chunks(path: Path) -> Iterator[FileContent]:
    """Yield the points of a file with their attributes, part by part."""
    for _, names, chunk in _chunks(path):
        with np.errstate(all="ignore"):
            attributes = {name: np.array(chunk[name]) for name in names}
        yield FileContent(_positions(chunk), attributes)


def _positions(chunk: Any) -> np.ndarray:
    with np.errstate(all="ignore"):  # scales of damaged files overflow
        return np.stack([chunk.x, chunk.y, chunk.z], axis=1)


def _chunks(path: Path) -> Iterator[tuple[Any, list[str], Any]]:
    """Yield the open file, the names of the attributes, and some points, until the file ends.

    Raises:
        ValueError: The file is damaged or cut off.
    """
    import laspy

    layout = check_header(path)
    # One thread: with several, the library allocates the chunk size of the header, and aborts if that fails.
    backend = laspy.LazBackend.Lazrs
    chunk_size = max(1, min(_CHUNK, _BUFFER // max(layout.row, 1)))
    count = 0
    with laspy.open(path, laz_backend=backend, read_evlrs=False) as file:
        if (file.header.point_count, file.header.point_format.size) != (layout.points, layout.row):
            raise ValueError("the header is damaged: point count or record length are inconsistent")
        # Extra dimensions may have the name of a standard one.
        dimensions = dict.fromkeys(file.header.point_format.dimension_names)
        names = [name for name in dimensions if name not in ("X", "Y", "Z")]
        check_columns(len(names))
        for chunk in file.chunk_iterator(chunk_size):
            yield file, names, chunk
            count += len(chunk)
    if count < layout.points:
        raise ValueError(
            f"the file is truncated: the header announces {layout.points} points, {count} follow"
        )


def _storage(header: Any) -> LasStorage:
    """Return the properties of a file that `write` keeps."""
    extra = (
        ExtraDimension(d.name, d.type_str(), d.description, _floats(d.offsets), _floats(d.scales))
        for d in header.point_format.extra_dimensions
    )
    scale = float(np.min(np.abs(header.scales)))
    return LasStorage(
        header.point_format.id, str(header.version), scale, header.global_encoding.value, tuple(extra)
    )


def _floats(values: Any) -> tuple[float, ...] | None:
    return None if values is None else tuple(map(float, values))


def write(
    path: Path, points: np.ndarray, attributes: Mapping[str, np.ndarray], storage: Storage | None = None
) -> None:
    """Write a file, as another one was stored: point format, scale, extra dimensions, coordinate system."""
    import laspy

    storage = storage or Storage()
    columns = to_columns(points.astype(np.float64), attributes)
    xyz = [columns.pop(axis) for axis in "xyz"]
    header = laspy.LasHeader(point_format=_point_format(columns, storage))
    header.offsets, header.scales = _offset_and_scale(points, storage.las.scale if storage.las else 0.0)
    _add_crs(header, storage)
    standard = set(header.point_format.dimension_names)
    extra = {dimension.name: dimension for dimension in (storage.las.extra if storage.las else ())}
    header.add_extra_dims(
        [_extra_dimension(n, c, extra.get(n)) for n, c in columns.items() if n not in standard]
    )
    las = laspy.LasData(header)
    las.x, las.y, las.z = xyz
    for name, column in columns.items():
        if column.dtype.kind == "f" and _fits(header.point_format.id, name, column):
            column = column.astype(las[name].dtype)  # whole numbers, as from a text
        try:
            las[name] = column
            fits = name not in standard or np.array_equal(las[name], column)
        except OverflowError:
            fits = False
        if not fits:
            kind = header.point_format.dimension_by_name(name)
            raise InputError(
                f"attribute {name!r}: the values do not fit into {kind.num_bits} bits, as in LAS"
            )
    las.write(str(path))


def unfit_columns(columns: Mapping[str, np.ndarray], storage: Storage) -> list[str]:
    """Return the names of columns whose values no point format stores without loss."""
    point_format = _point_format(columns, storage)
    return [name for name, column in columns.items() if _fits(point_format, name, column) is False]


def _point_format(columns: Mapping[str, np.ndarray], storage: Storage) -> int:
    """Choose the format that stores most columns as its own; that of the source if it is as good."""
    preferred = [storage.las.point_format] if storage.las else []
    choices = [*(n for n in preferred if n in _POINT_FORMATS), *_POINT_FORMATS]
    return max(choices, key=lambda n: sum(_fits(n, name, column) is True for name, column in columns.items()))


def _fits(point_format: int, name: str, column: np.ndarray) -> bool | None:
    """Return whether a standard dimension stores the column without loss; None if it is not standard."""
    import laspy

    kind = laspy.PointFormat(point_format)
    if name not in kind.dimension_names:
        return None
    dimension = kind.dimension_by_name(name)
    if dimension.kind is laspy.point.dims.DimensionKind.FloatingPoint:
        return column.dtype.itemsize <= dimension.num_bits // 8 or column.dtype.kind in "iu"
    signed = dimension.kind is laspy.point.dims.DimensionKind.SignedInteger
    bits = dimension.num_bits - signed
    with np.errstate(invalid="ignore"):
        whole = column.dtype.kind in "iu" or bool((column % 1 == 0).all())
    low = -(2**bits) if signed else 0
    return whole and bool(column.min() >= low) and bool(column.max() < 2**bits)


def _extra_dimension(name: str, column: np.ndarray, old: ExtraDimension | None) -> Any:
    import laspy

    # A vector was split into columns of another name, so that only single values are found.
    if old is None or old.type[0].isdecimal():
        return laspy.ExtraBytesParams(name, column.dtype)
    kind = old.type if old.scales is not None or np.dtype(old.type) == column.dtype else column.dtype
    return laspy.ExtraBytesParams(name, kind, old.description, old.offsets, old.scales)


def _add_crs(header: Any, storage: Storage) -> None:
    """Write the records of the coordinate system, and what is kept of the source's global encoding."""
    import laspy

    if storage.las:
        header.global_encoding.value = storage.las.global_encoding & _KEPT_ENCODING
    for record in storage.crs:
        header.vlrs.append(laspy.VLR(CRS_USER, record.number, record.description, record.data))
    if any(record.number == CRS_WKT for record in storage.crs) and header.point_format.id >= _FIRST_WITH_WKT:
        header.global_encoding.wkt = True


def _offset_and_scale(points: np.ndarray, scale: float) -> tuple[np.ndarray, np.ndarray]:
    """Choose the centre as offset, and a scale for which 32 bits suffice.

    The given scale is kept if 32 bits suffice and it is fine enough; else it is the finest useful power of
    ten. The offset is a whole number if possible, else a multiple of the scale, so that coordinates on a
    decimal grid stay on it.
    """
    low, high = points.min(axis=0).astype(np.float64), points.max(axis=0).astype(np.float64)
    half = float((high - low).max() / 2)
    wanted = min(_COARSEST, max(half, 1e-9) * _FINEST)
    finest = half / _LARGEST
    if not max(finest, 1e-12) <= scale <= max(half, 1e-9) * _COARSEST_SHARE:
        exponent = np.floor(np.log10(wanted))
        if 10.0**exponent < finest:
            exponent = np.ceil(np.log10(finest))
        scale = 10.0**exponent
    step = 1.0 if np.isclose(1 / scale % 1, 0) and half + 1 < scale * _LARGEST else scale
    return np.round((low + high) / 2 / step) * step, np.full(3, scale)
