"""Cleaning of scans: finite points without duplicates, in the local frame of the scan in float32."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from wsdesc.cloud.cloud import Cloud, all_finite, as_points
from wsdesc.cloud.local_frame import local_frame, to_local
from wsdesc.cloud.viewpoint import Viewpoint, ViewpointOption, find_viewpoint
from wsdesc.cloud.viewpoint_search import search_viewpoint
from wsdesc.core.errors import InputError
from wsdesc.core.geometry import inverse, transform

_HASHED_AT_ONCE = 1 << 14
_FINE_ROUNDING = 1e-4  # share of the radius of a scan; smaller rounding is far below any resolution


@dataclass
class Cleaned:
    """A cleaned scan. `transform(points, T_scan_local)` are the original coordinates.

    Attributes:
        points: (M, 3) float32, in the local frame.
        T_scan_local: (4, 4) float64, from the local frame to the scan's own coordinates.
        index: (M,) int64, indices of the points in the input, ascending.
        viewpoint: Position of the scanner, in the scan's own coordinates; None if it is not known.
        rounding: Distance between neighbouring float32 numbers at the largest coordinate, if the coordinates
            are float32 numbers far from the origin; else 0.
        dropped: Number of points that were dropped because they were not finite.
    """

    points: np.ndarray
    T_scan_local: np.ndarray
    index: np.ndarray
    viewpoint: Viewpoint | None = None
    rounding: float = 0.0
    dropped: int = 0

    @property
    def local_viewpoint(self) -> np.ndarray | None:
        """(3,) float64 position of the scanner in the local frame; None if it is not known."""
        if self.viewpoint is None:
            return None
        return np.asarray(transform(self.viewpoint.position[None], inverse(self.T_scan_local))[0])


def clean(points: Any) -> Cleaned:
    """Drop points (N, 3) that are not finite or repeat an earlier one exactly; move the rest.

    The rest is moved into the local frame of the scan, see `local_frame`: a moved scan gives the same points.
    Their order stays. Points are compared in float64, before the conversion to float32.

    Raises:
        InputError: No finite point is left, or single precision cannot represent the coordinates.
    """
    kept = np.ascontiguousarray(as_points(points), np.float64)
    index = None  # of the kept points; large arrays are made only where they are needed
    if not all_finite(kept):
        index = np.flatnonzero(np.isfinite(kept).all(axis=1))
        if len(index) == 0:
            raise InputError(f"none of the {len(kept)} points is finite")
        kept = kept[index]
    first = first_occurrences(kept)
    if len(first) < len(kept):
        kept = kept[first]
    T_scan_local = local_frame(kept)
    local = to_local(kept, T_scan_local)
    if not all_finite(local):
        raise InputError("the coordinates exceed the range of single precision: remove the outliers")
    dropped = 0 if index is None else len(points) - len(index)
    index = first if index is None else index[first]
    rounding = _rounding(kept, float(np.abs(local).max()))
    return Cleaned(local, T_scan_local, index, rounding=rounding, dropped=dropped)


def _rounding(points: np.ndarray, radius: float) -> float:
    """Return the rounding of points (N, 3) as `Cleaned.rounding`; `radius` is that of the scan."""
    with np.errstate(over="ignore", invalid="ignore"):
        step = float(np.spacing(np.float32(np.abs(points).max())))
        if not step > _FINE_ROUNDING * radius or (points.astype(np.float32) != points).any():
            return 0.0
    return step


def clean_cloud(
    cloud: Cloud, viewpoint: ViewpointOption = None, name: str = "viewpoint", *, search: bool = False
) -> Cleaned:
    """Clean a cloud, and find its viewpoint.

    Args:
        cloud: The cloud.
        viewpoint: None takes the viewpoint from the file, or detects it, except for sampled meshes; three
            numbers give it, in the coordinates of the cloud; "none" uses none.
        name: What error messages call the viewpoint.
        search: Also search for the viewpoint of a moved scan, which takes about a second; see
            `search_viewpoint`.

    Raises:
        InputError: No finite point is left, or the viewpoint is not a position near the scan.
    """
    cleaned = clean(cloud.points)
    if viewpoint is None and cloud.sampled:
        viewpoint = "none"
    result = find_viewpoint(cleaned.points, cleaned.T_scan_local, viewpoint, cloud.viewpoint, name)
    if result is None and viewpoint is None and search:
        local = search_viewpoint(cleaned.points)  # (3,)
        if local is not None:
            result = Viewpoint(transform(local[None], cleaned.T_scan_local)[0], "detected")
    return replace(cleaned, viewpoint=result, dropped=cloud.dropped + cleaned.dropped)


def first_occurrences(points: np.ndarray) -> np.ndarray:
    """Find the points (N, 3) float64 that equal no earlier one; indices (M,) int64, ascending.

    One hash per point is sorted, which is several times faster than sorting points. Points with equal hashes
    are compared with the earliest of them. Different points with equal hashes are sorted in full.
    """
    by_key = _hash(points)
    by_key.sort()
    differs = by_key[1:] != by_key[:-1]
    if differs.all():
        return np.arange(len(points))
    starts = np.flatnonzero(np.r_[True, differs])  # of groups of equal hashes
    order = np.argsort(_hash(points))
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
    for start in range(0, len(points), _HASHED_AT_ONCE):  # temporary arrays stay in the cache
        part = mixed[start : start + _HASHED_AT_ONCE]
        for axis in range(3):
            part ^= (points[start : start + _HASHED_AT_ONCE, axis] + 0.0).view(np.uint64)
            part *= np.uint64(0x9E3779B97F4A7C15)
            part ^= part >> np.uint64(29)
    return mixed
