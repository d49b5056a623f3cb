"""Gaps between patches of two aligned surfaces: do the scans show the same surfaces, or only equal ones?

At a right pose, the gaps between single points of two scans are noise, which averages out over a patch. At a
wrong pose in a repetitive place, one scan lies on an equal part of the place. Equal parts differ by
millimetres: a door is open a little further, a table was moved. These gaps are the same all over a patch, so
their means stay, even if they are far smaller than the noise of a point.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from wsdesc.alignment.patch_gaps import cpu, cuda
from wsdesc.alignment.surface import Surface, for_backend
from wsdesc.cloud.units import INDOOR_RESOLUTION
from wsdesc.core.geometry import Floats, inverse

_DISTANCE = 2.0  # resolutions within which points have a partner
_SIDE, _LEAST_NOISE = 8.0, 0.004  # resolutions: side of a patch, least deviation of points from it
_SMALL_SIDE, _SMALL_NOISE = 4.0, 0.02  # the same of `measure_large_gaps`
_MIN_POINTS, _MIN_PATCHES = 6, 8  # of a patch, and of an overlap that is measured
_CELLS = 1 << 20  # patches along an axis
_LARGE = 0.9  # quantile of the gaps that `measure_large_gaps` returns


class PatchGap(NamedTuple):
    """How far the patches of two aligned surfaces are apart: medians of all patches."""

    distance: float  # between two patches, in the unit of the surfaces
    significance: float  # the same in standard errors, which are estimated from the noise inside each patch


def measure_patch_gap(
    source: Surface, target: Surface, T_target_source: Floats, *, resolution: float = INDOOR_RESOLUTION
) -> PatchGap | None:
    """Measure the gaps between the patches of two surfaces.

    Args:
        source, target: Surfaces of one backend.
        T_target_source: (4, 4) refined pose.
        resolution: Working resolution, in the unit of the surfaces.

    Returns:
        The mean of both directions; None if too few patches overlap.

    Raises:
        InputError: The surfaces are on two devices.
    """
    medians = []
    for first, second, T in ((source, target, T_target_source), (target, source, inverse(T_target_source))):
        patches = _find_patches(first, second, T, _SIDE, resolution)
        if patches is None:
            return None
        significances = patches.significance(_LEAST_NOISE * resolution)
        medians.append((np.median(patches.gaps), np.median(significances)))
    (gap, significance), (gap_back, significance_back) = medians
    return PatchGap(float(gap + gap_back) / 2, float(significance + significance_back) / 2)


def measure_large_gaps(
    source: Surface, target: Surface, T_target_source: Floats, *, resolution: float = INDOOR_RESOLUTION
) -> float | None:
    """Measure the gap between the patches of two surfaces that one in ten patches of the source exceeds.

    Equal parts of a place share most surfaces, such as the floor and the ceiling. The few others differ.

    Args:
        source, target: Surfaces of one backend.
        T_target_source: (4, 4) refined pose.
        resolution: Working resolution, in the unit of the surfaces.

    Returns:
        The gap in standard errors; None if too few patches overlap.

    Raises:
        InputError: The surfaces are on two devices.
    """
    patches = _find_patches(source, target, T_target_source, _SMALL_SIDE, resolution)
    if patches is None:
        return None
    return float(np.quantile(patches.significance(_SMALL_NOISE * resolution), _LARGE))


class _Patches(NamedTuple):
    """P patches of an overlap."""

    gaps: Floats  # (P,) distances between the means of both scans
    deviations: Floats  # (P,) standard deviations of the distances of single points
    points: NDArray[np.intp]  # (P,) number of points

    def significance(self, least_noise: float) -> Floats:
        """Return the gaps (P,) in standard errors; points deviate from a patch by at least `least_noise`."""
        return self.gaps / (np.maximum(self.deviations, least_noise) / np.sqrt(self.points))


def _find_patches(
    source: Surface, target: Surface, T_target_source: Floats, side: float, resolution: float
) -> _Patches | None:
    """Find the patches of the source, with a side in resolutions, near the target; None if there are few."""
    find_gaps = for_backend(source, target, cpu=cpu.find_gaps, cuda=cuda.find_gaps)
    gaps = find_gaps(source, target, T_target_source, _DISTANCE * resolution)
    patches = _patches(*gaps, side * resolution)
    return patches if len(patches.gaps) >= _MIN_PATCHES else None


def _patches(points: Floats, normals: Floats, gaps: Floats, side: float) -> _Patches:
    """Form patches of points (M, 3) in one cell whose normals (M, 3) share a main axis; `gaps` are (M,)."""
    axis = np.abs(normals).argmax(axis=1)
    sign = np.sign(np.take_along_axis(normals, axis[:, None], axis=1)[:, 0])  # normals have arbitrary signs
    x, y, z = (np.floor(points / side).astype(np.int64) % _CELLS).T
    key = ((x * _CELLS + y) * _CELLS + z) * 3 + axis if len(points) else x
    _, patch, counts = np.unique(key, return_inverse=True, return_counts=True)
    means = np.bincount(patch.ravel(), sign * gaps, len(counts)) / counts
    squares = np.bincount(patch.ravel(), gaps * gaps, len(counts)) / counts
    deviations = np.sqrt(np.maximum(squares - means * means, 0))
    used = counts >= _MIN_POINTS
    return _Patches(np.abs(means)[used], deviations[used], counts[used])
