"""E57, by pye57. Scans are transformed by their poses; all scans of a file are merged into one cloud."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from wsdesc.cloud.formats import FileContent, no_station
from wsdesc.cloud.formats.columns import to_columns
from wsdesc.cloud.formats.e57_header import check_header
from wsdesc.cloud.formats.limits import check_unpacked
from wsdesc.core.errors import InputError, MissingExtraError

_CARTESIAN = ("cartesianX", "cartesianY", "cartesianZ")
_SPHERICAL = ("sphericalRange", "sphericalAzimuth", "sphericalElevation")
_INVALID = ("cartesianInvalidState", "sphericalInvalidState")
_MAX_DISTANCE = 10  # extents from the centre to the viewpoint: float32 relative to it is still exact enough
# attributes that are read and written -> their names in files of columns
_ATTRIBUTES = {"intensity": "intensity", "colorRed": "red", "colorGreen": "green", "colorBlue": "blue"}


def _pye57() -> Any:
    try:
        import pye57
    except ImportError as error:
        raise MissingExtraError("E57", "e57") from error
    return pye57


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """Open a file after a check of its header; convert errors of libE57 to a ValueError."""
    pye57 = _pye57()
    check_header(path)
    try:
        with pye57.E57(str(path)) as file:
            yield file
    except pye57.libe57.E57Exception as error:
        raise ValueError(str(error).strip().split("\n")[0]) from error  # the other lines are for developers


def read(path: Path, faces: bool, station: int | None = None) -> FileContent:
    """Read all scans, or that with the number `station` from 1, without points that are marked as invalid.

    Only attributes that every scan has are read.
    """
    with _opened(path) as file:
        if station is not None and not 1 <= station <= file.scan_count:
            raise ValueError(no_station(station, file.scan_count))
        numbers = range(file.scan_count) if station is None else [station - 1]
        headers = [file.get_header(i) for i in numbers]
        values = len(_CARTESIAN) + len(_ATTRIBUTES) + len(_INVALID) + 3  # per point
        check_unpacked(8 * values * sum(header.point_count for header in headers), path.stat().st_size)
        scans = [_read_scan(file, i, header) for i, header in zip(numbers, headers, strict=True)]
    if not scans:
        return FileContent(np.empty((0, 3)), {})
    common = [name for name in _ATTRIBUTES if all(name in scan.attributes for scan in scans)]
    return FileContent(
        np.concatenate([scan.points for scan in scans]),
        {name: _narrow(name, np.concatenate([scan.attributes[name] for scan in scans])) for name in common},
        viewpoint=scans[0].viewpoint if len(scans) == 1 else None,
    )


def count_stations(path: Path) -> int:
    """Return the number of scans in a file."""
    with _opened(path) as file:
        return int(file.scan_count)


def station_poses(path: Path) -> list[np.ndarray | None]:
    """Return the pose (4, 4) of each scan in the frame of the file; None where the file states none."""
    poses: list[np.ndarray | None] = []
    with _opened(path) as file:
        for header in map(file.get_header, range(file.scan_count)):
            T = np.eye(4)
            T[:3, :3], T[:3, 3] = _pose(header)
            poses.append(T if header.has_pose() else None)
    return poses


def _read_scan(file: Any, index: int, header: Any) -> FileContent:
    count = header.point_count
    axes = next((axes for axes in (_CARTESIAN, _SPHERICAL) if set(axes) <= set(header.point_fields)), None)
    if axes is None:
        raise ValueError(f"scan {index} has no coordinates (fields: {', '.join(header.point_fields)})")
    wanted = [name for name in (*axes, *_ATTRIBUTES, *_INVALID) if name in header.point_fields]
    columns = _read_columns(file, header, wanted, count)
    valid = np.ones(count, bool)
    for name in _INVALID:
        valid &= columns.pop(name, np.zeros(1)) == 0
    columns = {name: column[valid] for name, column in columns.items()}
    local = np.stack([columns.pop(axis) for axis in axes], axis=1)  # (n, 3)
    R_file_scan, t_file_scan = _pose(header)
    points = (_from_spherical(local) if axes is _SPHERICAL else local) @ R_file_scan.T + t_file_scan
    return FileContent(points, columns, viewpoint=t_file_scan if t_file_scan.any() else None)


def _read_columns(file: Any, header: Any, names: list[str], count: int) -> dict[str, np.ndarray]:
    """Read columns as float64; pye57 itself would choose a type too small for 16-bit colours."""
    libe57 = _pye57().libe57
    columns = {name: np.empty(count) for name in names}
    buffers = libe57.VectorSourceDestBuffer()
    for name, column in columns.items():
        buffers.append(libe57.SourceDestBuffer(file.image_file, name, column, count, True, True))
    if count:
        read = header.points.reader(buffers).read()
        if read < count:
            raise ValueError(f"the file is truncated: the header announces {count} points, {read} follow")
    return columns


def _pose(header: Any) -> tuple[np.ndarray, np.ndarray]:
    """Read rotation and translation by name; pye57 relies on their order in the file."""
    R, t = np.eye(3), np.zeros(3)
    pose = header["pose"] if header.has_pose() else None
    if pose is not None and pose.isDefined("rotation"):
        q = np.array([pose["rotation"][name].value() for name in "wxyz"])
        if not 0 < np.linalg.norm(q) < np.inf:
            raise ValueError("invalid rotation quaternion in the pose of a scan")
        w, x, y, z = q / np.linalg.norm(q)
        cross = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
        R = R + 2 * w * cross + 2 * cross @ cross
    if pose is not None and pose.isDefined("translation"):
        t = np.array([pose["translation"][name].value() for name in "xyz"])
    return R, t


def _from_spherical(values: np.ndarray) -> np.ndarray:
    distance, azimuth, elevation = values.T
    flat = distance * np.cos(elevation)
    return np.stack([flat * np.cos(azimuth), flat * np.sin(azimuth), distance * np.sin(elevation)], axis=1)


def _narrow(name: str, values: np.ndarray) -> np.ndarray:
    if not name.startswith("color") or not len(values):
        return values
    return values.astype(np.uint8 if values.max() < 256 else np.uint16)


class StationWriter:
    """Writes scans with their poses into one file, one scan at a time."""

    def __init__(self, path: Path) -> None:
        self._file = _pye57().E57(str(path), mode="w")

    def __enter__(self) -> StationWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def write(
        self,
        name: str,
        points: np.ndarray,
        attributes: Mapping[str, np.ndarray],
        quaternion: np.ndarray,
        translation: np.ndarray,
    ) -> None:
        """Append a scan; its points (N, 3) are rounded to float32, its pose (w, x, y, z) is exact."""
        local = points.astype(np.float32).astype(np.float64)
        data = dict(zip(_CARTESIAN, local.T.copy(), strict=True))
        data |= {column: attributes[plain] for column, plain in _ATTRIBUTES.items() if plain in attributes}
        self._file.write_scan_raw(data, name=name, rotation=quaternion, translation=translation)


def write(
    path: Path,
    points: np.ndarray,
    attributes: Mapping[str, np.ndarray],
    viewpoint: np.ndarray | None = None,
) -> None:
    """Write one scan. pye57 stores float32, so the points are relative to the viewpoint or their centre."""
    columns = to_columns(points.astype(np.float64), attributes)
    low, high = points.min(axis=0).astype(np.float64), points.max(axis=0).astype(np.float64)
    translation = (low + high) / 2
    if viewpoint is not None and np.abs(viewpoint - translation).max() < _MAX_DISTANCE * (high - low).max():
        translation = viewpoint
    # pye57 derives the bounds from these numbers, so they must be rounded like the stored ones.
    local = (points - translation).astype(np.float32).astype(np.float64)
    data = dict(zip(_CARTESIAN, local.T.copy(), strict=True))
    for name, plain in _ATTRIBUTES.items():
        if plain in columns or name in columns:
            data[name] = columns.pop(plain) if plain in columns else columns.pop(name)
    unsupported = columns.keys() - set("xyz")
    if unsupported:
        raise InputError(
            f"E57 files are written with intensity and colours only: remove {', '.join(sorted(unsupported))}"
        )
    if any(data[c].dtype != np.uint8 for c in data if c.startswith("color")):
        raise InputError("the colours of an E57 file must be uint8: convert them first")
    with _pye57().E57(str(path), mode="w") as file:
        file.write_scan_raw(data, rotation=np.array([1.0, 0, 0, 0]), translation=translation)
