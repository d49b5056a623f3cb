"""E57 by way of pye57: the scans of a file, each brought into the file's frame by its pose, as one cloud."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from wsdesc.cloud.formats import Reading
from wsdesc.cloud.formats.columns import to_columns
from wsdesc.cloud.formats.e57_header import check_header
from wsdesc.cloud.formats.limits import check_unpacked
from wsdesc.core.errors import InputError, MissingExtraError

_CARTESIAN = ("cartesianX", "cartesianY", "cartesianZ")
_SPHERICAL = ("sphericalRange", "sphericalAzimuth", "sphericalElevation")
_INVALID = ("cartesianInvalidState", "sphericalInvalidState")
# attributes that are read and written, with their name in a file of columns
_ATTRIBUTES = {"intensity": "intensity", "colorRed": "red", "colorGreen": "green", "colorBlue": "blue"}


def _pye57() -> Any:
    try:
        import pye57
    except ImportError as error:
        raise MissingExtraError("E57", "e57") from error
    return pye57


def read(path: Path, faces: bool) -> Reading:
    """All scans; attributes are those that every scan has. Points marked invalid are not points."""
    pye57 = _pye57()
    check_header(path)
    try:
        with pye57.E57(str(path)) as file:
            headers = [file.get_header(i) for i in range(file.scan_count)]
            numbers = len(_CARTESIAN) + len(_ATTRIBUTES) + len(_INVALID) + 3
            check_unpacked(8 * numbers * sum(header.point_count for header in headers), path.stat().st_size)
            readings = [_read_scan(file, i, header) for i, header in enumerate(headers)]
    except pye57.libe57.E57Exception as error:
        raise ValueError(str(error).strip().split("\n")[0]) from error  # the rest is for programmers
    if not readings:
        return Reading(np.empty((0, 3)), {})
    common = [name for name in _ATTRIBUTES if all(name in r.attributes for r in readings)]
    return Reading(
        np.concatenate([r.points for r in readings]),
        {name: _narrow(name, np.concatenate([r.attributes[name] for r in readings])) for name in common},
    )


def _read_scan(file: Any, index: int, header: Any) -> Reading:
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
    return Reading(points, columns)


def _read_columns(file: Any, header: Any, names: list[str], count: int) -> dict[str, np.ndarray]:
    """All as float64: pye57's own choice of types has no room for 16-bit colours."""
    libe57 = _pye57().libe57
    columns = {name: np.empty(count) for name in names}
    buffers = libe57.VectorSourceDestBuffer()
    for name, column in columns.items():
        buffers.append(libe57.SourceDestBuffer(file.image_file, name, column, count, True, True))
    if count:
        got = header.points.reader(buffers).read()
        if got < count:
            raise ValueError(f"it is cut off: {count} points are promised, {got} follow")
    return columns


def _pose(header: Any) -> tuple[np.ndarray, np.ndarray]:
    """Rotation and translation by the names of their parts; pye57 trusts their order in the file."""
    R, t = np.eye(3), np.zeros(3)
    pose = header["pose"] if header.has_pose() else None
    if pose is not None and pose.isDefined("rotation"):
        q = np.array([pose["rotation"][name].value() for name in "wxyz"])
        if not 0 < np.linalg.norm(q) < np.inf:
            raise ValueError("the rotation of a scan is none")
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


def write(path: Path, points: np.ndarray, attributes: Mapping[str, np.ndarray]) -> None:
    """One scan. pye57 stores float32, so the points are stored about their middle, which is the pose."""
    columns = to_columns(points.astype(np.float64), attributes)
    translation = (points.min(axis=0).astype(np.float64) + points.max(axis=0)) / 2
    # Rounded here already: the bounds that pye57 derives from them must hold for what is stored.
    local = (points - translation).astype(np.float32).astype(np.float64)
    data = dict(zip(_CARTESIAN, local.T.copy(), strict=True))
    for name, plain in _ATTRIBUTES.items():
        if plain in columns or name in columns:
            data[name] = columns.pop(plain) if plain in columns else columns.pop(name)
    left_over = columns.keys() - set("xyz")
    if left_over:
        raise InputError(
            f"E57 is written with intensity and colours only, not {', '.join(sorted(left_over))}"
        )
    if any(data[c].dtype != np.uint8 for c in data if c.startswith("color")):
        raise InputError("the colours of an E57 file must be uint8")
    with _pye57().E57(str(path), mode="w") as file:
        file.write_scan_raw(data, rotation=np.array([1.0, 0, 0, 0]), translation=translation)
