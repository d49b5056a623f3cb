"""Chairs, sofas, beds and other seats, with pillows and coats."""

from __future__ import annotations

import numpy as np

from wsdesc.datasets.synthetic import clutter
from wsdesc.datasets.synthetic.scatter import Maker, scatter
from wsdesc.datasets.synthetic.shapes import (
    Triangles,
    bar,
    box,
    bumpy,
    cloth,
    flat,
    join,
    lathe,
    legs,
    place,
    rod,
    rounded,
    sheet,
)


def chair(rng: np.random.Generator) -> Triangles:
    """Build a four-legged chair with a slatted, solid or curved back; a third carry an item."""
    w, d, h = rng.uniform((0.38, 0.38, 0.42), (0.5, 0.48, 0.48))
    parts = [legs(rng, w, d, h), place(rounded(w, d, 0.05, rng.uniform(0.2, 0.5)), (0, 0, h - 0.02))]
    up, kind = rng.uniform(0.35, 0.55), rng.integers(3)
    if kind == 0:
        back = join(*[place(box(0.03, 0.025, up), (s * (w / 2 - 0.02), 0, 0)) for s in (-1, 1)])
        slats = [
            box(w, 0.02, 0.06) + np.array([0, 0, z]) for z in np.linspace(0.3, 0.88, rng.integers(2, 5)) * up
        ]
        back = join(back, *slats)
    elif kind == 1:
        back = place(rounded(w, 0.04, up, 0.3))
    else:
        a, z = np.meshgrid(np.linspace(-1.1, 1.1, 10), np.linspace(0.3 * up, up, 5), indexing="ij")
        back = sheet(np.stack([0.5 * w * np.sin(a), 0.1 * (np.cos(a) - 1), z], axis=-1))
        back = join(
            back, bar((-0.1, 0, 0), (-0.1, 0, 0.4 * up), 0.012), bar((0.1, 0, 0), (0.1, 0, 0.4 * up), 0.012)
        )
    parts.append(place(back, (0, d / 2 - 0.02, h), roll=-rng.uniform(0.0, 0.25)))
    if rng.random() < 0.35:
        parts.append(place(FLOPPY[rng.integers(len(FLOPPY))](rng), (0, 0, h + 0.03), yaw=rng.uniform(0, 6)))
    return join(*parts)


def office_chair(rng: np.random.Generator) -> Triangles:
    h, w = rng.uniform(0.42, 0.55), rng.uniform(0.44, 0.52)
    parts = [rod(0.03, h), place(rounded(w, w, 0.1, 0.5, 11), (0, 0, h - 0.03))]
    turn = rng.uniform(0, 2 * np.pi)
    for k in range(5):
        a = turn + 2 * np.pi * k / 5
        tip = np.array([0.3 * np.cos(a), 0.3 * np.sin(a), 0.07])
        parts += [bar((0, 0, 0.12), tip, 0.02), place(rounded(0.05, 0.05, 0.06, 1.0, 6), (tip[0], tip[1], 0))]
    up, bow = rng.uniform(0.4, 0.7), rng.uniform(0.1, 0.5)
    back = rounded(w * 0.9, 0.09, up, 0.55, 13)
    back[..., 1] -= bow * back[..., 0] ** 2
    parts += [
        place(back, (0, w / 2, h + 0.12), roll=-rng.uniform(0.0, 0.3)),
        bar((0, 0.1, h), (0, w / 2 + 0.04, h + 0.25), 0.025),
    ]
    if rng.random() < 0.6:
        for s in (-1, 1):
            x = s * (w / 2 + 0.02)
            parts += [bar((x, 0.05, h), (x, 0.05, h + 0.2), 0.018)]
            parts += [place(rounded(0.07, 0.26, 0.04, 0.5), (x, 0, h + 0.2))]
    if rng.random() < 0.25:
        parts.append(place(coat(rng), (0, w / 2 + 0.03, h + 0.02)))
    return join(*parts)


def coat(rng: np.random.Generator) -> Triangles:
    """Build a hanging garment with folds."""
    w, h = rng.uniform(0.3, 0.5), rng.uniform(0.5, 0.9)
    front = bumpy(cloth(w, h, rng, rng.uniform(0.02, 0.05), rng.uniform(1.5, 4)), rng, 0.03, 0.3)
    return join(front, place(front, (0, rng.uniform(0.03, 0.1), 0), yaw=np.pi))


