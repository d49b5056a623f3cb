"""Names and types of colours and normals in different formats, for writing in another one than was read."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

COLORS = ("red", "green", "blue")
NORMALS = ("nx", "ny", "nz")
_COLOR_NAMES = (
    ("colorRed", "colorGreen", "colorBlue"),
    ("Red", "Green", "Blue"),
    ("r", "g", "b"),
    ("R", "G", "B"),
    ("diffuse_red", "diffuse_green", "diffuse_blue"),
)
_NORMAL_NAMES = (
    ("normal_x", "normal_y", "normal_z"),
    ("normal_0", "normal_1", "normal_2"),
    ("normals_0", "normals_1", "normals_2"),
    ("NormalX", "NormalY", "NormalZ"),
    ("Nx", "Ny", "Nz"),
    ("NX", "NY", "NZ"),
)
NORMAL_COLUMNS = (NORMALS, *_NORMAL_NAMES)  # three columns
NORMAL_ARRAYS = ("normals", "normal", "Normals")  # one array (N, 3)
_LAS_NAMES = ("intensity", "classification", "return_number", "number_of_returns", "gps_time")
_PACKED = ("rgb", "rgba")  # one number of 32 bits, as in PCD
_COLOR_ARRAYS = ("colors", "color", "rgb", "rgba")  # one array (N, 3 or 4)
VECTORS = {"colors": COLORS, **dict.fromkeys(NORMAL_ARRAYS, NORMALS)}


def standard_attributes(attributes: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the attributes with colours as red, green and blue, normals as nx, ny and nz, and intensity.

    Colours become uint8, or uint16 if they need it. Opacity is dropped.
    """
    result: dict[str, np.ndarray] = {}
    for given, values in attributes.items():
        plain = given.lower().removeprefix("scalar_").replace(" ", "_")  # CloudCompare writes the prefix
        name = plain if plain in _LAS_NAMES and plain not in attributes and plain not in result else given
        if name in _PACKED and values.ndim == 1 and values.dtype.itemsize == 4:
            result |= _unpack(values)
        elif name.lower() in _COLOR_ARRAYS and values.shape[1:] in ((3,), (4,)) and "red" not in result:
            result |= dict(zip(COLORS, values.T[:3], strict=True))
        elif name in VECTORS and values.shape[1:] == (3,):
            result |= dict(zip(VECTORS[name], values.T, strict=True))
        else:
            result[name] = values
    for standard, choices in ((COLORS, _COLOR_NAMES), (NORMALS, _NORMAL_NAMES)):
        names = next((names for names in choices if all(name in result for name in names)), None)
        if names is not None and not any(name in result for name in standard):
            renamed = dict(zip(names, standard, strict=True))
            result = {renamed.get(name, name): values for name, values in result.items()}
    if all(name in result for name in COLORS):
        result |= dict(zip(COLORS, _whole_colors([result[name] for name in COLORS]), strict=True))
    return result


def pcd_attributes(attributes: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the attributes with the names and types of the Point Cloud Library: rgb, and normal_x, …"""
    result = standard_attributes(attributes)
    if all(name in result for name in COLORS):
        red, green, blue = (_as_uint8(result.pop(name)).astype(np.uint32) for name in COLORS)
        result["rgb"] = (red << 16 | green << 8 | blue).view(np.float32)
    for name, other in zip(NORMALS, _NORMAL_NAMES[0], strict=True):
        if name in result:
            result[other] = result.pop(name).astype(np.float32)
    return result


def las_attributes(attributes: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the attributes with the types of LAS: colours and intensity of 16 bits."""
    result = standard_attributes(attributes)
    for name in COLORS:
        if name in result and result[name].dtype == np.uint8:
            result[name] = result[name].astype(np.uint16) * 257
    intensity = result.get("intensity")
    if intensity is not None and intensity.ndim == 1 and intensity.dtype.kind == "f":
        if bool((intensity % 1 != 0).any()) and intensity.min() >= 0 and intensity.max() <= 1:
            result["intensity"] = (intensity * 65535).round().astype(np.uint16)
        elif intensity.min() >= 0 and intensity.max() <= 65535:
            result["intensity"] = intensity.round().astype(np.uint16)
    return result


def narrow_colors(attributes: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the attributes with colours of 8 bits, as most programs expect them."""
    result = standard_attributes(attributes)
    if all(name in result for name in COLORS):
        result |= {name: _as_uint8(result[name]) for name in COLORS}
    return result


def _unpack(values: np.ndarray) -> dict[str, np.ndarray]:
    bits = np.ascontiguousarray(values).view(np.uint32)
    return {
        name: (bits >> shift & 255).astype(np.uint8) for name, shift in zip(COLORS, (16, 8, 0), strict=True)
    }


def _whole_colors(channels: list[np.ndarray]) -> list[np.ndarray]:
    """Convert real numbers, from 0 to 1 or whole ones, to uint8 or uint16; leave others as they are."""
    if any(channel.dtype.kind != "f" for channel in channels):
        return channels
    table = np.stack(channels)  # (3, N)
    if not table.size or not np.isfinite(table).all() or table.min() < 0 or table.max() > 65535:
        return channels
    whole = bool((table % 1 == 0).all())
    if table.max() <= 1 and not (whole and table.max() == 0):
        return list((table * 255).round().astype(np.uint8))
    return list(table.astype(np.uint8 if table.max() < 256 else np.uint16)) if whole else channels


def _as_uint8(channel: np.ndarray) -> np.ndarray:
    """Reduce 16 bits to 8 if they are used."""
    if channel.dtype.kind == "u" and channel.dtype.itemsize == 2 and len(channel) and channel.max() > 255:
        return (channel >> 8).astype(np.uint8)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.clip(np.nan_to_num(channel), 0, 255), np.uint8)
