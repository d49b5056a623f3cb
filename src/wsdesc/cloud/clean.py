"""Cleaning of scans: finite points without duplicates, centred for float32, and the way back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from wsdesc.cloud.cloud import all_finite, as_array, as_points
from wsdesc.core.errors import InputError


@dataclass
class Cleaned:
    """A cleaned scan. `points + offset` are the original coordinates.

    Attributes:
        points: (M, 3) float32, relative to the offset.
        offset: (3,) float64, the centre of the bounding box.
        index: (M,) int64, indices of the points in the input, ascending.
    """

    points: np.ndarray
    offset: np.ndarray
    index: np.ndarray


def clean(points: Any) -> Cleaned:
    """Drop points (N, 3) that are not finite or repeat an earlier one exactly, and centre the rest.

    The order of the points stays. Points are compared in float64, before the conversion to float32.

    Raises:
        InputError: no finite point is left, or single precision cannot represent the coordinates.
    """
    original = as_points(points).astype(np.float64, copy=False)
    finite = np.arange(len(original))
    if not all_finite(original):
        finite = np.flatnonzero(np.isfinite(original).all(axis=1))
    if len(finite) == 0:
        raise InputError(f"none of the {len(original)} points is finite")
    kept = original if len(finite) == len(original) else original[finite]
    first = first_occurrences(kept)
    offset = np.array([column.min() / 2 + column.max() / 2 for column in kept.T])
    unique = kept if len(first) == len(kept) else kept[first]
    local = np.empty(unique.shape, np.float32)
    with np.errstate(over="ignore"):
        for axis in range(3):  # several times faster than rows of three
            local[:, axis] = unique[:, axis] - offset[axis]
    if not all_finite(local):
        raise InputError("the coordinates exceed the range of single precision: remove the outliers")
    return Cleaned(local, offset, finite[first])


def with_offsets(T_local: Any, source_offset: Any, target_offset: Any) -> np.ndarray:
    """Convert a transformation between cleaned scans to one between original coordinates.

    Args:
        T_local: (4, 4), maps the source without its offset to the target without its offset.
        source_offset: (3,).
        target_offset: (3,).

    Returns:
        T_target_source (4, 4) float64.
    """
    T = as_array(T_local).astype(np.float64)
    source, target = (as_array(o).astype(np.float64) for o in (source_offset, target_offset))
    if T.shape != (4, 4) or source.shape != (3,) or target.shape != (3,):
        shapes = f"{T.shape}, {source.shape} and {target.shape}"
        raise InputError(f"T_local and the offsets must have the shapes (4, 4), (3,) and (3,), not {shapes}")
    T_target_source = T.copy()
    T_target_source[:3, 3] = T[:3, 3] + target - T[:3, :3] @ source
    return T_target_source


def first_occurrences(points: np.ndarray) -> np.ndarray:
    """Find the points (N, 3) float64 that equal no earlier one; indices (M,) int64, ascending.

    One hash per point is sorted, which is several times faster than sorting points. Points with equal hashes
    are compared with the earliest of them. Different points with equal hashes are sorted in full.
    """
    keys = _hash(points)
    by_key = np.sort(keys)
    starts = np.flatnonzero(np.r_[True, by_key[1:] != by_key[:-1]])  # of groups of equal hashes
    if len(starts) == len(points):
        return np.arange(len(points))
    order = np.argsort(keys)
    earliest = np.minimum.reduceat(order, starts)  # (groups,)
    leader = np.empty(len(points), np.int64)
    leader[order] = np.repeat(earliest, np.diff(np.r_[starts, len(points)]))
    first = np.zeros(len(points), bool)
    first[earliest] = True
    others = np.flatnonzero(~first)
    unequal = others[(points[others] != points[leader[others]]).any(axis=1)]
    if len(unequal):
        # Their hash collides with that of a different point: keep the earliest of each.
        _, kept = np.unique(points[unequal] + 0.0, axis=0, return_index=True)
        first[unequal[kept]] = True
    return np.flatnonzero(first)


def _hash(points: np.ndarray) -> np.ndarray:
    """Hash the coordinates of each point; (N,) uint64. 0.0 and -0.0 have the same hash."""
    mixed = np.zeros(len(points), np.uint64)
    for axis in range(3):
        bits = (points[:, axis] + 0.0).view(np.uint64)
        mixed = (mixed ^ bits) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
    return mixed
