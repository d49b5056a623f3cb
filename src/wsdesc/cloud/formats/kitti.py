"""KITTI: bin files without a header, float32 × 4 (x, y, z, intensity), or × 5 with the ring, as in nuScenes.

The file does not state which. Five columns are assumed for names that end in .pcd.bin, or if the fifth
holds small whole numbers; then the other number is tried. The coordinates must be plausible and the
intensity not negative, so that other binary files are rejected.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from wsdesc.cloud.formats import SINGLE, FileContent
from wsdesc.cloud.formats.columns import to_columns
from wsdesc.core.errors import InputError

_NAMES = ("x", "y", "z", "intensity", "ring")
_FLOAT32 = 4  # bytes
_FARTHEST = 1e5  # coordinate, metres; laser scanners on vehicles reach some hundred
_BRIGHTEST = 1e6  # intensity
_MAX_RING = 1024
_CHECKED = 100_000  # points whose plausibility is checked


def read(path: Path, faces: bool) -> FileContent:
    size = path.stat().st_size
    for width in _widths(path):
        if size % (_FLOAT32 * width) == 0:
            table = np.fromfile(path, "<f4").reshape(-1, width)
            if _is_plausible(table):
                attributes = {name: table[:, i].copy() for i, name in enumerate(_NAMES[3:width], start=3)}
                return FileContent(table[:, :3].astype(np.float64), attributes, storage=SINGLE)
    raise ValueError(
        "neither 4 float32 per point (KITTI) nor 5 (nuScenes) give plausible coordinates and intensities; "
        "convert it to npy or ply"
    )


def _widths(path: Path) -> tuple[int, int]:
    """Return the numbers of columns to try, the likelier one first."""
    if path.name.lower().endswith(".pcd.bin"):
        return 5, 4
    head = np.fromfile(path, "<f4", 5 * _CHECKED)
    ring = head[: len(head) // 5 * 5].reshape(-1, 5)[:, 4]
    with np.errstate(invalid="ignore"):
        whole = bool(len(ring) > 1 and ((ring % 1 == 0) & (ring >= 0) & (ring < _MAX_RING)).all())
    return (5, 4) if whole else (4, 5)


def _is_plausible(table: np.ndarray) -> bool:
    """Return whether the rows (N, 4 or 5) look like points; a few may be NaN."""
    rows = table[:: max(1, len(table) // _CHECKED)]
    with np.errstate(invalid="ignore"):
        far = (np.abs(rows[:, :3]) > _FARTHEST).any()
        dark = (rows[:, 3] < 0).any() or (rows[:, 3] > _BRIGHTEST).any()
        tiny = (rows[:, :3] != 0) & (np.abs(rows[:, :3]) < 1e-30)  # integers that are read as float32
    return not (far or dark or tiny.any()) and bool(np.isfinite(rows[:, :3]).all(axis=1).mean() > 0.5)


def write(path: Path, points: np.ndarray, attributes: Mapping[str, np.ndarray]) -> None:
    """Write float32 × 4, or × 5 if there is a ring; intensity is 0 if there is none."""
    columns = to_columns(points, attributes)
    width = 5 if "ring" in columns else 4
    unsupported = columns.keys() - set(_NAMES)
    if unsupported:
        raise InputError(f"bin files store intensity and ring only: remove {', '.join(sorted(unsupported))}")
    table = np.zeros((len(points), width), "<f4")
    for i, name in enumerate(_NAMES[:width]):
        if name in columns:
            table[:, i] = columns[name]
    table.tofile(path)
