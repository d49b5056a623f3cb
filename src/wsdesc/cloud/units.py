"""Which length the computation works in, found from the scans themselves, whatever their unit.

The rule: the working resolution is twice the spacing of the points, kept between 1/90 and 1/55 of the
extent. It is about 0.025 for a scan of part of a room in metres, 25 if the same scan is in millimetres.
The details of a scene are in proportion to its extent, so that has the last word over scans that are far
denser or sparser than they need be; the spacing decides where both make sense. The numbers were chosen on
pairs of indoor fragments, as they were, up to ten times denser, and thinned to a tenth: the median pair has
0.026, 0.021 and 0.033 of a metre.

Its limits: the extent is that of what was scanned. A scan of a corner of a room gets a finer resolution
than one of all of it (down to 0.015 for the smallest of those fragments, alone), so give all clouds that
shall be aligned to *one* call. Nothing tells a doll's house from a house. Whoever knows the resolution
should say it instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from wsdesc.cloud.clean import first_occurrences
from wsdesc.cloud.cloud import all_finite, as_points
from wsdesc.core.errors import InputError
from wsdesc.core.kernels import inline, kernel, run_each, run_in_chunks

INDOOR_RESOLUTION = 0.025  # in metres: the working resolution at which one unit is one
SPACINGS = 2.0  # the resolution in spacings,
FINEST, COARSEST = 1 / 90, 1 / 55  # if that is between these parts of the extent,
OTHER_UNIT = 30.0  # times larger than the other cloud: they cannot be in the same unit
LEAST_SPACINGS = 0.5  # and never so fine that the neighbourhoods of the descriptor are empty

_ROOM_EXTENTS = (0.7, 7.0)  # metres: extents that scans of a room, or of a good part of one, have
_ROOM_SPACINGS = (0.0005, 0.1)  # metres: between the points of such scans
_NAMES = {"metres": 1.0, "centimetres": 0.01, "millimetres": 0.001}

_LARGE = 300_000  # points; of larger clouds the spacing is measured in some places only


@dataclass(frozen=True)
class Scale:
    """What was measured on some clouds, in their own unit of length, and what follows."""

    spacing: float  # between neighbouring points
    extent: float  # of the scanned surface, the mean side of a box around nearly all of it
    resolution: float  # the working resolution: voxels of this size are fine enough, and not too fine

    @property
    def unit(self) -> float:
        """By what all lengths given in metres indoors are to be multiplied."""
        return self.resolution / INDOOR_RESOLUTION

    @property
    def name(self) -> str:
        """The unit of length the coordinates seem to be in, if this is a scan of a room; or "unknown".

        Metres, centimetres and millimetres are told apart, by an extent of 0.7 to 7 m. A guess for
        people to read: feet pass for metres, and so do objects scaled to about 1. Nothing depends on it.
        """
        for name, metres in _NAMES.items():
            room = _ROOM_EXTENTS[0] <= self.extent * metres < _ROOM_EXTENTS[1]
            if room and _ROOM_SPACINGS[0] <= self.spacing * metres < _ROOM_SPACINGS[1]:
                return name
        return "unknown"

    def __str__(self) -> str:
        measured = f"(spacing {_number(self.spacing)}, extent {_number(self.extent)})"
        found = f"scans look like {self.name} {measured}"
        if self.name == "unknown":
            found = f"the scans' unit of length is unknown {measured}"
        return f"{found}: working resolution {_number(self.resolution)}, 1 unit = {_number(self.unit)}"


def measure(*clouds: Any) -> Scale:
    """Spacing, extent and working resolution of clouds (N, 3) that shall be aligned with each other.

    Of two clouds the larger spacing and the larger extent count, of many the (upper) median: a part of a
    scene says less about its scale than the whole, and the sparser scan limits what both can show.
    """
    if not clouds:
        raise InputError("there are no clouds to find the resolution of")
    each: Any = map if _on_gpu(clouds[0]) else run_each  # a GPU does one after the other
    measured = each(lambda cloud: (spacing(cloud), extent(cloud)), [_finite(cloud) for cloud in clouds])
    between, across = (_upper_median(list(values)) for values in zip(*measured, strict=True))
    resolution = min(max(SPACINGS * between, FINEST * across), COARSEST * across)
    return Scale(between, across, max(resolution, LEAST_SPACINGS * between))


def working_resolution(*clouds: Any) -> float:
    """The length that plays the part of 2.5 cm indoors, in the clouds' own unit; see the rule above."""
    return measure(*clouds).resolution


def unit_of(*clouds: Any) -> float:
    """By what lengths given in metres indoors are to be multiplied for these clouds: resolution / 0.025."""
    return measure(*clouds).unit


def different_units(source: Any, target: Any) -> str | None:
    """What to tell a user whose clouds (N, 3) and (M, 3) cannot be in the same unit; None if they can."""
    sizes = [extent(cloud) for cloud in (source, target)]
    if max(sizes) < OTHER_UNIT * max(min(sizes), 1e-300):
        return None
    return (
        f"the scans seem to be in different units: the source extends over {sizes[0]:.3g}, the target over "
        f"{sizes[1]:.3g}. Scale one of them, or say --resolution if the sizes are right"
    )


