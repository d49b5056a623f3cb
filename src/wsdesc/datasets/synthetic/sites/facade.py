"""Facades of equal bays: windows, doors, arches, and protruding parts.

A bay lies in the plane y = 0, centred at the z axis; the street is at -y and the interior at +y.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from wsdesc.datasets.synthetic.shapes import Triangles, bar, box, join, place, sheet, upright
from wsdesc.datasets.synthetic.sites.site import perturb

LAP = 0.02  # metres by which bays overlap: the tolerances of building must not open gaps between them


@dataclass(frozen=True)
class Style:
    """Sizes of one building, in metres."""

    bay: float
    storey: float
    ground: float  # height of the ground storey
    storeys: int  # above the ground storey
    window: tuple[float, float]  # width and height
    sill: float
    reveal: float
    surround: float  # width of the moulding around a window; 0: none
    cornice: float  # depth
    balcony: float  # depth; 0: none
    crossbars: int
    shutters: bool
    curtain: float  # distance of the curtain or blind behind the pane

    @classmethod
    def draw(cls, rng: np.random.Generator, storeys: tuple[int, int] = (1, 5)) -> Style:
        """Draw a random style."""
        bay, storey = rng.uniform(2.3, 4.6), rng.uniform(2.7, 3.9)
        width = bay * rng.uniform(0.3, 0.65)
        high = min(storey * rng.uniform(0.42, 0.68), 2.4)
        return cls(
            bay=bay,
            storey=storey,
            ground=storey * rng.uniform(1.0, 1.35),
            storeys=int(rng.integers(*storeys)),
            window=(width, high),
            sill=rng.uniform(0.15, 0.95) * (storey - high - 0.3),
            reveal=rng.uniform(0.08, 0.35),
            surround=rng.uniform(0.06, 0.18) if rng.random() < 0.5 else 0.0,
            cornice=rng.uniform(0.1, 0.6) if rng.random() < 0.7 else 0.0,
            balcony=rng.uniform(0.7, 1.5) if rng.random() < 0.3 else 0.0,
            crossbars=int(rng.integers(0, 3)),
            shutters=bool(rng.random() < 0.2),
            curtain=rng.uniform(0.15, 0.8),
        )

    @property
    def height(self) -> float:
        """Height of the eaves."""
        return self.ground + self.storeys * self.storey


def pierced(width: float, height: float, hole: tuple[float, float, float, float], reveal: float) -> Triangles:
    """Build a wall with a rectangular hole (x from, x to, z from, z to) and the reveal of the hole."""
    x0, x1, z0, z1 = hole
    h, height = width / 2 + LAP, height + LAP
    parts = [upright(-h, x0, 0, height), upright(x1, h, 0, height), upright(x0, x1, z1, height)]
    if z0 > 0:
        parts += [upright(x0, x1, 0, z0), sheet(np.array([[[x, 0, z0], [x, reveal, z0]] for x in (x0, x1)]))]
    parts.append(sheet(np.array([[[x, 0, z1], [x, reveal, z1]] for x in (x0, x1)])))
    parts += [sheet(np.array([[[x, 0, z], [x, reveal, z]] for z in (z0, z1)])) for x in (x0, x1)]
    return join(*parts)


def arched(width: float, height: float, opening: float, springing: float, depth: float) -> Triangles:
    """Build a wall with a round arch that starts at the height `springing`, and the soffit of the arch."""
    r, h, height = opening / 2, width / 2 + LAP, height + LAP
    angle = np.linspace(np.pi, 0, 13)
    x, z = r * np.cos(angle), springing + r * np.sin(angle)
    above = np.stack([np.stack([x, 0 * x, z], -1), np.stack([x, 0 * x, np.full_like(x, height)], -1)], 1)
    edge_x, edge_z = np.concatenate([[-r], x, [r]]), np.concatenate([[0.0], z, [0.0]])
    soffit = np.stack([np.stack([edge_x, np.full_like(edge_x, y), edge_z], -1) for y in (0.0, depth)], 1)
    return join(upright(-h, -r, 0, height), upright(r, h, 0, height), sheet(above), sheet(soffit))


def window_bay(style: Style, height: float) -> tuple[Triangles, Triangles]:
    """Build a bay with a window, and its glass."""
    w, high = style.window
    high = min(high, height - 0.4)
    z0 = min(max(style.sill, 0.1), height - high - 0.25)
    x0, x1, z1 = -w / 2, w / 2, z0 + high
    pane = style.reveal * 0.8
    parts = [pierced(style.bay, height, (x0, x1, z0, z1), style.reveal + style.curtain)]
    parts.append(upright(x0, x1, z0, z1, style.reveal + style.curtain))
    rails = (z0, z0 + 0.65 * high, z1 - 0.06) if style.crossbars else (z0, z1 - 0.06)
    parts += [place(box(0.07, 0.06, high), (x, pane, z0)) for x in np.linspace(x0, x1, style.crossbars + 2)]
    parts += [place(box(w, 0.06, 0.07), (0, pane, z)) for z in rails]
    parts.append(place(box(w + 0.2, 0.16, 0.05), (0, -0.04, z0 - 0.05)))
    if style.surround:
        s = style.surround
        parts += [place(box(s, 0.08, high + s), (x, -0.02, z0)) for x in (x0 - s / 2, x1 + s / 2)]
        parts.append(place(box(w + 2 * s, 0.12, s), (0, -0.03, z1)))
    if style.shutters:
        parts += [place(box(w / 2, 0.05, high), (x, -0.03, z0)) for x in (x0 - w / 4, x1 + w / 4)]
    if style.balcony:
        parts.append(_balcony(style, 0.0))
    return join(*parts), upright(x0, x1, z0, z1, pane)


def _balcony(style: Style, z: float) -> Triangles:
    w, d = min(style.window[0] + 0.8, style.bay), style.balcony
    parts = [place(box(w, d, 0.15), (0, -d / 2, z - 0.15))]
    corners = [(-w / 2, -0.02), (-w / 2, -d), (w / 2, -d), (w / 2, -0.02)]
    for (ax, ay), (bx, by) in pairwise(corners):
        parts.append(bar((ax, ay, z + 1.0), (bx, by, z + 1.0), 0.025, 5))
        count = int(np.hypot(bx - ax, by - ay) / 0.14)
        for s in np.linspace(0, 1, count + 1):
            x, y = ax + s * (bx - ax), ay + s * (by - ay)
            parts.append(place(box(0.02, 0.02, 1.0), (x, y, z)))
    return join(*parts)


def door_bay(style: Style, height: float) -> Triangles:
    """Build a bay with a closed door and a step."""
    width, top = min(1.1, 0.8 * style.bay), min(2.3, height - 0.3)
    hole = (-width / 2, width / 2, 0.0, top)
    parts = [pierced(style.bay, height, hole, style.reveal), upright(*hole, style.reveal)]
    panel = box(0.7 * width, 0.04, 0.36 * top)
    parts += [place(panel, (0, style.reveal, z * top)) for z in (0.08, 0.55)]
    parts.append(
        bar((0.38 * width, style.reveal - 0.06, 1.0), (0.38 * width, style.reveal - 0.06, 1.15), 0.02)
    )
    parts.append(place(box(width + 0.3, 0.4, 0.12), (0, -0.2, 0)))
    return join(*parts)


def shop_bay(style: Style, height: float) -> tuple[Triangles, Triangles]:
    """Build a bay with a shop window and a sign, and its glass."""
    w = 0.84 * style.bay
    hole = (-w / 2, w / 2, 0.45, min(height - 0.6, 2.8))
    parts = [pierced(style.bay, height, hole, 1.2), upright(*hole, 1.2)]
    parts.append(place(box(w, 0.15, 0.4), (0, -0.06, hole[3] + 0.08)))
    parts += [place(box(0.06, 0.06, hole[3] - 0.45), (x, 0.1, 0.45)) for x in (hole[0], 0.0, hole[1])]
    return join(*parts), upright(*hole, 0.1)


def facade(
    rng: np.random.Generator, style: Style, ground: list[str]
) -> tuple[list[Triangles], list[Triangles]]:
    """Build a facade, centred at the z axis; return its parts and its glass.

    Args:
        rng: Source of the building tolerances.
        style: Sizes.
        ground: Kind of each bay of the ground storey: window, door, shop, arch or passage (left open).
    """
    upper, upper_glass = window_bay(style, style.storey)
    kinds = {
        "window": window_bay(style, style.ground),
        "door": (door_bay(style, style.ground), np.zeros((0, 3, 3))),
        "shop": shop_bay(style, style.ground),
        "arch": (_arch(style), np.zeros((0, 3, 3))),
        "passage": (_arch(style), np.zeros((0, 3, 3))),
    }
    parts, glass = [], []
    for i, kind in enumerate(ground):
        x = (i - (len(ground) - 1) / 2) * style.bay
        rows = [(kinds[kind], 0.0)]
        rows += [((upper, upper_glass), style.ground + k * style.storey) for k in range(style.storeys)]
        for (solid, pane), z in rows:
            parts.append(perturb(rng, place(solid, (x, 0, z))))
            glass.append(place(pane, (x, 0, z)))
    length = len(ground) * style.bay
    for z in (style.ground, style.height):
        if style.cornice:
            depth = style.cornice if z == style.height else 0.4 * style.cornice
            parts.append(place(box(length, depth, 0.25), (0, -depth / 2, z - 0.25)))
    return parts, [pane for pane in glass if len(pane)]


def _arch(style: Style) -> Triangles:
    opening = min(0.78 * style.bay, 1.6 * (style.ground - 0.5))
    springing = max(style.ground - 0.35 - opening / 2, 0.5)
    return arched(style.bay, style.ground, opening, springing, 0.5)


def roof(length: float, depth: float, height: float, pitch: float, overhang: float) -> Triangles:
    """Build a ridge roof over a block behind the plane y = 0, with gables and an overhang at -y."""
    x, rise = length / 2, pitch * depth / 2
    drop = pitch * overhang
    eave, ridge, back = (-overhang, height - drop), (depth / 2, height + rise), (depth, height)
    slopes = [
        sheet(np.array([[[-x, a[0], a[1]], [-x, b[0], b[1]]], [[x, a[0], a[1]], [x, b[0], b[1]]]]))
        for a, b in ((eave, ridge), (ridge, back))
    ]
    gables = np.array([[[s, 0, height], [s, depth / 2, height + rise], [s, depth, height]] for s in (-x, x)])
    return join(*slopes, gables)
