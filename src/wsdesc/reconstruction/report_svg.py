"""Drawings of a reconstruction's report as SVG: plan view, histogram, legend."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

import numpy as np

from wsdesc.core.geometry import Floats
from wsdesc.reconstruction.edge_result import EdgeResult

_WIDTH, _MARGIN, _MIN_HEIGHT, _MAX_HEIGHT = 960, 40, 180, 640
# Colour blind people can tell these apart, and they differ in lightness: little, medium, large deviation.
_STOPS = np.array([[37, 100, 170], [70, 165, 140], [240, 190, 60], [200, 50, 40]], float)
MAX_DEVIATION = 10.0  # standard deviations of the last colour
_MAX_LABELS = 60


def deviation_colour(deviation: float) -> str:
    """Return the colour of an edge by its deviation, in standard deviations."""
    at = np.clip(deviation / MAX_DEVIATION, 0, 1) ** 0.5 * (len(_STOPS) - 1)
    low = min(int(at), len(_STOPS) - 2)
    rgb = _STOPS[low] + (at - low) * (_STOPS[low + 1] - _STOPS[low])
    return "#" + "".join(f"{round(value):02x}" for value in rgb.tolist())


def plan_view(centres: Mapping[str, Floats], edges: Sequence[EdgeResult], sigmas: Mapping[str, float]) -> str:
    """Draw scans and edges from above.

    Args:
        centres: (3,) position of each scan in the frame.
        edges: Edges between these scans; rejected ones are dashed.
        sigmas: Standard deviation of each scan's position.
    """
    names = list(centres)
    flat = np.stack([centres[name][:2] for name in names])
    low, extent = flat.min(axis=0), np.ptp(flat, axis=0)
    scale = (_WIDTH - 2 * _MARGIN) / max(extent[0], 1e-9)
    scale = min(scale, (_MAX_HEIGHT - 2 * _MARGIN) / max(extent[1], 1e-9))
    height = max(_MIN_HEIGHT, extent[1] * scale + 2 * _MARGIN)
    left = (_WIDTH - extent[0] * scale) / 2
    bottom = (height - extent[1] * scale) / 2
    xy = np.stack([left + (flat[:, 0] - low[0]) * scale, height - bottom - (flat[:, 1] - low[1]) * scale], 1)
    at = dict(zip(names, xy.tolist(), strict=True))

    parts = []
    for edge in sorted(edges, key=lambda edge: (edge.accepted, edge.deviation or 0.0)):
        (x1, y1), (x2, y2) = at[edge.source], at[edge.target]
        ends = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
        what = f"{edge.source} – {edge.target}: "
        if edge.accepted:
            deviation = edge.deviation or 0.0
            style = f'stroke="{deviation_colour(deviation)}" stroke-width="3"'
            what += f"{deviation:.1f} standard deviations, confidence {edge.confidence:.2f}"
        else:
            style, what = 'class="rejected"', what + f"rejected, {edge.rejection}"
        parts.append(f"<line {ends} {style}><title>{escape(what)}</title></line>")
    for name in names:
        x, y = at[name]
        what = f"{name}: position known to {sigmas.get(name, 0.0):.2g} (standard deviation)"
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="6"><title>{escape(what)}</title></circle>')
    if len(names) <= _MAX_LABELS:
        parts += [_label(name, *at[name]) for name in names]
    parts.append(_scale_bar(scale, height))
    label = f"Plan view of {len(names)} scans and {sum(e.accepted for e in edges)} accepted edges"
    return f'<svg viewBox="0 0 {_WIDTH} {height:.0f}" role="img" aria-label="{label}">{"".join(parts)}</svg>'


def legend() -> str:
    """Draw the colours of the deviations."""
    steps = [0, 0.5, 1, 2, 3, 5, 7, 10]
    boxes = [
        f'<rect x="{60 * k}" y="0" width="60" height="12" fill="{deviation_colour(step)}"/>'
        f'<text x="{60 * k + 30}" y="28" text-anchor="middle">{step:g}{"+" if step == 10 else ""}</text>'
        for k, step in enumerate(steps)
    ]
    label = "Colours of edges: blue for small deviations, red for ten standard deviations and more"
    return f'<svg class="legend" viewBox="0 0 480 34" role="img" aria-label="{label}">{"".join(boxes)}</svg>'


def histogram(counts: np.ndarray, width: float, label: str) -> str:
    """Draw bars of equal width with an axis; `width` is that of one bar, in the scans' unit."""
    wide, tall = 640, 180
    step = wide / len(counts)
    top = max(int(counts.max()), 1)
    parts = []
    for k, count in enumerate(counts.tolist()):
        size = tall * count / top
        bounds = (
            f"{k * width:.3g} to {(k + 1) * width:.3g}" if k + 1 < len(counts) else f"over {k * width:.3g}"
        )
        parts.append(
            f'<rect class="bar" x="{k * step + 1:.1f}" y="{tall - size:.1f}" width="{step - 2:.1f}" '
            f'height="{size:.1f}"><title>{bounds}: {count / max(1, counts.sum()):.1%}</title></rect>'
        )
    parts += [
        f'<text x="{k * step:.0f}" y="{tall + 18}" text-anchor="middle">{k * width:.3g}</text>'
        for k in range(0, len(counts) + 1, len(counts) // 4)
    ]
    parts.append(f'<line class="axis" x1="0" x2="{wide}" y1="{tall}" y2="{tall}"/>')
    return (
        f'<svg class="histogram" viewBox="-20 0 {wide + 40} {tall + 24}" role="img" '
        f'aria-label="{escape(label)}">{"".join(parts)}</svg>'
    )


def small_histogram(counts: np.ndarray) -> str:
    """Draw bars for a cell of a table."""
    top, step = max(int(counts.max()), 1), 96 / len(counts)
    bars = "".join(
        f'<rect class="bar" x="{k * step:.1f}" y="{20 - 20 * c / top:.1f}" width="{step - 0.5:.1f}" '
        f'height="{20 * c / top:.1f}"/>'
        for k, c in enumerate(counts.tolist())
        if c
    )
    return f'<svg class="small" viewBox="0 0 96 20" aria-hidden="true">{bars}</svg>'


def _scale_bar(scale: float, height: float) -> str:
    """Draw a line of a round length in the lower left corner."""
    power = 10.0 ** np.floor(np.log10(160 / scale))
    length = max(step * power for step in (1, 2, 5) if step * power * scale <= 160)
    y = height - 12
    return (
        f'<line class="axis" x1="12" x2="{12 + length * scale:.1f}" y1="{y:.1f}" y2="{y:.1f}"/>'
        f'<text x="12" y="{y - 6:.1f}">{length:g}</text>'
    )


def _label(name: str, x: float, y: float) -> str:
    """Write a name beside a scan, at the side with more room."""
    right = x < 0.8 * _WIDTH
    anchor = "start" if right else "end"
    return (
        f'<text class="label" x="{x + (9 if right else -9):.1f}" y="{y - 7:.1f}" text-anchor="{anchor}">'
        f"{escape(_short(name))}</text>"
    )


def _short(name: str) -> str:
    stem = name.rsplit("/", 1)[-1]
    return stem if len(stem) <= 18 else stem[:8] + "…" + stem[-8:]
