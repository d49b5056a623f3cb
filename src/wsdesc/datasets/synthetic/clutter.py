"""Small items on desks, shelves, counters and floors.

Each function draws a random item, which stands on z = 0 and is centred at the z axis.
"""

from __future__ import annotations

import numpy as np

from wsdesc.datasets.synthetic.shapes import (
    Triangles,
    bar,
    blob,
    box,
    bumpy,
    flat,
    join,
    lathe,
    place,
    ring,
    rod,
    rounded,
    sheet,
    tube,
)


def book(rng: np.random.Generator) -> Triangles:
    return box(rng.uniform(0.12, 0.24), rng.uniform(0.17, 0.32), rng.uniform(0.01, 0.05))


def book_stack(rng: np.random.Generator) -> Triangles:
    parts, height = [], 0.0
    for _ in range(rng.integers(2, 8)):
        part = place(book(rng), (*rng.normal(0, 0.015, 2), height), yaw=rng.normal(0, 0.25))
        parts.append(part)
        height = part[..., 2].max()
    return join(*parts)


def leaning_books(rng: np.random.Generator) -> Triangles:
    """Build a row of standing books, the last of which lean."""
    parts, x = [], 0.0
    lean_from = rng.integers(1, 12)
    for i in range(rng.integers(3, 13)):
        thick, height = rng.uniform(0.012, 0.05), rng.uniform(0.16, 0.31)
        lean = rng.uniform(0.08, 0.45) if i >= lean_from else 0.0
        upright = box(thick, rng.uniform(0.12, 0.22), height) + np.array([thick / 2, 0, 0])
        parts.append(place(upright, (x, rng.normal(0, 0.015), 0), pitch=lean))
        x += thick / np.cos(lean) + (0.01 if lean else 0.001)
    return place(join(*parts), (-x / 2, 0, 0))


def cup(rng: np.random.Generator) -> Triangles:
    r, h = rng.uniform(0.03, 0.05), rng.uniform(0.06, 0.12)
    foot = r * rng.uniform(0.6, 1.0)
    body = lathe([(0, 0), (foot, 0), (r, h), (r * 0.9, h), (foot * 0.9, 0.01), (0, 0.01)])
    return join(body, place(ring(h * 0.3, 0.006, 0.55, 8), (r * 0.95, 0, h / 2), pitch=np.pi / 2))


def bottle(rng: np.random.Generator) -> Triangles:
    r, h = rng.uniform(0.03, 0.055), rng.uniform(0.18, 0.34)
    neck, shoulder = r * rng.uniform(0.25, 0.5), h * rng.uniform(0.5, 0.7)
    outline = [
        (0.0, 0.0), (r, 0.0), (r, shoulder * 0.5), (r * rng.uniform(0.85, 1.05), shoulder),
        (neck, h * 0.85), (neck, h), (0.0, h),
    ]  # fmt: skip
    return lathe(outline)


def vessel(rng: np.random.Generator) -> Triangles:
    """Build a vase, pot, bowl or jug: any smooth open profile."""
    h, r = rng.uniform(0.06, 0.3), rng.uniform(0.05, 0.14)
    s = np.linspace(0, 1, 8)
    radius = r * (0.55 + 0.45 * np.sin(np.pi * (s * rng.uniform(0.5, 1.0) + rng.uniform(-0.1, 0.3))))
    outer = list(zip(radius, h * s, strict=True))
    inner = [(0.9 * a, b + 0.006) for a, b in reversed(outer)]
    body = lathe([(0, 0), *outer, *inner, (0, 0.01)], 18)
    if rng.random() < 0.4:
        body = join(body, place(ring(h * 0.3, 0.008, 0.6, 10), (radius[4], 0, h * 0.55), pitch=np.pi / 2))
    return body


