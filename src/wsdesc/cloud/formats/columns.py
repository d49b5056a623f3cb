"""Conversion between named columns, as in most files, and points with attributes."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

import numpy as np

from wsdesc.cloud.formats import FileContent
from wsdesc.core.errors import InputError


def xyz_names(names: Collection[str]) -> tuple[str, str, str]:
    """Return the names of the columns x, y and z, in lower or upper case."""
    axes = []
    for axis in "xyz":
        name = next((name for name in (axis, axis.upper()) if name in names), None)
        if name is None:
            raise ValueError(f"column {axis} is missing (columns: {', '.join(names) or 'none'})")
        axes.append(name)
    return axes[0], axes[1], axes[2]


def from_columns(columns: Mapping[str, np.ndarray]) -> FileContent:
    """Convert columns with N rows to points (N, 3) float64 and attributes."""
    axes = xyz_names(columns)
    for axis in axes:
        if columns[axis].ndim != 1 or columns[axis].dtype.kind not in "iuf":
            raise ValueError(f"column {axis} must have one real number per point")
    points = np.empty((len(columns[axes[0]]), 3))
    for i, axis in enumerate(axes):
        points[:, i] = columns[axis]
    return FileContent(points, {name: values for name, values in columns.items() if name not in axes})


def to_columns(points: np.ndarray, attributes: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Convert points (N, 3) and attributes to named columns with N numbers each, x, y and z first.

    `colors` (N, 3) become red, green and blue; other attributes with several columns are numbered. Characters
    that would end a name in a header are replaced by _.
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
                raise InputError(f"attribute {name!r}: there are two columns {plain!r}, rename one")
            columns[plain] = column
    return columns
