"""Pictures of alignments, for reports and for a quick look without a window."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray

from wsdesc.core.atomic import atomic_write
from wsdesc.core.errors import InputError
from wsdesc.view.geometry import main_axes, surface_normals, usual_spacing

Points = NDArray[np.float64]

_SOURCE = np.array([0.95, 0.50, 0.10])
_TARGET = np.array([0.16, 0.45, 0.78])
INK = "#333333"
_PAPER = 1.0  # what distance fades into
_KEPT = 14_000  # points of a cloud; more would hide each other at this size
_INCHES, _DPI = (12.0, 7.6), 110
VIEWS = ((0.0, -90.0), (0.0, 0.0), (35.0, -32.0))  # turn about the third axis, then tilt, in degrees


def before_after(
    source: ArrayLike,
    target: ArrayLike,
    T_target_source: ArrayLike,
    path: str | os.PathLike[str],
    title: str = "",
    *,
    metres: bool = False,
) -> None:
    """Write a PNG of two clouds, (N, 3) and (M, 3), as they came (upper row) and aligned (lower row).

    The columns look from above, from the side and from a corner, with respect to the main directions of
    the aligned clouds. The source is orange, the target blue. The scale bars say metres only where told that
    the clouds are in metres.
    """
    with atomic_write(path) as temporary:
        clouds = (_points(source, "source"), _points(target, "target"))
        figure = _draw(*clouds, _transform(T_target_source), title, metres)
        figure.savefig(temporary, dpi=_DPI, format="png")


def _points(cloud: ArrayLike, name: str) -> Points:
    points = np.asarray(cloud, dtype=np.float64)
    if points.ndim != 2 or points.shape[1] != 3 or not len(points) or not np.isfinite(points).all():
        raise InputError(f"the {name} cannot be drawn: it needs an array (N, 3) of finite numbers, N > 0")
    # At random: an even stride would draw the pattern of the scanner.
    return points[np.random.default_rng(0).permutation(len(points))[:_KEPT]]


def _transform(T_target_source: ArrayLike) -> Points:
    T = np.asarray(T_target_source, dtype=np.float64)
    if T.shape != (4, 4) or not np.isfinite(T).all():
        raise InputError("the alignment cannot be drawn: T_target_source must be a finite (4, 4) matrix")
    return T


def _draw(source: Points, target: Points, T: Points, title: str, metres: bool) -> Figure:
    moved = source @ T[:3, :3].T + T[:3, 3]
    axes = main_axes(np.concatenate([moved, target]))
    figure = Figure(figsize=_INCHES, facecolor="white")
    FigureCanvasAgg(figure)
    for row, (name, cloud) in enumerate((("before", source), ("after", moved))):
        points = np.concatenate([cloud, target])
        colours = np.repeat([_SOURCE, _TARGET], [len(cloud), len(target)], axis=0)
        # Each cloud has its own normals: where two surfaces meet, a common one would belong to neither.
        normals = np.concatenate([surface_normals(cloud), surface_normals(target)]) @ axes
        spacing = float(np.median([usual_spacing(cloud), usual_spacing(target)]))
        points = (points - np.median(points, axis=0)) @ axes
        for column, (turn, tilt) in enumerate(VIEWS):
            left, bottom = 0.035 + 0.322 * column, 0.475 - 0.455 * row
            panel = figure.add_axes((left, bottom, 0.315, 0.445))
            R = view_rotation(turn, tilt)
            wide, tall = draw_points(
                panel, points @ R.T, normals @ R.T, colours, spacing, perspective=column == 2
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
    panel: Any, points: Points, normals: Points, colours: Points, spacing: float, perspective: bool
) -> tuple[float, float]:
    """Draw points whose x goes right, y up and z towards the eye, the farthest first; width and height."""
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
    shaded = shaded + (0.32 * (1 - near)) * (_PAPER - shaded)
    pixels = np.clip(1.45 * spacing / tall * height * _DPI, 1.3, 6.0)
    order = np.argsort(points[:, 2], kind="stable")
    panel.scatter(*flat[order].T, c=shaded[order], s=(pixels * 72 / _DPI) ** 2, linewidths=0)
    panel.set_xlim(x - wide / 2, x + wide / 2)
    panel.set_ylim(y - tall / 2, y + tall / 2)
    panel.axis("off")
    return wide, tall


def _scale_bar(panel: Any, wide: float, tall: float, metres: bool) -> None:
    """A line of a round length in the lower left corner."""
    power = 10.0 ** np.floor(np.log10(0.25 * wide))
    length = max(step * power for step in (1, 2, 5) if step * power <= 0.25 * wide)
    name = f"{length:g}"
    if metres:
        name = f"{length:g} m" if length >= 1 else f"{100 * length:g} cm"
    x, y = panel.get_xlim()[0] + 0.02 * wide, panel.get_ylim()[0] + 0.03 * tall
    panel.plot([x, x + length], [y, y], color=INK, linewidth=1.6, solid_capstyle="butt")
    panel.text(x + length / 2, y + 0.015 * tall, name, size=7.5, color=INK, ha="center", va="bottom")


def view_rotation(turn: float, tilt: float) -> Points:
    """Rows: right, up and towards the eye, for an eye before the second axis with the third one up."""
    a, b = np.deg2rad([turn, tilt])
    spin = np.array([[np.cos(a), -np.sin(a), 0], [np.sin(a), np.cos(a), 0], [0, 0, 1]])
    lean = np.array([[1, 0, 0], [0, -np.sin(b), np.cos(b)], [0, -np.cos(b), -np.sin(b)]])
    return np.asarray(lean @ spin)
