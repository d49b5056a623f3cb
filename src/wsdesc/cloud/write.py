"""Writing of a cloud as it was read: types of coordinates and attributes, properties of LAS files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from wsdesc.cloud.cloud import Cloud
from wsdesc.cloud.convert import Scan, as_cloud
from wsdesc.cloud.files import write_points
from wsdesc.cloud.formats import WITHOUT_ATTRIBUTES
from wsdesc.cloud.formats.attributes import las_attributes, narrow_colors, pcd_attributes
from wsdesc.cloud.formats.columns import plain_name
from wsdesc.cloud.storage import Storage
from wsdesc.core.file_parts import as_path

_FLOATS = (".ply", ".pcd", ".npy", ".npz")  # formats that store float32 and float64
_LAS = (".las", ".laz")
_MAX_LAS_NAME = 26  # characters; a number may follow, and 32 are possible
_TOLERANCE = 1e-5  # rounding of float32, as a share of the extent
_STORED = {".e57": {"intensity", "red", "green", "blue"}, ".bin": {"intensity", "ring"}}  # others: any


def write_cloud(path: str | os.PathLike[str], cloud: Scan, *, frame_of: Cloud | None = None) -> list[str]:
    """Write a cloud with its attributes, as its file stored it.

    Coordinates that were float32 stay float32, unless that is too coarse. PCD files have float32 wherever
    possible, because the Point Cloud Library reads no others. In LAS and LAZ the point format, the scale,
    extra dimensions and the coordinate system are kept. In another format than that of its file, colours
    and normals get the names and types of the format.

    Args:
        path: The file.
        cloud: The cloud, or a scan in another form that `as_cloud` takes.
        frame_of: Cloud in whose coordinate system the points are, if they were moved into another one.

    Returns:
        Plain sentences about what the format cannot store.

    Raises:
        InputError: The points are invalid.
        FileFormatError: The file cannot be written.
    """
    path, cloud = as_path(path, "path"), as_cloud(cloud)
    extension, storage = path.suffix.lower(), cloud.storage or Storage()
    attributes, notes = _attributes(path, cloud, storage)
    points, note = _coordinates(path, cloud.points, storage)
    notes += note
    other = frame_of.storage if frame_of is not None else None
    if extension in _LAS and frame_of is not None and storage.crs and not (other and other.crs):
        notes.append(f"{path}: the coordinate system is that of the moved scan; the other one names none.")
    write_points(path, points, attributes, storage=storage.with_crs_of(other), viewpoint=cloud.viewpoint)
    return notes


def _coordinates(path: Path, points: np.ndarray, storage: Storage) -> tuple[np.ndarray, list[str]]:
    """Choose float32 or float64."""
    extension = path.suffix.lower()
    if extension not in _FLOATS or not (storage.single or extension == ".pcd") or len(points) == 0:
        return points, []
    single = points.astype(np.float32)
    with np.errstate(invalid="ignore"):
        rounding = float(np.abs(single - points).max())
    if rounding <= max(_TOLERANCE * float(np.ptp(points, axis=0).max()), storage.rounding):
        return single, []
    note = f"{path}: float32 would round the large coordinates by {rounding:.2g}, so they are float64."
    if extension == ".pcd":
        note += " The Point Cloud Library reads float32 only: write a ply file, or subtract an offset before."
    return points, [note]


def _attributes(path: Path, cloud: Cloud, storage: Storage) -> tuple[dict[str, np.ndarray], list[str]]:
    """Return the attributes in the names and types of the format, without those that it cannot store."""
    extension = path.suffix.lower()
    attributes = {name: v for name, v in cloud.attributes.items() if v.dtype.kind in "biuf" and v.size}
    dropped = [name for name in cloud.attributes if name not in attributes]
    if extension == ".e57":
        attributes = narrow_colors(attributes)  # the writer stores 8 bits only
    elif storage.format != extension and {storage.format, extension} != {*_LAS}:
        if extension == ".pcd":
            attributes = pcd_attributes(attributes)
        elif extension in _LAS:
            attributes = las_attributes(attributes)
        elif extension != ".npz" or storage.format:
            attributes = narrow_colors(attributes)
    attributes = _with_different_names(attributes, _MAX_LAS_NAME if extension in _LAS else None)
    dropped += _unstorable(extension, attributes, storage)
    kept = {name: values for name, values in attributes.items() if name not in dropped}
    if not dropped:
        return kept, []
    return kept, [f"{path}: {extension[1:]} files cannot store {', '.join(sorted(dropped))}."]


def _unstorable(extension: str, attributes: Mapping[str, np.ndarray], storage: Storage) -> list[str]:
    if extension in WITHOUT_ATTRIBUTES:
        return list(attributes)
    if extension in _STORED:
        return [name for name in attributes if name not in _STORED[extension]]
    if extension in _LAS:
        from wsdesc.cloud.formats.las import unfit_columns

        return unfit_columns({n: v for n, v in attributes.items() if v.ndim == 1}, storage)
    if extension == ".ply":
        from wsdesc.cloud.formats.ply import is_storable

        return [name for name, values in attributes.items() if not is_storable(values)]
    return []


def _with_different_names(attributes: Mapping[str, np.ndarray], length: int | None) -> dict[str, np.ndarray]:
    """Number names that would be equal in a header, or equal to those of the coordinates.

    Names are cut to a `length`, if there is one.
    """
    used, result = {*"xyzXYZ", "points"}, dict[str, np.ndarray]()
    for name, values in attributes.items():
        name = (plain_name(name) if length else name)[:length]
        unique, number = name, 2
        while plain_name(unique) in used:
            unique, number = f"{name}_{number}", number + 1
        used.add(plain_name(unique))
        result[unique] = values
    return result