def keyboard(rng: np.random.Generator) -> Triangles:
    w, d = rng.uniform(0.28, 0.46), rng.uniform(0.12, 0.18)
    x, y = np.meshgrid(np.linspace(-w / 2, w / 2, 31), np.linspace(-d / 2, d / 2, 12), indexing="ij")
    keys = 0.022 + 0.006 * ((np.arange(31)[:, None] % 2) * (np.arange(12)[None, :] % 2))
    top = sheet(np.stack([x, y, keys], axis=-1))
    return place(join(box(w, d, 0.02), top), roll=rng.uniform(0.0, 0.12))


def mouse(rng: np.random.Generator) -> Triangles:
    return place(rounded(0.06, 0.11, rng.uniform(0.03, 0.045), 0.8), (0, 0, -0.01))


def monitor(rng: np.random.Generator) -> Triangles:
    w = rng.uniform(0.38, 0.7)
    h, lift = w * rng.uniform(0.55, 0.75), rng.uniform(0.06, 0.2)
    if rng.random() < 0.25:  # an old one, with a tube behind
        back = lathe([(0.72 * w, 0), (0.4 * w, 0.8 * w), (0, 0.8 * w)], 4)
        panel = join(place(box(w, 0.06, h)), place(back, (0, 0.02, h / 2), roll=-np.pi / 2))
    else:
        panel = rounded(w, rng.uniform(0.025, 0.06), h, rng.uniform(0.08, 0.2), 11)
        panel = join(panel, place(rounded(w * 0.5, 0.05, h * 0.5, 0.3), (0, 0.03, h * 0.25)))
    stand = join(
        place(rounded(w * 0.45, 0.2, 0.025, 0.4), (0, 0.03, 0)),
        place(box(0.07, 0.03, lift + h / 2), (0, 0.05, 0)),
    )
    return join(place(panel, (0, 0, lift), roll=rng.uniform(-0.02, 0.2)), stand)


def laptop(rng: np.random.Generator) -> Triangles:
    w, d = rng.uniform(0.28, 0.4), rng.uniform(0.2, 0.27)
    lid = place(box(w, d, 0.012), (0, d / 2, 0))
    return join(box(w, d, 0.02), place(lid, (0, d / 2, 0.02), roll=rng.uniform(0.9, 1.75)))


def desk_lamp(rng: np.random.Generator) -> Triangles:
    a, b = rng.uniform(0.2, 0.4), rng.uniform(0.15, 0.35)
    lean, bow = rng.uniform(-0.4, 0.4), rng.uniform(0.5, 1.6)
    elbow = np.array([a * np.sin(lean), 0, a * np.cos(lean)])
    head = elbow + b * np.array([np.sin(lean + bow), 0, np.cos(lean + bow)])
    shade = lathe([(0.02, 0.1), (0.035, 0.06), (0.075, -0.03)], 14)
    return join(
        rod(rng.uniform(0.06, 0.1), 0.025), bar((0, 0, 0), elbow, 0.009), bar(elbow, head, 0.009),
        place(shade, head, pitch=rng.uniform(-0.5, 0.7)),
    )  # fmt: skip


def leaves(rng: np.random.Generator, count: int, length: float) -> Triangles:
    """Build bent blades that start at the origin."""
    s = np.linspace(0, 1, 6)[:, None]
    side = np.array([-1.0, 0.0, 1.0])[None, :]
    parts = []
    for _ in range(count):
        reach, droop = length * rng.uniform(0.5, 1.1), rng.uniform(0.1, 1.1)
        steep, width = rng.uniform(0.3, 1.4), length * rng.uniform(0.06, 0.18)
        x = reach * s * np.cos(steep) + 0 * side
        z = reach * (s * np.sin(steep) - droop * 0.6 * s**2) - 0.2 * width * np.abs(side)
        y = width * side * np.sin(np.pi * np.clip(s, 0.08, 1.0) ** 0.8)
        parts.append(place(sheet(np.stack([x, y, z], axis=-1)), yaw=rng.uniform(0, 2 * np.pi)))
    return join(*parts)