def pillow(rng: np.random.Generator) -> Triangles:
    w, d, h = rng.uniform((0.3, 0.3, 0.1), (0.6, 0.5, 0.2))
    return bumpy(rounded(w, d, h, rng.uniform(0.5, 0.9), 11), rng, 0.025, 0.3)


FLOPPY: list[Maker] = [pillow, clutter.bag, clutter.pebble, clutter.toy, clutter.papers]


def sofa(rng: np.random.Generator) -> Triangles:
    """Build a sofa, or an armchair."""
    seats, seat = int(rng.integers(1, 4)), rng.uniform(0.5, 0.7)
    w, d, h, edge = seats * seat, rng.uniform(0.75, 0.95), rng.uniform(0.3, 0.42), rng.uniform(0.15, 0.5)
    parts = [place(rounded(w + 0.1, d, h, 0.15))]
    for k in range(seats):
        x = (k + 0.5) * seat - w / 2
        parts.append(
            bumpy(place(rounded(seat, d * 0.75, 0.18, edge, 11), (x, -0.1 * d, h - 0.05)), rng, 0.02, 0.4)
        )
        cushion = place(rounded(seat, 0.2, rng.uniform(0.4, 0.5), edge, 11), (x, d * 0.36, h), roll=-0.2)
        parts.append(bumpy(cushion, rng, 0.025, 0.4))
    arm = rng.uniform(0.1, 0.25)
    rest = rounded(arm, d, h + rng.uniform(0.15, 0.3), edge, 11)
    parts += [place(rest, (s * (w + arm) / 2, 0, 0)) for s in (-1, 1)]
    for _ in range(rng.integers(0, 4)):
        at = (rng.uniform(-0.4, 0.4) * w, rng.uniform(-0.2, 0.2), h + 0.12)
        soft = FLOPPY[rng.integers(len(FLOPPY))](rng)
        parts.append(place(soft, at, *rng.uniform((0, -0.3, 0), (6, 0.3, 0.9))))
    if rng.random() < 0.3:
        throw = flat(rng.uniform(0.4, 0.9), 0.7, 14)
        throw[..., 2] -= 1.3 * np.maximum(-throw[..., 1] - 0.2, 0)
        parts.append(place(bumpy(throw, rng, 0.05, 0.25), (rng.uniform(-0.2, 0.2) * w, -0.2 * d, h + 0.19)))
    return join(*parts)


def bed(rng: np.random.Generator) -> Triangles:
    w, d, h = rng.uniform((0.9, 1.9, 0.4), (1.7, 2.1, 0.6))
    frame = join(box(w, d, 0.5 * h), place(box(w, 0.05, h + rng.uniform(0.1, 0.6)), (0, d / 2, 0)))
    cover = flat(1.15 * w, 0.8 * d, 26)
    cover[..., 2] -= 3.0 * np.maximum(np.abs(cover[..., 0]) - 0.48 * w, 0)
    cover = bumpy(bumpy(cover, rng, 0.04, 0.8), rng, 0.012, 0.2)
    parts = [
        frame,
        place(rounded(w, d, 0.6 * h, 0.15), (0, 0, 0.4 * h)),
        place(cover, (0, -0.1 * d, h + 0.06)),
    ]
    heads = (-0.25, 0.25) if w > 1.2 else (0.0,)
    parts += [place(pillow(rng), (s * w, 0.38 * d, h - 0.02), roll=rng.uniform(-0.1, 0.3)) for s in heads]
    return join(*parts, place(scatter(rng, FLOPPY, w, d, int(rng.integers(0, 4))), (0, 0, h + 0.05)))


def drum(rng: np.random.Generator) -> Triangles:
    """Build a stool, pouf, drum or heater: a round item of knee height."""
    r, h = rng.uniform(0.15, 0.3), rng.uniform(0.3, 0.6)
    if rng.random() < 0.5:
        return bumpy(rounded(2 * r, 2 * r, h, rng.uniform(0.3, 0.8), 13), rng, 0.02, 0.4)
    return join(
        place(legs(rng, 1.3 * r, 1.3 * r, h)),
        place(lathe([(0, 0), (r, 0), (r, 0.04), (0, 0.04)], 18), (0, 0, h)),
    )
