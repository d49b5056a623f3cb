"""Draw pictures of two scans before and after registration."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from wsdesc.cloud.convert import Scan, as_cloud
from wsdesc.core.atomic import atomic_write
from wsdesc.core.errors import InputError
from wsdesc.core.geometry import Floats, check_rigid, transform
from wsdesc.core.planes import normals
from wsdesc.view.geometry import NORMAL_NEIGHBOURS, median_spacing, principal_axes

_SOURCE = np.array([0.95, 0.50, 0.10])
_TARGET = np.array([0.16, 0.45, 0.78])
INK = "#333333"
_BACKGROUND = 1.0  # white; distant points fade into it
_MAX_POINTS = 14_000  # per scan; more would hide each other at this size
_INCHES, _DPI = (12.0, 7.6), 110
VIEWS = ((0.0, -90.0), (0.0, 0.0), (35.0, -32.0))  # rotation about the third axis, then tilt, in degrees


def before_after(
    source: Scan,
    target: Scan,
    T_target_source: ArrayLike,
    path: str | os.PathLike[str],
    title: str = "",
    *,
    metres: bool = False,
) -> None:
    """Draw two scans before (upper row) and after registration (lower row), from three directions.

    The columns show the scans from above, from the side and from a corner, relative to the principal axes of
    the aligned scans. The source is orange, the target blue.

    Args:
        source: Scan in any form, such as points (N, 3).
        target: Scan in any form, such as points (M, 3).
        T_target_source: Pose (4, 4).
        path: The .png file to write.
        title: Text above the picture.
        metres: Whether the unit is the metre; the scale bars show it then.
    """
    with atomic_write(path) as temporary:
        clouds = (_sample(source, "source"), _sample(target, "target"))
        figure = _draw(*clouds, check_rigid(T_target_source, "T_target_source"), title, metres)
        figure.savefig(temporary, dpi=_DPI, format="png")


def _sample(scan: Scan, name: str) -> Floats:
    try:
        points = as_cloud(scan).points
    except InputError as error:
        raise InputError(f"the {name} cannot be drawn: {error}") from error
    # A random selection: a regular stride would draw the scanner's pattern.
    return points[np.random.default_rng(0).permutation(len(points))[:_MAX_POINTS]]


def _draw(source: Floats, target: Floats, T: Floats, title: str, metres: bool) -> Figure:
    aligned = transform(source, T)
    axes = principal_axes(np.concatenate([aligned, target]))
    figure = Figure(figsize=_INCHES, facecolor="white")
    FigureCanvasAgg(figure)
    for row, (name, cloud) in enumerate((("before", source), ("after", aligned))):
        points = np.concatenate([cloud, target])
        colours = np.repeat([_SOURCE, _TARGET], [len(cloud), len(target)], axis=0)
        # Each scan has its own normals: common ones would be wrong where two surfaces meet.
        shading = [normals(c, neighbours=NORMAL_NEIGHBOURS) for c in (cloud, target)]
        rotated_normals = np.concatenate(shading) @ axes
        spacing = float(np.median([median_spacing(cloud), median_spacing(target)]))
        points = (points - np.median(points, axis=0)) @ axes
        for column, (turn, tilt) in enumerate(VIEWS):
            left, bottom = 0.035 + 0.322 * column, 0.475 - 0.455 * row
            panel = figure.add_axes((left, bottom, 0.315, 0.445))
            R = view_rotation(turn, tilt)
            wide, tall = draw_points(
                panel, points @ R.T, rotated_normals @ R.T, colours, spacing, perspective=column == 2
            )
            if column < 2:
                _scale_bar(panel, wide, tall, metres)
        figure.text(
            0.018, 0.70 - 0.455 * row, name, rotation=90, size=10, color=INK, ha="center", va="center"
        )
    figure.text(0.035, 0.962, title, size=10, color=INK, va="center")
    figure.text(0.925, 0.962, "source", size=10, color=_SOURCE, va="center", ha="right", weight="bold")
    figure.text(0.985, 0.962, "target", size=10, color=_TARGET, va="center", ha="right", weight="bold")
    return figure


def draw_points(
    panel: Any, points: Floats, normals: Floats, colours: Floats, spacing: float, perspective: bool
) -> tuple[float, float]:
    """Draw points, the farthest first, and return the width and height of the panel in their unit.

    Args:
        panel: Axes of matplotlib.
        points: (N, 3) with x to the right, y up and z towards the eye.
        normals: (N, 3) for the shading.
        colours: (N, 3), 0 … 1.
        spacing: Median distance between points.
        perspective: Whether near points are drawn farther apart.
    """
    low, high = np.quantile(points, [0.004, 0.996], axis=0)
    size = float((high - low).max()) or 1.0
    flat = points[:, :2]
    if perspective:
        flat = flat / (1 - np.clip(points[:, 2:] - high[2], -9 * size, size / 2) / (2.5 * size))
        low, high = np.quantile(flat, [0.004, 0.996], axis=0)
    width, height = panel.figure.get_size_inches() * panel.get_position().size
    aspect = width / height
    tall = 1.08 * max(high[1] - low[1], (high[0] - low[0]) / aspect, 1e-9)
    (x, y), wide = (low[:2] + high[:2]) / 2, tall * aspect

    near = np.clip((points[:, 2] - points[:, 2].min()) / (np.ptp(points[:, 2]) or 1.0), 0, 1)[:, None]
    light = np.array([0.35, 0.55, 0.76])
    lit = 0.5 + 0.5 * np.abs(normals @ light)[:, None]
    shaded = colours * lit
    shaded = shaded + (0.32 * (1 - near)) * (_BACKGROUND - shaded)
    pixels = np.clip(1.45 * spacing / tall * height * _DPI, 1.3, 6.0)
    order = np.argsort(points[:, 2], kind="stable")
    panel.scatter(*flat[order].T, c=shaded[order], s=(pixels * 72 / _DPI) ** 2, linewidths=0)
    panel.set_xlim(x - wide / 2, x + wide / 2)
    panel.set_ylim(y - tall / 2, y + tall / 2)
    panel.axis("off")
    return wide, tall


def _scale_bar(panel: Any, wide: float, tall: float, metres: bool) -> None:
    """Draw a line of a round length in the lower left corner."""
    power = 10.0 ** np.floor(np.log10(0.25 * wide))
    length = max(step * power for step in (1, 2, 5) if step * power <= 0.25 * wide)
    name = f"{length:g}"
    if metres:
        name = f"{length:g} m" if length >= 1 else f"{100 * length:g} cm"
    x, y = panel.get_xlim()[0] + 0.02 * wide, panel.get_ylim()[0] + 0.03 * tall
    panel.plot([x, x + length], [y, y], color=INK, linewidth=1.6, solid_capstyle="butt")
    panel.text(x + length / 2, y + 0.015 * tall, name, size=7.5, color=INK, ha="center", va="bottom")


def view_rotation(turn: float, tilt: float) -> Floats:
    """Return a rotation (3, 3) whose rows point right, up and towards the eye.

    With zero angles the eye is in front of the second axis, and the third axis points up.
    """
    a, b = np.deg2rad([turn, tilt])
    spin = np.array([[np.cos(a), -np.sin(a), 0], [np.sin(a), np.cos(a), 0], [0, 0, 1]])
    lean = np.array([[1, 0, 0], [0, -np.sin(b), np.cos(b)], [0, -np.cos(b), -np.sin(b)]])
    return np.asarray(lean @ spin)
