"""Furniture with clutter. Each piece stands on z = 0, with its width along x and its back towards +y."""

from __future__ import annotations

import numpy as np

from wsdesc.datasets.synthetic import clutter, seats
from wsdesc.datasets.synthetic.scatter import DESK, KITCHEN, SHELF, Maker, scatter
from wsdesc.datasets.synthetic.shapes import (
    Triangles,
    bar,
    box,
    join,
    lathe,
    legs,
    place,
    ring,
    rod,
    rounded,
    tube,
)


def table(rng: np.random.Generator, makers: list[Maker] = DESK) -> Triangles:
    """Build a desk or table with clutter."""
    w, d, h = rng.uniform((0.9, 0.55, 0.68), (2.0, 0.95, 0.78))
    thick = rng.uniform(0.02, 0.05)
    if rng.random() < 0.2:  # a round table with a central foot
        d = w = min(w, 1.3)
        top = lathe([(0, 0), (w / 2, 0), (w / 2, thick), (0, thick)], 24)
        under = join(rod(0.04, h), lathe([(0.3 * w, 0), (0.28 * w, 0.03), (0.05, 0.08)], 16))
        usable = 0.65
    else:
        top, under, usable = box(w, d, thick), legs(rng, 0.94 * w, 0.9 * d, h), 0.96
        if rng.random() < 0.45:
            side = rng.choice([-1, 1]) * (w / 2 - 0.25)
            under = join(under, place(fronted(rng, 0.42, 0.9 * d, h - 0.05), (side, 0, 0)))
        if rng.random() < 0.4:
            under = join(under, place(box(0.9 * w, 0.02, 0.4), (0, 0.4 * d, h - 0.4)))
    load = int(rng.integers(3, 12) + rng.random() * 25 * w * d)
    goods = scatter(rng, makers, usable * w, usable * d, load)
    return join(place(top, (0, 0, h)), under, place(goods, (0, 0, h + thick)))


def fronted(rng: np.random.Generator, width: float, depth: float, height: float) -> Triangles:
    """Build a closed body with doors or drawers with handles in its front."""
    parts = [box(width, depth, height)]
    columns, rows = max(1, round(width / rng.uniform(0.35, 0.7))), int(rng.integers(1, 5))
    w, h = width / columns, (height - 0.08) / rows
    knob = rng.random() < 0.4
    for c in range(columns):
        for r in range(rows):
            x, z = (c + 0.5) * w - width / 2, 0.08 + r * h
            out = -depth / 2 - (rng.uniform(0.05, 0.3) if rng.random() < 0.05 and rows > 1 else 0.0)
            parts.append(place(box(w - 0.02, 0.04, h - 0.02), (x, out, z + 0.01)))
            if knob:
                parts.append(
                    place(rounded(0.035, 0.05, 0.035, 1.0, 6), (x + 0.3 * w, out - 0.03, z + 0.6 * h))
                )
            else:
                ends = (x - 0.2 * w, out - 0.045, z + 0.8 * h), (x + 0.2 * w, out - 0.045, z + 0.8 * h)
                parts.append(bar(*ends, 0.009, 5))
    return join(*parts)


def cabinet(rng: np.random.Generator) -> Triangles:
    w, d, h = rng.uniform((0.4, 0.35, 0.5), (1.4, 0.6, 1.25))
    goods = scatter(rng, SHELF, 0.9 * w, 0.9 * d, int(rng.integers(0, 9)))
    return join(fronted(rng, w, d, h), place(goods, (0, 0, h)))


def wardrobe(rng: np.random.Generator) -> Triangles:
    w, d, h = rng.uniform((0.8, 0.5, 1.7), (1.8, 0.65, 2.15))
    goods = scatter(rng, [clutter.carton, clutter.bag], 0.9 * w, 0.9 * d, int(rng.integers(0, 5)))
    return join(fronted(rng, w, d, h), place(goods, (0, 0, h)))


def shelf(rng: np.random.Generator) -> Triangles:
    """Build a shelf with books and items, with a back panel or as a wire frame."""
    w, d, h = rng.uniform((0.5, 0.22, 0.8), (1.5, 0.4, 2.1))
    rows = int(rng.integers(2, 6))
    gap, thick = h / rows, rng.uniform(0.015, 0.03)
    parts = [place(box(w, 0.01, h), (0, d / 2, 0))] if rng.random() < 0.7 else []
    if rng.random() < 0.75:
        parts += [place(box(thick, d, h), (s * w / 2, 0, 0)) for s in (-1, 1)]
    else:
        parts.append(legs(rng, w, d, h))
    fill = rng.uniform(2, 9)
    for r in range(rows + 1):
        parts.append(place(box(w, d, thick), (0, 0, r * gap)))
        head = gap - thick if r < rows else 0.5
        goods = scatter(rng, SHELF, 0.95 * w, 1.1 * d, int(rng.poisson(fill * w)), head)
        parts.append(place(goods, (0, 0, r * gap + thick)))
    return join(*parts)


