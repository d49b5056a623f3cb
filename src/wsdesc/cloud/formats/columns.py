"""Between named columns, which most files hold, and points with attributes, which programs want."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

import numpy as np

from wsdesc.cloud.formats import Reading
from wsdesc.core.errors import InputError


def xyz_names(names: Collection[str]) -> tuple[str, str, str]:
    """The columns that hold x, y and z, in either case."""
    found = []
    for axis in "xyz":
        name = next((name for name in (axis, axis.upper()) if name in names), None)
        if name is None:
            listed = ", ".join(names) or "its columns, it has none"
            raise ValueError(f"it has no {axis} among {listed}")
        found.append(name)
    return found[0], found[1], found[2]


def from_columns(columns: Mapping[str, np.ndarray]) -> Reading:
    """Columns of N rows -> points (N, 3) float64 and the other columns as attributes."""
    axes = xyz_names(columns)
    for axis in axes:
        if columns[axis].ndim != 1 or columns[axis].dtype.kind not in "iuf":
            raise ValueError(f"its column {axis} does not hold one real number a point")
    points = np.empty((len(columns[axes[0]]), 3))
    for i, axis in enumerate(axes):
        points[:, i] = columns[axis]
    return Reading(points, {name: values for name, values in columns.items() if name not in axes})


def to_columns(points: np.ndarray, attributes: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Points (N, 3) and attributes -> named columns of N numbers each, x, y and z first.

    `colors` of three columns become red, green and blue; other attributes of several columns get a number
    behind their name. Signs that would end a name in a header are written as _.
    """
    columns = dict(zip("xyz", points.T, strict=True))
    for name, values in attributes.items():
        if values.ndim == 1:
            parts = {name: values}
        elif name == "colors" and values.shape[1:] == (3,):
            parts = dict(zip(("red", "green", "blue"), values.T, strict=True))
        else:
            flat = values.reshape(len(values), -1)
            parts = {f"{name}_{i}": flat[:, i] for i in range(flat.shape[1])}
        for part, column in parts.items():
            plain = re.sub(r"[^A-Za-z0-9_.\-]+", "_", part) or "_"
            if plain.lower() in {"x", "y", "z"} or plain in columns:
                raise InputError(f"attribute {name!r}: a column called {plain!r} is there already")
            columns[plain] = column
    return columns
