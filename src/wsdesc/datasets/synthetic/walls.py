"""Walls with doors, windows and fixtures."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from wsdesc.datasets.synthetic import seats
from wsdesc.datasets.synthetic.scatter import SHELF, scatter
from wsdesc.datasets.synthetic.shapes import (
    Triangles,
    bar,
    box,
    cloth,
    flat,
    join,
    place,
    sheet,
    tube,
    upright,
)

Hole = tuple[float, float, float, float]  # x from, x to, z from, z to


def wall(
    rng: np.random.Generator, length: float, height: float, must_open: bool
) -> tuple[Triangles, list[Triangles]]:
    """Build a wall in the plane y = 0, centred at the z axis, outdoors at +y; and its fixtures."""
    holes: list[Hole] = []
    parts: list[Triangles] = []
    extras: list[Triangles] = []
    x = -length / 2 + rng.uniform(0.2, 0.8)
    while x + 1.0 < length / 2 and (must_open or rng.random() < 0.75):
        kind = "door" if must_open or rng.random() < 0.3 else "window" if rng.random() < 0.6 else "plain"
        must_open = False
        if kind == "door":
            hole = (x, x + rng.uniform(0.75, 0.95), 0.0, min(2.05, height - 0.15))
        else:
            sill = rng.uniform(0.5, 1.1)
            hole = (
                x,
                min(x + rng.uniform(0.6, 1.8), length / 2 - 0.1),
                sill,
                min(sill + rng.uniform(0.7, 1.4), height - 0.1),
            )
        if kind == "plain":
            extras += _fixture(rng, hole, height)
        else:
            holes.append(hole)
            frame, inside = (_door if kind == "door" else _window)(rng, hole)
            parts.append(frame)
            extras += inside
        x = hole[1] + rng.uniform(0.3, 1.6)

    xs = sorted({-length / 2, length / 2, *(h[0] for h in holes), *(h[1] for h in holes)})
    for x0, x1 in pairwise(xs):
        inside_of = [h for h in holes if h[0] <= x0 and x1 <= h[1]]
        spans = [(0.0, inside_of[0][2]), (inside_of[0][3], height)] if inside_of else [(0.0, height)]
        parts += [upright(x0, x1, z0, z1) for z0, z1 in spans if z1 > z0]
        if not inside_of or inside_of[0][2] > 0:
            parts.append(place(box(x1 - x0, 0.025, rng.uniform(0.05, 0.1)), ((x0 + x1) / 2, -0.01, 0)))
    return join(*parts), extras


def _frame(hole: Hole, depth: float, trim: float) -> list[Triangles]:
    """Build the reveal of an opening and the mouldings around it."""
    x0, x1, z0, z1 = hole
    parts = []
    for x in (x0, x1):
        parts.append(sheet(np.array([[[x, 0, z0], [x, 0, z1]], [[x, depth, z0], [x, depth, z1]]])))
        parts.append(place(box(trim, 0.03, z1 - z0 + trim), (x, -0.01, z0)))
    parts += [sheet(np.array([[[x0, y, z], [x1, y, z]] for y in (0, depth)])) for z in (z0, z1)]
    parts.append(place(box(x1 - x0 + trim, 0.03, trim), ((x0 + x1) / 2, -0.01, z1)))
    return parts


def _door(rng: np.random.Generator, hole: Hole) -> tuple[Triangles, list[Triangles]]:
    x0, x1, _, z1 = hole
    w = x1 - x0
    leaf = [place(box(w, 0.04, z1), (w / 2, 0, 0)), bar((0.9 * w, -0.06, 1.0), (0.75 * w, -0.06, 1.0), 0.011)]
    panel, rows = box(0.7 * w, 0.06, (z1 - 0.3) / 3), np.linspace(0.15, z1 - 0.1, rng.integers(2, 5))[:-1]
    leaf += [place(panel, (w / 2, 0, z)) for z in rows]
    swing = 0.0 if rng.random() < 0.5 else rng.uniform(-2.0, 0.0)
    parts = _frame(hole, 0.14, rng.uniform(0.04, 0.1))
    # A corridor behind the open door.
    far, reach = rng.uniform(1.0, 2.2), rng.uniform(0.6, 2.0)
    a, b = x0 - reach, x1 + reach
    parts.append(upright(a, b, 0, z1 + 0.2, far))
    parts.append(place(flat(b - a, far), ((a + b) / 2, far / 2, 0)))
    return join(*parts), [place(join(*leaf), (x0, 0.06, 0), yaw=swing)]


def _window(rng: np.random.Generator, hole: Hole) -> tuple[Triangles, list[Triangles]]:
    x0, x1, z0, z1 = hole
    w, h, middle = x1 - x0, z1 - z0, (x0 + x1) / 2
    parts = _frame(hole, 0.2, rng.uniform(0.03, 0.08))
    parts.append(place(box(w + 0.15, rng.uniform(0.1, 0.3), 0.03), (middle, 0, z0 - 0.03)))
    bars = int(rng.integers(1, 4))
    parts += [place(box(0.06, 0.05, h), (x, 0.15, z0)) for x in np.linspace(x0, x1, bars + 2)]
    parts += [place(box(w, 0.05, 0.06), (middle, 0.15, z)) for z in (z0, z1 - 0.06)]
    extras = [place(scatter(rng, SHELF, w, 0.2, int(rng.integers(0, 5)), 0.5), (middle, 0.03, z0))]
    dressing = rng.random()
    if dressing < 0.4:
        for x in (x0 - 0.1, x1 + 0.1):
            drape = cloth(rng.uniform(0.25, 0.6), z1 + 0.15, rng, rng.uniform(0.02, 0.06), rng.uniform(3, 7))
            extras.append(place(drape, (x, -0.1, 0.02)))
        extras.append(bar((x0 - 0.3, -0.1, z1 + 0.17), (x1 + 0.3, -0.1, z1 + 0.17), 0.014))
    elif dressing < 0.6:
        extras.append(place(cloth(w, h * rng.uniform(0.3, 1.0), rng, 0.01, 3), (middle, 0.1, z1), roll=np.pi))
    if z0 > 0.55 and rng.random() < 0.6:  # a radiator below
        s = np.linspace(0, 1, int(w * 60))[:, None]
        wave = 0.02 * np.sin(np.arange(len(s))[:, None] * 1.6) + 0 * np.ones((1, 2))
        front = np.stack([x0 + w * s + 0 * wave, -0.1 + wave, np.array([[0.12, 0.5]]) + 0 * s], axis=-1)
        extras.append(join(sheet(front), place(box(w, 0.08, 0.36), (middle, -0.07, 0.13))))
        extras.append(bar((x1, -0.07, 0), (x1, -0.07, 0.45), 0.012))
    return join(*parts), extras


def _fixture(rng: np.random.Generator, hole: Hole, height: float) -> list[Triangles]:
    """Build a fixture of a wall: pictures, a board, a shelf with books, pipes, or hooks with coats."""
    x0, x1, z0, z1 = hole
    w, middle, kind = x1 - x0, (x0 + x1) / 2, rng.integers(5)
    if kind == 0:
        return [
            place(
                box(*rng.uniform((0.15, 0.02, 0.15), (0.7, 0.05, 0.7))),
                (x, -0.02, z0 + rng.uniform(0.3, 0.8)),
            )
            for x in np.linspace(x0, x1, rng.integers(1, 4) + 2)[1:-1]
        ]
    if kind == 1:
        tray = place(box(w, 0.08, 0.02), (middle, -0.04, z0))
        return [join(place(box(w, 0.03, z1 - z0), (middle, -0.015, z0)), tray)]
    if kind == 2:
        boards = []
        for z in np.linspace(1.1, 1.9, rng.integers(1, 4)):
            goods = scatter(rng, SHELF, w, 0.24, int(rng.integers(2, 9)), 0.35)
            boards.append(
                place(join(box(w, 0.22, 0.025), goods + np.array([0, 0, 0.025])), (middle, -0.12, z))
            )
        return [join(*boards)]
    if kind == 3:
        pipes = []
        for k in range(rng.integers(1, 4)):
            x = x0 + 0.1 * k
            turn = rng.uniform(0.5, height - 0.2)
            path = [(x, -0.06, 0), (x, -0.06, turn), (x, -0.06, turn + 0.02), (x1 + 0.4, -0.06, turn + 0.02)]
            pipes.append(tube(path, rng.uniform(0.012, 0.045)))
        return [join(*pipes)]
    coats = [
        place(seats.coat(rng), (x, -0.12, rng.uniform(0.7, 1.0)))
        for x in np.arange(x0, x1, rng.uniform(0.2, 0.5))
    ]
    return [join(place(box(w, 0.03, 0.1), (middle, -0.015, 1.65)), *coats)]
