"""Faces of meshes: triangles of polygons and of strips, and checks of the vertex indices."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Ragged(NamedTuple):
    """Rows of different lengths, stored one after the other: row k has `lengths[k]` of the `values`."""

    values: np.ndarray  # (sum of lengths,)
    lengths: np.ndarray  # (rows,) int64


def triangulate(polygons: np.ndarray | Ragged) -> np.ndarray:
    """Split polygons, (F, k) or ragged rows of vertex indices, into triangles (T, 3) int64.

    The triangles are sorted by the number of corners of their polygon, then as in the file.
    """
    if isinstance(polygons, np.ndarray):
        groups = [polygons]
    else:
        values, lengths = polygons
        starts = np.cumsum(lengths) - lengths
        groups = [
            values[starts[lengths == corners][:, None] + np.arange(corners)]
            for corners in np.unique(lengths)
            if corners > 2
        ]
    triangles = [np.empty((0, 3), np.int64)]
    for group in groups:  # (F, k)
        middle, last = group[:, 1:-1].T, group[:, 2:].T  # (k - 2, F)
        first = np.broadcast_to(group[:, 0] if len(middle) else middle, middle.shape)
        triangles.append(np.stack([first, middle, last], axis=2).reshape(-1, 3))
    with np.errstate(invalid="ignore"):  # NaN becomes an index that `check_faces` rejects
        return np.concatenate(triangles).astype(np.int64)


def strip_triangles(strips: Ragged) -> np.ndarray:
    """Split triangle strips into triangles (T, 3) int64.

    Every second triangle of a strip is reversed, so that all of them face the same side.
    """
    counts = np.maximum(strips.lengths - 2, 0)  # triangles of each strip
    starts = np.cumsum(strips.lengths) - strips.lengths
    number = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)  # within the strip
    first = np.repeat(starts, counts) + number
    triangles = strips.values[first[:, None] + np.arange(3)]
    triangles = np.where(number[:, None] % 2 == 1, triangles[:, [1, 0, 2]], triangles)
    return np.asarray(triangles, np.int64)


def check_faces(faces: np.ndarray, vertices: int) -> np.ndarray:
    """Return the triangles as int64, or raise a ValueError if a corner is not a vertex of the file."""
    if faces.size and (faces.min() < 0 or faces.max() >= vertices):
        raise ValueError(f"a face has a vertex index outside of the {vertices} vertices")
    return faces.astype(np.int64)
