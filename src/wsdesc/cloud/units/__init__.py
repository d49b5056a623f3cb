"""Estimation of the working resolution from the scans, in whatever unit of length they are.

The working resolution is twice the spacing of the points, limited to between 1/90 and 1/55 of the extent. It
is about 0.025 for a scan of part of a room in metres, and 25 for the same scan in millimetres. The details of
a scene are in proportion to its extent, so the extent limits the resolution of very dense and very sparse
scans. The numbers were chosen on pairs of indoor fragments: as they are, up to ten times denser, and thinned
to a tenth. The median pairs have resolutions of 0.026, 0.021 and 0.033 m.

Limits: the extent is that of the scanned part. A scan of a corner gets a finer resolution than a scan of the
whole room (down to 0.015 m for the smallest of those fragments). So measure all scans that will be aligned in
one call. The estimate cannot distinguish a doll's house from a house: give the resolution where it is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch

from wsdesc.cloud.cloud import all_finite, as_points
from wsdesc.cloud.units import cpu
from wsdesc.core.errors import InputError
from wsdesc.core.kernels import iterate_each, run_each

INDOOR_RESOLUTION = 0.025  # metres: the working resolution for which the unit is 1

_SPACINGS = 2.0  # working resolution in spacings,
_FINEST, _COARSEST = 1 / 90, 1 / 55  # limited to these shares of the extent,
_MIN_SPACINGS = 0.5  # but never finer than this many spacings: the descriptor needs neighbours
_DIGITS = 3  # of the resolution: noise of the coordinates then seldom changes it and with it all voxels
_UNIT_RATIO = 30.0  # ratio of two extents from which on the scans cannot have the same unit
_UNITS = {"millimetres": 0.001, "centimetres": 0.01, "inches": 0.0254}  # in metres
_SIMILAR = 1.5  # ratio of the extents of two scans of a place, in the same unit, that is common

_EXTENT_SAMPLE = 50_000  # points that measure an extent

_ROOM_EXTENTS = (0.7, 7.0)  # metres: extents of scans of a room, or of a good part of one
_ROOM_SPACINGS = (0.0005, 0.1)  # metres: point spacings of such scans
_METRES = {"metres": 1.0, "centimetres": 0.01, "millimetres": 0.001}


@dataclass(frozen=True)
class Scale:
    """Spacing, extent and working resolution of one or several scans, in their own unit of length."""

    spacing: float  # between neighbouring points
    extent: float  # of the scanned surface: mean side of a box around nearly all of it
    resolution: float  # working resolution: voxel size for all computations, three significant digits

    @classmethod
    def combine(cls, spacings: Sequence[float], extents: Sequence[float]) -> Scale:
        """Derive one scale for scans that will be aligned with each other, from the figures of each.

        Of two scans the larger spacing and the larger extent count, of many the upper median. A part of a
        scene says less about its scale than the whole, and the sparser scan limits the detail of both.
        """
        spacing, extent = (sorted(values)[len(values) // 2] for values in (spacings, extents))
        resolution = min(max(_SPACINGS * spacing, _FINEST * extent), _COARSEST * extent)
        resolution = max(resolution, _MIN_SPACINGS * spacing)
        return cls(spacing, extent, float(f"{resolution:.{_DIGITS}g}"))

    @property
    def unit(self) -> float:
        """Factor from lengths of an indoor scan in metres to lengths of these scans."""
        return self.resolution / INDOOR_RESOLUTION

    @property
    def name(self) -> str:
        """Likely unit of length if this is a scan of a room: metres, centimetres, millimetres, or "unknown".

        This is information for people, from an extent of 0.7 to 7 m; nothing depends on it. Feet and objects
        that are scaled to a size of about 1 are reported as metres.
        """
        for name, metres in _METRES.items():
            room = _ROOM_EXTENTS[0] <= self.extent * metres < _ROOM_EXTENTS[1]
            if room and _ROOM_SPACINGS[0] <= self.spacing * metres < _ROOM_SPACINGS[1]:
                return name
        return "unknown"

    def __str__(self) -> str:
        measured = f"spacing {_three_digits(self.spacing)}, extent {_three_digits(self.extent)}"
        resolution = f"working resolution {_three_digits(self.resolution)}"
        return f"unit of length: {self.name} ({measured}): {resolution}, 1 unit = {_three_digits(self.unit)}"


class Size(NamedTuple):
    """Spacing and extent of a cloud, in its unit."""

    spacing: float
    extent: float


def measure_each(*clouds: Any) -> list[Size]:
    """Measure the sizes of clouds (N, 3)."""
    finite = [_finite(cloud) for cloud in clouds]
    if not any(map(_on_gpu, clouds)):
        return run_each(lambda cloud: Size(spacing(cloud), extent(cloud)), finite)
    # The CPU measures the extents while a GPU measures the spacings, one after the other.
    extents = iterate_each(extent, [_sampled(cloud, _EXTENT_SAMPLE, 0) for cloud in finite])
    return list(map(Size, map(spacing, finite), extents))


def measure(*clouds: Any) -> Scale:
    """Measure the scale of clouds (N, 3) that will be aligned with each other; see `Scale.combine`."""
    if not clouds:
        raise InputError("no clouds to measure: at least one is needed")
    return Scale.combine(*zip(*measure_each(*clouds), strict=True))


def working_resolution(*clouds: Any) -> float:
    """Return the working resolution of clouds (N, 3) that will be aligned, in their unit of length."""
    return measure(*clouds).resolution


def different_units(source_extent: float, target_extent: float) -> str | None:
    """Return a warning if scans of these extents cannot have the same unit of length, else None."""
    small, large = sorted((source_extent, target_extent))
    if large < _UNIT_RATIO * max(small, 1e-300):
        return None
    units = _probable_units(target_extent / max(source_extent, 1e-300))
    return (
        f"the scans seem to have different units: the extent of the source is {source_extent:.3g}, that of "
        f"the target {target_extent:.3g}. Give the scale ({units}"
        '"estimate" finds it), or set the resolution if they are right'
    )


def _probable_units(ratio: float) -> str:
    """Name the units of two scans whose extents have about the ratio of these units, target to source."""
    for name, metres in _UNITS.items():
        for factor, source, target in ((metres, name, "metres"), (1 / metres, "metres", name)):
            if 1 / _SIMILAR < ratio / factor < _SIMILAR:
                return f"{factor:.4g} if the source is in {source} and the target in {target}; "
    return ""


def spacing(points: Any, sample: int = 2000, seed: int = 0) -> float:
    """Measure the median distance from a point to the nearest different one.

    Args:
        points: (N, 3), array or tensor. Points that are not finite are ignored, duplicates count once.
        sample: Number of points to measure at.
        seed: Of the choice of these points.
    """
    rng = np.random.default_rng(seed)
    if _on_gpu(points):
        from wsdesc.cloud.units import reference

        return reference.spacing(points, cpu.random_indices(len(points), sample, rng))
    return cpu.spacing(_finite(points), sample, rng, seed)


def extent(points: Any, sample: int = _EXTENT_SAMPLE, seed: int = 0) -> float:
    """Measure the extent of the scanned surface.

    It is the geometric mean of the sides of a box along the principal axes. Each side leaves out a twentieth
    of the surface at either end. It counts as at least a twentieth of the longest side, as for a plane.
    The geometric mean differs little between a room and a whole floor, which is wider but not higher.
    Surface is counted in cells of a coarse grid with at least two points. So neither the point density, which
    is far higher near a scanner, nor a few outliers change the extent.

    Args:
        points: (N, 3), array or tensor. Points that are not finite are ignored, duplicates count once.
        sample: Number of points to measure with.
        seed: Of the choice of these points.
    """
    return cpu.extent(_sampled(points, sample, seed))


def _sampled(points: Any, sample: int, seed: int) -> np.ndarray:
    """Return at most `sample` finite points (N, 3), chosen at random, as an array on the CPU."""
    points = _finite(points)
    if len(points) > sample:
        chosen = cpu.random_indices(len(points), sample, np.random.default_rng(seed))
        points = points[torch.from_numpy(chosen).to(points.device)] if _on_gpu(points) else points[chosen]
    return np.asarray(points.cpu() if _on_gpu(points) else points)


def _on_gpu(points: Any) -> bool:
    return bool(getattr(points, "is_cuda", False))


def _finite(points: Any) -> Any:
    """Return the finite points (N, 3), N ≥ 1, float32 or float64; tensors on a GPU are cleaned already."""
    if _on_gpu(points):
        return points
    array = as_points(points)
    if array.dtype != np.float32:  # a copy of millions of points in float64 would take time and memory
        array = array.astype(np.float64, copy=False)
    if all_finite(array):
        return array
    array = array[np.isfinite(array).all(axis=1)]
    if len(array) == 0:
        raise InputError("none of the points is finite")
    return array


def _three_digits(value: float) -> str:
    rounded = float(f"{value:.3g}")
    return f"{rounded:,.0f}".replace(",", " ") if abs(rounded) >= 1000 else f"{rounded:g}"
