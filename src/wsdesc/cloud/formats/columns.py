"""Conversion between named columns, as in most files, and points with attributes."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

import numpy as np

from wsdesc.cloud.formats import SINGLE, FileContent
from wsdesc.cloud.formats.attributes import VECTORS
from wsdesc.cloud.storage import Storage
from wsdesc.core.errors import InputError

# Sets of names of coordinates, in the order of preference; in lower case, without units and separators.
_HEIGHTS = ("elevation", "height", "altitude", "elev", "alt")
_SCHEMES: tuple[tuple[tuple[str, ...], ...], ...] = (
    (("x",), ("y",), ("z",)),
    (("easting", "east"), ("northing", "north"), (*_HEIGHTS, "z", "h")),
    (("rechtswert", "ost"), ("hochwert", "nord"), ("hoehe", "hhe", *_HEIGHTS, "z", "h")),  # hhe: Höhe
    *(
        tuple((pattern.format(axis),) for axis in "xyz")
        for pattern in ("{}coord", "coord{}", "point{}", "pos{}")
    ),
    (("points0",), ("points1",), ("points2",)),  # ParaView
    (("x",), ("y",), (*_HEIGHTS, "h")),
    (("e",), ("n",), (*_HEIGHTS, "h", "z", "u")),
)
_DEGREES = ({"lat", "latitude"}, {"lon", "long", "lng", "longitude"})
_UNIT = re.compile(r"[\[(].*|[^a-z0-9]")  # a unit in brackets, and separators


def xyz_names(names: Collection[str]) -> tuple[str, str, str]:
    """Return the names of the columns x, y and z. Upper case, units and names as in surveys are accepted.

    Raises:
        ValueError: A coordinate is missing, or the coordinates are degrees.
    """
    plain: dict[str, str] = {}
    for name in names:
        plain.setdefault(_UNIT.sub("", name.lower()), name)
    for scheme in _SCHEMES:
        axes = [next((plain[alias] for alias in aliases if alias in plain), None) for aliases in scheme]
        if axes[0] is not None and axes[1] is not None and axes[2] is not None:
            return axes[0], axes[1], axes[2]
    if all(degrees & plain.keys() for degrees in _DEGREES):
        raise ValueError("latitude and longitude are angles; project them first, for example to UTM")
    missing = next((axis for axis in "xyz" if axis not in plain), "x")
    raise ValueError(f"column {missing} is missing (columns: {', '.join(names) or 'none'})")


def from_columns(columns: Mapping[str, np.ndarray]) -> FileContent:
    """Convert columns with N rows to points (N, 3) float64 and attributes."""
    axes = xyz_names(columns)
    for axis in axes:
        if columns[axis].ndim != 1 or columns[axis].dtype.kind not in "iuf":
            raise ValueError(f"column {axis} must have one real number per point")
        if len(columns[axis]) != len(columns[axes[0]]):
            raise ValueError(f"the columns {', '.join(axes)} must have the same length")
    points = np.empty((len(columns[axes[0]]), 3))
    for i, axis in enumerate(axes):
        points[:, i] = columns[axis]
    attributes = {name: values for name, values in columns.items() if name not in axes}
    single = all(columns[axis].dtype == np.float32 for axis in axes)
    return FileContent(points, attributes, storage=SINGLE if single else Storage())


def plain_name(name: str) -> str:
    """Replace characters that would end a name in a header by _."""
    return re.sub(r"[^A-Za-z0-9_.\-]+", "_", name) or "_"


def to_columns(
    points: np.ndarray, attributes: Mapping[str, np.ndarray], vectors: bool = False
) -> dict[str, np.ndarray]:
    """Convert points (N, 3) and attributes to named columns with N numbers each, x, y and z first.

    `colors` (N, 3) become red, green and blue, `normals` nx, ny and nz. Other attributes with several columns
    are numbered; if `vectors` is set, each stays one column. Characters that would end a name in a header are
    replaced by _.
    """
    columns = dict(zip("xyz", points.T, strict=True))
    for name, values in attributes.items():
        if values.ndim == 1 or vectors:
            parts = {name: values}
        elif name in VECTORS and values.shape[1:] == (3,):
            parts = dict(zip(VECTORS[name], values.T, strict=True))
        else:
            flat = values.reshape(len(values), -1)
            parts = {f"{name}_{i}": flat[:, i] for i in range(flat.shape[1])}
        for part, column in parts.items():
            plain = plain_name(part)
            if plain.lower() in {"x", "y", "z"} or plain in columns:
                raise InputError(f"attribute {name!r}: there are two columns {plain!r}, rename one")
            columns[plain] = column
    return columns