def plant(rng: np.random.Generator, scale: float = 1.0) -> Triangles:
    r, h = scale * rng.uniform(0.05, 0.1), scale * rng.uniform(0.08, 0.18)
    pot = lathe([(0, 0), (0.7 * r, 0), (r, h), (0.9 * r, h), (0.85 * r, 0.85 * h), (0, 0.85 * h)])
    stem = scale * rng.uniform(0.0, 0.25)
    bush = leaves(rng, int(rng.integers(7, 26)), scale * rng.uniform(0.15, 0.35))
    return join(pot, bar((0, 0, 0), (0, 0, h + stem), 0.01 * scale), place(bush, (0, 0, 0.9 * h + stem)))


def carton(rng: np.random.Generator, scale: float = 1.0) -> Triangles:
    """Build a cardboard box, shut or with its flaps up."""
    w, d, h = scale * rng.uniform(0.08, 0.4, 3)
    if rng.random() < 0.6:
        return box(w, d, h)
    walls = [box(w, d, 0.01)]
    for yaw, across, out in ((0, w, d), (np.pi / 2, d, w), (np.pi, w, d), (-np.pi / 2, d, w)):
        flap = place(box(across, 0.006, 0.4 * out), (0, 0, h), roll=-rng.uniform(0.2, 2.3))
        side = join(box(across, 0.006, h), flap)
        walls.append(place(side + np.array([0, out / 2, 0]), yaw=yaw))
    return join(*walls)


def bag(rng: np.random.Generator, scale: float = 1.0) -> Triangles:
    w, d, h = scale * rng.uniform((0.18, 0.1, 0.15), (0.45, 0.3, 0.45))
    body = bumpy(rounded(w, d, h, rng.uniform(0.5, 1.0), 13), rng, 0.05 * scale, 0.22 * scale)
    body[..., 2] = np.maximum(body[..., 2], 0.0)
    if rng.random() < 0.5:
        body = join(body, place(ring(w * 0.3, 0.012, 0.5, 12), (0, 0, h * 0.92)))
    return body


def toy(rng: np.random.Generator) -> Triangles:
    """Build a stuffed animal, more or less: a body, a head, limbs and ears."""
    s = rng.uniform(0.1, 0.3)
    parts = [
        place(rounded(0.6 * s, 0.5 * s, 0.7 * s, 1.0)),
        place(rounded(0.5 * s, 0.5 * s, 0.5 * s, 1.0), (0, -0.05 * s, 0.6 * s)),
    ]
    for side in (-1, 1):
        parts += [
            place(rounded(0.2 * s, 0.5 * s, 0.2 * s, 1.0, 6), (side * 0.25 * s, -0.3 * s, 0), yaw=side * 0.4),
            place(
                rounded(0.18 * s, 0.18 * s, 0.45 * s, 1.0, 6), (side * 0.3 * s, 0, 0.2 * s), pitch=side * 0.8
            ),
            place(rounded(0.2 * s, 0.08 * s, 0.2 * s, 1.0, 6), (side * 0.2 * s, 0, s)),
        ]
    return bumpy(join(*parts), rng, 0.03 * s, s)


def papers(rng: np.random.Generator) -> Triangles:
    """Build sheets of paper, some of them curled or crumpled."""
    parts = []
    for i in range(rng.integers(1, 7)):
        page = flat(0.21, 0.297, 7)
        page[..., 2] += rng.uniform(0, 1.2) * page[..., 0] ** 2 + 0.004 * i + 0.003
        if rng.random() < 0.3:
            page = bumpy(page, rng, 0.02, 0.15) + np.array([0, 0, 0.015])
        parts.append(place(page, (*rng.normal(0, 0.06, 2), 0), yaw=rng.uniform(0, 6)))
    return join(*parts)


