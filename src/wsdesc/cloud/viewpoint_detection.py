"""Detect whether a scan was taken from a position.

From its scanner's position, no point of a scan lies behind another one. So a position is the viewpoint if
hardly a point is hidden from it, and many more points are hidden from positions around it. A cloud merged
from several scans, a fused fragment or a shifted scan has no such position at its origin.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from wsdesc.cloud.range_image import cell_of
from wsdesc.core.kernels import kernel

_SAMPLE = 80_000  # points
_CELLS = (512, 256, 128, 64, 32)  # per side of a face of the cube map
_OCCUPANCY = 1.5  # points per filled cell; then neighbouring rays share a cell
_BEHIND = 1.1  # a point is hidden if its range exceeds that of another point in its cell by this factor,
_BEHIND_MEDIAN = 0.02  # and by this share of the median range
_STEPS = (0.05, 0.15)  # displacements for the comparison, in median ranges
_PRIOR = 0.002  # share of hidden points that is added to both sides of a comparison
_EVENNESS_CELLS = 64  # per side of a face, to measure how even the density is
_MIN_FILLED = 300  # cells; fewer are no evidence
_DENSITY_CELLS = 32  # per side of a face, to measure the density of directions,
_MIN_COUNT = 3  # with so many points per cell, and so many cells

# Limits of the evidence, chosen on synthetic scans: 9 sites, 10 sensors, thinned, shifted and merged.
_MAX_HIDDEN = 0.08
_MIN_RATIO = 1.05  # at the smaller displacement
_MIN_PRODUCT = 1.57  # of the ratios at both displacements
_MIN_EVENNESS = 0.92  # displaced places may look a little more even: thinned scans have equal spacing
_MIN_PRODUCT_EVEN = 1.05  # of the ratios, if no displaced place looks more even: the rays of a scanner
_NARROW = 0.6  # mean direction from which on a field of view is narrow,
_MIN_PRODUCT_NARROW = 1.82  # with limits of its own: of the ratios,
_MIN_EVENNESS_NARROW = 0.9
_MAX_GROWTH = 0.7  # of the density with the range: thinned depth images look like fused ones
_MIN_VIEW_FILLED = 0.65  # share of the field of view with points: a floor seen from above has gaps and arms

_VIEW_SAMPLE = 20_000  # points that measure the field of view,
_VIEW_POINTS = 8  # so many per cell if they fill it
_VIEW_SIDES = 64  # of the polygon around it


def detect_viewpoint(points: NDArray[Any], origin: NDArray[Any] | None = None) -> bool:
    """Return whether the origin of the scan is its viewpoint. In doubt it is not.

    Args:
        points: (N, 3), finite.
        origin: (3,) position of the scan's origin in the coordinates of the points; zeros if not given.
    """
    local = _sample_around(points, origin)
    if local is None:
        return False
    direction, growth = _density(local)
    if direction >= _NARROW and growth > _MAX_GROWTH:  # fused depth images: no other measurement matters
        return False
    evidence = _measure_evidence(local, direction, growth)
    if evidence is None:
        return False
    near, far = evidence.ratios
    sharp, rays = near >= _MIN_RATIO, evidence.growth <= _MAX_GROWTH
    if evidence.hidden > _MAX_HIDDEN:
        return False
    if evidence.direction >= _NARROW:
        even = evidence.evenness >= _MIN_EVENNESS_NARROW
        narrow = sharp and near * far >= _MIN_PRODUCT_NARROW and even and rays
        return narrow and view_filled(local) >= _MIN_VIEW_FILLED
    if rays and evidence.evenness >= 1 and near * far >= _MIN_PRODUCT_EVEN:
        return True
    return sharp and near * far >= _MIN_PRODUCT and evidence.evenness >= _MIN_EVENNESS


class ViewpointEvidence(NamedTuple):
    """Measurements that tell whether the origin is the viewpoint."""

    hidden: float  # share of the points that lie behind others, seen from the origin
    ratios: tuple[float, float]  # hidden share from displaced places, median, over that from the origin
    evenness: float  # unevenness of the density from the most even displaced place, over that from the origin
    direction: float  # length of the mean direction: about 0 for panoramas, 0.9 for a camera
    growth: float  # exponent of the density of directions over the range: 0 for rays of a scanner, 2 for
    # points with equal spacing, as in fused or thinned clouds


def _sample_around(points: NDArray[Any], origin: NDArray[Any] | None) -> NDArray[np.float32] | None:
    """Choose a sample (M, 3) relative to the origin, in median ranges; None if these are 0 or infinite."""
    sample = points
    if len(points) > _SAMPLE:
        chosen = np.random.default_rng(0).choice(len(points), _SAMPLE, replace=False, shuffle=False)
        sample = points[np.sort(chosen)]
    local = np.asarray(sample, np.float64) - (0.0 if origin is None else np.asarray(origin))
    ranges = np.linalg.norm(local, axis=1)
    median = float(np.median(ranges))
    if not 0 < median < np.inf:
        return None
    return np.ascontiguousarray(local / median, np.float32)


def _measure_evidence(
    local: NDArray[np.float32], direction: float, growth: float
) -> ViewpointEvidence | None:
    """Measure the evidence of a sample around the origin; None if it has points in few directions."""
    for cells in _CELLS:
        buffers = np.full(6 * cells**2, np.inf, np.float32), np.zeros(6 * cells**2, np.int32)
        hidden, filled = _hidden_share(local, np.zeros(3, np.float32), cells, *buffers)
        if len(local) > _OCCUPANCY * filled:
            break
    if filled < _MIN_FILLED:
        return None
    ratios = []
    for step in _STEPS:
        places = [(sign * step * axis).astype(np.float32) for axis in np.eye(3) for sign in (1, -1)]
        shares = [_hidden_share(local, place, cells, *buffers)[0] for place in places]
        ratios.append(float((np.median(shares) + _PRIOR) / (hidden + _PRIOR)))
    uneven = [unevenness(local, place) for place in (np.zeros(3, np.float32), *places)]
    return ViewpointEvidence(hidden, (ratios[0], ratios[1]), min(uneven[1:]) / uneven[0], direction, growth)


def _hidden_share(
    points: NDArray[np.float32],
    place: NDArray[np.float32],
    cells: int,
    nearest: NDArray[np.float32],
    counts: NDArray[np.int32],
) -> tuple[float, int]:
    """Measure the share of points behind others, of all that share a cell, and count the filled cells.

    The buffers `nearest`, all infinite, and `counts`, all 0, are left as they were.
    """
    shared, hidden, filled, _ = count_hidden(points, place, cells, nearest, counts)
    return hidden / max(shared, 1), filled


@kernel(types="float32[:, ::1], float32[::1], int64, float32[::1], int32[::1]")
def count_hidden(points, place, cells, nearest, counts):  # type: ignore[no-untyped-def]
    """Count points that share a direction cell, those of them behind others, and filled cells.

    Also returns the length of the mean direction of the filled cells, 0 if they lie all around. The buffers
    are left as they were; see `_hidden_share`.
    """
    number, ranges = np.empty(len(points), np.int32), np.zeros(len(points), np.float32)
    filled, sum_x, sum_y, sum_z = 0, 0.0, 0.0, 0.0
    for k in range(len(points)):
        x, y, z = points[k, 0] - place[0], points[k, 1] - place[1], points[k, 2] - place[2]
        ranges[k] = math.sqrt(x * x + y * y + z * z)
        if ranges[k] > 0:
            cell = number[k] = cell_of(x, y, z, cells)
            if counts[cell] == 0:
                filled += 1
                sum_x += x / ranges[k]
                sum_y += y / ranges[k]
                sum_z += z / ranges[k]
            counts[cell] += 1
            nearest[cell] = min(nearest[cell], ranges[k])
    shared = hidden = 0
    for k in range(len(points)):
        if ranges[k] > 0 and counts[number[k]] > 1:
            shared += 1
            hidden += ranges[k] > _BEHIND * nearest[number[k]] + _BEHIND_MEDIAN
    for k in range(len(points)):  # clearing all cells would take longer
        if ranges[k] > 0:
            nearest[number[k]], counts[number[k]] = np.inf, 0
    return shared, hidden, filled, math.sqrt(sum_x**2 + sum_y**2 + sum_z**2) / max(filled, 1)


def unevenness(
    points: NDArray[np.float32], place: NDArray[np.float32], cells: int = _EVENNESS_CELLS
) -> float:
    """Measure how unevenly the directions from a place are distributed; 1 if all filled cells are equal."""
    counts = np.zeros(6 * cells**2, np.int64)
    _count_cells(points, place, cells, counts)
    filled = counts[counts > 0]
    return float(np.square(filled).mean() / np.square(filled.mean()))


@kernel(types="float32[:, ::1], float32[::1], int64, int64[::1]")
def _count_cells(points, place, cells, counts):  # type: ignore[no-untyped-def]
    """Count the points in each direction cell, seen from a place."""
    for k in range(len(points)):
        x, y, z = points[k, 0] - place[0], points[k, 1] - place[1], points[k, 2] - place[2]
        if x != 0 or y != 0 or z != 0:
            counts[cell_of(x, y, z, cells)] += 1


def view_filled(points: NDArray[np.float32]) -> float:
    """Measure the share of a narrow field of view, a convex polygon around all directions, that has points.

    Directions (M, 3) are projected so that areas are solid angles.
    """
    sample = points[:: -(-len(points) // _VIEW_SAMPLE)].astype(np.float64)
    directions = sample / np.maximum(np.linalg.norm(sample, axis=1, keepdims=True), 1e-30)
    middle = directions.mean(axis=0)
    across = np.linalg.svd(middle[None])[2][1:]  # two directions perpendicular to the middle
    cosine = directions @ middle / max(float(np.linalg.norm(middle)), 1e-30)
    flat = directions @ across.T * np.sqrt(2 / np.maximum(1 + cosine, 1e-6))[:, None]  # (M, 2)
    angles = 2 * np.pi * np.arange(_VIEW_SIDES) / _VIEW_SIDES
    sides = np.stack([np.cos(angles), np.sin(angles)])  # normals (2, sides) of the polygon
    reach = (flat @ sides).max(axis=0)
    step = angles[1]
    along = (np.roll(reach, -1) - reach * np.cos(step)) / np.sin(step)  # from a side's foot to its end
    before = (np.roll(reach, 1) - reach * np.cos(step)) / np.sin(step)
    area = float((reach * (along + before)).sum()) / 2
    cell = np.sqrt(area * _VIEW_POINTS / len(flat))
    filled = len(np.unique(np.floor(flat / max(cell, 1e-12)).astype(np.int64), axis=0))
    return filled * cell**2 / area if area > 0 else 0.0


def _density(points: NDArray[np.float32]) -> tuple[float, float]:
    """Measure the length of the mean direction, and how the density of directions grows with the range."""
    size = 6 * _DENSITY_CELLS**2
    counts, sums = np.zeros(size, np.int64), np.zeros((size, 4))
    _sum_cells(points, _DENSITY_CELLS, counts, sums)
    filled, dense = counts > 0, counts >= _MIN_COUNT
    direction = float(np.linalg.norm((sums[filled, :3] / counts[filled, None]).mean(axis=0)))
    if dense.sum() < _MIN_COUNT:
        return direction, np.inf
    log_range, log_count = sums[dense, 3] / counts[dense], np.log(counts[dense])
    log_range = log_range - log_range.mean()
    variance = float(np.square(log_range).sum())
    return direction, float(log_range @ log_count / variance) if variance > 0 else np.inf


@kernel(types="float32[:, ::1], int64, int64[::1], float64[:, ::1]")
def _sum_cells(points, cells, counts, sums):  # type: ignore[no-untyped-def]
    for k in range(len(points)):
        x, y, z = points[k, 0], points[k, 1], points[k, 2]
        length = math.sqrt(x * x + y * y + z * z)
        if length > 0:
            cell = cell_of(x, y, z, cells)
            counts[cell] += 1
            sums[cell, 0] += x / length
            sums[cell, 1] += y / length
            sums[cell, 2] += z / length
            sums[cell, 3] += math.log(length)