def counter(rng: np.random.Generator) -> Triangles:
    """Build a kitchen counter with sink, tap, hob and often cupboards above."""
    w, d, h = rng.uniform((1.2, 0.55, 0.85), (2.6, 0.65, 0.92))
    parts = [fronted(rng, w, d, h), place(box(w + 0.02, d + 0.04, 0.04), (0, -0.01, h))]
    top = h + 0.04
    sink, x = rng.uniform(0.35, 0.5), rng.uniform(-0.3, 0.3) * w
    rim = lathe([(0.3, 0.0), (0.3, 0.03), (0.26, 0.03), (0.22, -0.0), (0, 0.0)], 4)
    parts.append(place(place(rim, yaw=np.pi / 4) * np.array([2.2 * sink, 2, 1]), (x, 0, top)))
    s = np.linspace(0, np.pi, 10)
    spout = np.stack([0 * s, -0.09 * (1 - np.cos(s)), 0.18 + 0.09 * np.sin(s)], axis=-1)
    parts.append(place(tube(np.vstack([[0, 0, 0], spout]), 0.013), (x, 0.22, top)))
    if rng.random() < 0.6:
        up = fronted(rng, w * rng.uniform(0.5, 1.0), 0.34, rng.uniform(0.5, 0.75))
        parts.append(place(up, (0, d / 2 - 0.17, top + rng.uniform(0.45, 0.6))))
    goods = scatter(rng, KITCHEN, 0.96 * w, 0.9 * d, int(rng.integers(4, 16)), 0.45)
    return join(*parts, place(goods, (0, 0, top)))


def bin_(rng: np.random.Generator) -> Triangles:
    r, h = rng.uniform(0.1, 0.2), rng.uniform(0.25, 0.6)
    body = lathe(
        [(0, 0), (0.75 * r, 0), (r, h), (0.96 * r, h), (0.7 * r, 0.02), (0, 0.02)], int(rng.choice([4, 18]))
    )
    return join(body, place(clutter.papers(rng) * 0.7, (0, 0, 0.6 * h)))


def floor_lamp(rng: np.random.Generator) -> Triangles:
    h, r = rng.uniform(1.2, 1.8), rng.uniform(0.12, 0.25)
    shade = lathe([(r, 0), (r * rng.uniform(0.4, 1.0), rng.uniform(0.15, 0.3))], 18)
    return join(rod(0.15, 0.03), bar((0, 0, 0), (0, 0, h), 0.014), place(shade, (0, 0, h - 0.1)))


def big_plant(rng: np.random.Generator) -> Triangles:
    return clutter.plant(rng, rng.uniform(1.6, 3.5))


def cartons(rng: np.random.Generator) -> Triangles:
    parts, z = [], 0.0
    for _ in range(rng.integers(1, 5)):
        part = place(clutter.carton(rng, 1.4), (*rng.normal(0, 0.04, 2), z), yaw=rng.uniform(-0.5, 0.5))
        parts.append(part)
        z = part[..., 2].max()
    return join(*parts)


def bicycle(rng: np.random.Generator) -> Triangles:
    r = rng.uniform(0.28, 0.35)
    rear, front, seat, pedals, head = (
        np.array(p) for p in ((-0.5, 0, r), (0.55, 0, r), (-0.2, 0, 0.85), (-0.05, 0, 0.3), (0.4, 0, 0.8))
    )
    pairs = [(rear, pedals), (rear, seat), (pedals, seat), (pedals, head), (seat, head), (head, front)]
    wheels = [place(ring(r - 0.02, 0.022), hub) for hub in (rear, front)]
    grip, half = head + np.array([0, 0, 0.15]), np.array([0, 0.28, 0])
    bars = [bar(a, b, 0.017) for a, b in [*pairs, (grip - half, grip + half), (head, grip)]]
    spokes = [
        bar(hub, hub + (r - 0.02) * np.array([np.cos(a), 0, np.sin(a)]), 0.004, 4)
        for hub in (rear, front)
        for a in np.arange(8) * np.pi / 4
    ]
    saddle = place(rounded(0.25, 0.14, 0.07, 0.8), seat)
    upright = join(*wheels, *bars, *spokes, saddle)
    return place(upright, roll=rng.normal(0, 0.12))


def coat_rack(rng: np.random.Generator) -> Triangles:
    parts = [bar((0, 0, 0), (0, 0, 1.75), 0.02), rod(0.18, 0.03)]
    for k in range(rng.integers(1, 5)):
        yaw = 2 * np.pi * k / 4 + rng.normal(0, 0.3)
        arm = join(bar((0, 0, 0), (0, -0.18, 0.12), 0.01), place(seats.coat(rng), (0, -0.14, -0.75)))
        parts.append(place(arm, (0, 0, 1.6), yaw=yaw))
    return join(*parts)
