"""Colours of scans, of confidences, and of the points in a file."""

from __future__ import annotations

import colorsys
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from wsdesc.cloud.formats.attributes import COLORS, standard_attributes

Colour = tuple[int, int, int]

SOURCE, TARGET = (242, 128, 26), (41, 115, 199)  # orange and blue
GOOD, BAD = (40, 160, 70), (214, 48, 49)
# From 0 to the end of the scale: blue, teal, green, yellow, red.
HEAT: tuple[Colour, ...] = ((44, 110, 182), (0, 190, 190), (110, 205, 110), (245, 205, 70), (215, 30, 35))
NO_PARTNER = (205, 205, 205)
_GOLDEN_RATIO = 0.618034
_DARKEST, _BRIGHTEST = 0.02, 0.98  # quantiles of intensities that become black and white


class OwnColours(NamedTuple):
    """Colours that the file of a scan gives its points."""

    kind: str  # "colour" or "intensity"
    rgb: NDArray[np.uint8]  # (N, 3)


def own_colours(attributes: Mapping[str, NDArray], index: NDArray[np.int64]) -> OwnColours | None:
    """Return the colours of the points that `index` selects, or their intensities as grey; None without."""
    chosen = {name: values[index] for name, values in attributes.items()}
    standard = standard_attributes(chosen)
    if all(name in standard for name in COLORS):
        rgb = np.stack([standard[name] for name in COLORS], axis=1)  # uint8 or uint16
        return OwnColours("colour", (rgb >> 8 if rgb.dtype == np.uint16 else rgb).astype(np.uint8))
    intensity = standard.get("intensity")
    if intensity is None or intensity.ndim != 1 or intensity.dtype.kind not in "iuf":
        return None
    values = np.nan_to_num(intensity.astype(np.float64), posinf=0.0, neginf=0.0)
    low, high = np.quantile(values, [_DARKEST, _BRIGHTEST])
    if not high > low:
        return None
    grey = np.rint(235 * np.clip((values - low) / (high - low), 0, 1)).astype(np.uint8)  # white is the page
    return OwnColours("intensity", np.repeat(grey[:, None], 3, axis=1))


def confidence_colour(confidence: float) -> Colour:
    """Return red for 0, yellow for 0.5, green for 1."""
    return _from_hsv(0.36 * min(max(confidence, 0.0), 1.0), 0.85, 0.82)


def scan_colour(number: int) -> Colour:
    """Return a colour that differs clearly from those of the neighbouring numbers."""
    return _from_hsv((0.08 + _GOLDEN_RATIO * number) % 1.0, 0.72, 0.85)


def _from_hsv(hue: float, saturation: float, value: float) -> Colour:
    r, g, b = colorsys.hsv_to_rgb(hue, saturation, value)
    return round(255 * r), round(255 * g), round(255 * b)
