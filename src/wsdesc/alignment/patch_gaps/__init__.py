"""Gaps between patches of two aligned surfaces: do the scans show the same surfaces, or only equal ones?

At a right pose, the gaps between single points of two scans are noise, which averages out over a patch. At a
wrong pose in a repetitive place, one scan lies on an equal part of the place. Equal parts differ by
millimetres: a door is open a little further, a table was moved. These gaps are the same all over a patch, so
their means stay, even if they are far smaller than the noise of a point.
"""

from __future__ import annotations

import numpy as np

from wsdesc.alignment.patch_gaps import cpu, cuda
from wsdesc.alignment.surface import Surface, for_backend
from wsdesc.cloud.units import INDOOR_RESOLUTION
from wsdesc.core.geometry import Floats, inverse

_DISTANCE = 2.0  # resolutions within which points have a partner
_SIDE = 8.0  # resolutions: side of a patch
_MIN_POINTS, _MIN_PATCHES = 6, 8  # of a patch, and of an overlap that is measured
_CELLS = 1 << 20  # patches along an axis


def measure_patch_gap(
    source: Surface, target: Surface, T_target_source: Floats, *, resolution: float = INDOOR_RESOLUTION
) -> float | None:
    """Measure the median distance between patches of two surfaces, in their unit.

    Args:
        source, target: Surfaces of one backend.
        T_target_source: (4, 4) refined pose.
        resolution: Working resolution, in the unit of the surfaces.

    Returns:
        The mean of both directions; None if too few patches overlap.

    Raises:
        InputError: The surfaces are on two devices.
    """
    find_gaps = for_backend(source, target, cpu=cpu.find_gaps, cuda=cuda.find_gaps)
    medians = []
    for first, second, T in ((source, target, T_target_source), (target, source, inverse(T_target_source))):
        means = _patch_means(*find_gaps(first, second, T, _DISTANCE * resolution), _SIDE * resolution)
        if len(means) < _MIN_PATCHES:
            return None
        medians.append(float(np.median(np.abs(means))))
    return sum(medians) / 2


def _patch_means(points: Floats, normals: Floats, gaps: Floats, side: float) -> Floats:
    """Return the mean gap (P,) of each patch: points (M, 3) of one cell, whose normals share a main axis."""
    axis = np.abs(normals).argmax(axis=1)
    sign = np.sign(np.take_along_axis(normals, axis[:, None], axis=1)[:, 0])  # normals have arbitrary signs
    x, y, z = (np.floor(points / side).astype(np.int64) % _CELLS).T
    key = ((x * _CELLS + y) * _CELLS + z) * 3 + axis if len(points) else x
    _, patch, counts = np.unique(key, return_inverse=True, return_counts=True)
    means = np.bincount(patch.ravel(), sign * gaps, len(counts)) / counts
    return np.asarray(means[counts >= _MIN_POINTS])