def spacing(points: Any, sample: int = 2000, seed: int = 0) -> float:
    """The median distance from a point to the nearest one that differs from it, over `sample` points.

    Repeated points count once; points that are not finite do not count. Clouds of over 300 000 points are
    measured in randomly chosen cells that hold about that many together.
    """
    from scipy.spatial import cKDTree

    rng = np.random.default_rng(seed)
    if _on_gpu(points):
        from wsdesc.cloud import units_cuda

        return units_cuda.spacing(points, _some(len(points), sample, rng))
    points = _finite(points)
    if len(points) > _LARGE:
        some = points[_in_random_cells(points, extent(points, seed=seed) / 32, _LARGE / len(points), rng)]
        points = some if len(some) >= sample else points
    points = points[first_occurrences(points)]
    if len(points) < 2:
        raise InputError("all points are one and the same: there is no distance between them to measure")
    queries = points[_some(len(points), sample, rng)]
    tree = cKDTree(points, balanced_tree=False, compact_nodes=False)  # the quickest to build
    distance, _ = tree.query(queries, k=2)  # (M, 2); the first is the point itself
    return float(np.median(distance[:, 1]))


def extent(points: Any, sample: int = 50_000, seed: int = 0) -> float:
    """How large the scanned surface is: the geometric mean of the three sides of a box along its principal
    axes, each of which leaves out a twentieth at either end.

    The mean over three sides is what a room and a whole floor, which is much wider but no higher, differ
    least in. Surface is counted in cells of a coarse grid with at least two points, so that neither the
    density of the points, which near a scanner is far higher, nor a few points far away make a difference.
    No side counts as shorter than a twentieth of the longest: the scan of a plane has an extent, too.
    """
    rng = np.random.default_rng(seed)
    if _on_gpu(points):
        from wsdesc.cloud import units_cuda

        return units_cuda.extent(points, _some(len(points), sample, rng))
    points = _finite(points)
    points = points[_some(len(points), sample, rng)]
    points = points[first_occurrences(points)]
    points = points - np.median(points, axis=0)
    places = points
    for _ in range(2):  # the first grid is chosen for the points, the second for the surface
        radius = np.linalg.norm(places - np.median(places, axis=0), axis=1)
        reach = float(np.quantile(radius, 0.8, method="higher"))
        if len(places) < 8 or not reach > 0:
            break
        near = points[np.linalg.norm(points - np.median(places, axis=0), axis=1) <= 4 * reach]
        _, first, count = np.unique(_cells(near, reach / 16), return_index=True, return_counts=True)
        # Where points are too few to tell surfaces from stray points, all of them count.
        places = near[first[count > 1]] if (count > 1).sum() >= 8 else near
    centred = places - places.mean(axis=0)
    _, axes = np.linalg.eigh(centred.T @ centred)
    low, high = np.quantile(centred @ axes, (0.05, 0.95), axis=0)  # (3,) each
    sides = high - low
    return float(np.maximum(sides, sides.max() / 20).prod() ** (1 / 3))


def _on_gpu(points: Any) -> bool:
    """Whether these are points of a cleaned cloud that were brought to a GPU: they are measured there."""
    return bool(getattr(points, "is_cuda", False))


def _finite(points: Any) -> Any:
    """(N, 3) float64, N ≥ 1, without the points that are not finite; on a GPU there are none."""
    if _on_gpu(points):
        return points
    array = as_points(points).astype(np.float64, copy=False)
    if all_finite(array):
        return array
    array = array[np.isfinite(array).all(axis=1)]
    if len(array) == 0:
        raise InputError("none of the points is finite")
    return array


def _some(count: int, most: int, rng: np.random.Generator) -> np.ndarray:
    """Indices of at most `most` of `count`, chosen at random."""
    return np.arange(count) if count <= most else rng.choice(count, most, replace=False, shuffle=False)


def _cells(points: np.ndarray, size: float) -> np.ndarray:
    """(N,) int64, one number for each cell of a grid; cells 2²⁰ from the origin and beyond are one."""
    numbers = np.empty(len(points), np.int64)
    run_in_chunks(_number_cells, len(points), points, size, numbers, chunk=1 << 18)
    return numbers


@inline
def _cell_of(x, y, z, size):  # type: ignore[no-untyped-def]
    number = np.int64(0)
    for place in (x, y, z):
        cell = min(max(np.floor(place / size), -(2.0**20)), 2.0**20 - 1)
        number = (number << 21) | (np.int64(cell) + 2**20)
    return number


@kernel
def _number_cells(start, stop, points, size, numbers):  # type: ignore[no-untyped-def]
    for n in range(start, stop):
        numbers[n] = _cell_of(points[n, 0], points[n, 1], points[n, 2], size)


def _in_random_cells(
    points: np.ndarray, size: float, share: float, rng: np.random.Generator
) -> np.ndarray | slice:
    """Which points (N,) lie in cells that were chosen, each with the probability `share`."""
    if not size > 0:
        return slice(None)
    chosen = np.empty(len(points), np.bool_)
    lucky = rng.random(1 << 16) < share
    run_in_chunks(_choose, len(points), points, points[0], size, lucky, chosen, chunk=1 << 18)
    return chosen


@kernel
def _choose(start, stop, points, origin, size, lucky, chosen):  # type: ignore[no-untyped-def]
    """Whether the cell of each point is among the lucky ones, by its shuffled number."""
    for n in range(start, stop):
        x, y, z = points[n, 0] - origin[0], points[n, 1] - origin[1], points[n, 2] - origin[2]
        number = np.uint64(_cell_of(x, y, z, size)) * np.uint64(0x9E3779B97F4A7C15)
        chosen[n] = lucky[number >> np.uint64(48)]


def _upper_median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]


def _number(value: float) -> str:
    """Three digits, for people."""
    rounded = float(f"{value:.3g}")
    return f"{rounded:,.0f}".replace(",", " ") if abs(rounded) >= 1000 else f"{rounded:g}"