def cable(rng: np.random.Generator, reach: float = 0.5) -> Triangles:
    steps = rng.normal(0, 1, (7, 2)).cumsum(axis=0)
    s = np.linspace(0, 6, 25)
    xy = np.stack([np.interp(s, range(7), steps[:, i]) for i in (0, 1)], axis=-1)
    xy = (xy - xy.mean(axis=0)) * (reach / (np.ptp(xy) + 1e-9))
    radius = rng.uniform(0.004, 0.012)
    return tube(np.column_stack([xy, np.abs(0.03 * np.sin(s * rng.uniform(0, 3))) + radius]), radius, 5)


def device(rng: np.random.Generator) -> Triangles:
    """Build a printer, speaker, telephone, toaster or microwave: stacked rounded boxes with a front."""
    w, d, h = rng.uniform((0.1, 0.1, 0.06), (0.5, 0.4, 0.35))
    parts = [rounded(w, d, h, rng.uniform(0.1, 0.4), 11)]
    for _ in range(rng.integers(1, 5)):
        size = np.array([w, d, h]) * rng.uniform(0.15, 0.6, 3)
        at = rng.uniform((-0.3, -0.55, 0.1), (0.3, 0.2, 0.8)) * np.array([w, d, h])
        parts.append(
            place(
                blob(size, edge=rng.uniform(0.1, 0.9)),
                at,
                yaw=rng.normal(0, 0.05),
                roll=rng.normal(0, 0.2),
            )
        )
    return join(*parts)


def holder(rng: np.random.Generator) -> Triangles:
    """Build a jar with pens or kitchen tools in it."""
    r, h = rng.uniform(0.03, 0.06), rng.uniform(0.08, 0.15)
    parts = [lathe([(0, 0), (r, 0), (r, h), (0.9 * r, h), (0.9 * r, 0.01)])]
    for _ in range(rng.integers(2, 8)):
        tip = np.array([*rng.normal(0, r, 2), h * rng.uniform(1.2, 2.2)])
        parts += [bar(0.3 * tip, tip, rng.uniform(0.004, 0.012), 5)]
    return join(*parts)


def fruit(rng: np.random.Generator) -> Triangles:
    """Build fruit, in a bowl or loose."""
    r = rng.uniform(0.03, 0.05)
    bowl = lathe([(0, 0.0), (0.5 * 3 * r, 0.005), (3 * r, 1.6 * r), (2.9 * r, 1.6 * r), (0, 0.015)], 16)
    balls = [
        place(
            blob(2 * r * rng.uniform(0.8, 1.2, 3), edge=1.0, steps=7),
            (*rng.normal(0, 1.2 * r, 2), rng.uniform(0.2, 1.6) * r),
        )
        for _ in range(rng.integers(3, 9))
    ]
    return join(bowl, *balls) if rng.random() < 0.6 else join(*balls)


def knot(rng: np.random.Generator) -> Triangles:
    """Build headphones, handles, tools or sculptures: rings and bent tubes in random poses."""
    size = rng.uniform(0.05, 0.14)
    hoop = ring(size, size * rng.uniform(0.07, 0.3), rng.uniform(0.4, 1.0))
    lump = blob(size * rng.uniform(0.4, 1.4, 3), edge=rng.uniform(0.2, 1.0))
    shape = place(join(hoop, place(lump, (size, 0, 0))), (0, 0, 0), *rng.uniform(0, 2 * np.pi, 3))
    return place(shape, (0, 0, -shape[..., 2].min()))


def pebble(rng: np.random.Generator) -> Triangles:
    """Build a lump: bread, a cap, a purse, a stone or a crumpled jacket."""
    size = rng.uniform(0.06, 0.3) * rng.uniform(0.4, 1.0, 3)
    shape = bumpy(blob(size, edge=rng.uniform(0.3, 1.2), steps=11), rng, 0.2 * size.min(), 1.2 * size.max())
    shape = place(shape, yaw=rng.uniform(0, 6), pitch=rng.normal(0, 0.3))
    return place(shape, (0, 0, -shape[..., 2].min() - 0.01))
