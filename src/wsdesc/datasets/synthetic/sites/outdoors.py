"""Outdoor items: trees, bushes, cars, persons, lamps and signs. Each stands on z = 0."""

from __future__ import annotations

import numpy as np

from wsdesc.core.geometry import Floats
from wsdesc.datasets.synthetic.shapes import (
    Triangles,
    bar,
    box,
    bumpy,
    join,
    lathe,
    place,
    rod,
    rounded,
    sheet,
    tube,
)


def foliage(rng: np.random.Generator, centres: Floats, size: float) -> Triangles:
    """Build one triangle of about `size` metres at each centre (N, 3), in a random orientation."""
    return np.asarray(centres[:, None] + rng.normal(0, 0.5 * size, (len(centres), 3, 3)))


def broadleaf(rng: np.random.Generator, bare: bool = False) -> Triangles:
    """Build a tree with a trunk, forked branches, and leaves unless it is bare."""
    h = rng.uniform(4, 12)
    fork, spread = h * rng.uniform(0.25, 0.4), h * rng.uniform(0.22, 0.38)
    r = 0.018 * h
    lean = rng.normal(0, 0.03, 2) * h
    trunk = np.array([[0, 0, 0], [*(0.3 * lean), 0.5 * fork], [*lean, fork]])
    parts = [tube(trunk, r), rod(1.6 * r, 0.2, r)]
    tips = []
    top = trunk[-1]
    for k in range(rng.integers(4, 8)):
        around, out = 2.4 * k + rng.normal(0, 0.3), spread * rng.uniform(0.4, 1.0)
        end = top + np.array(
            [out * np.cos(around), out * np.sin(around), (h - fork) * rng.uniform(0.25, 0.85)]
        )
        middle = 0.5 * (top + end) + rng.normal(0, 0.03 * h, 3)
        parts.append(tube(np.array([top, middle, end]), 0.45 * r, 5))
        tips.append(end)
        for _ in range(3):
            twig = end + rng.normal(0, 0.3 * spread, 3)
            parts.append(bar(middle, twig, 0.18 * r, 4))
            tips.append(twig)
    if not bare:
        # Leaves gather in clumps near the outside of the crown.
        clumps = np.concatenate(
            [np.array(tips), np.array(tips) + rng.normal(0, 0.25 * spread, (len(tips), 3))]
        )
        count = int(rng.uniform(250, 500) * h**0.5)
        at = clumps[rng.integers(len(clumps), size=count)] + rng.normal(0, 0.17 * spread, (count, 3))
        parts.append(foliage(rng, at[at[:, 2] > 0.7 * fork], rng.uniform(0.1, 0.2)))
    return join(*parts)


def conifer(rng: np.random.Generator) -> Triangles:
    """Build a tree with a straight trunk and whorls of hanging branches."""
    h = rng.uniform(5, 16)
    wide, clear = h * rng.uniform(0.12, 0.2), h * rng.uniform(0.05, 0.3)
    r = 0.014 * h
    parts = [rod(r, h, 0.2 * r, 8)]
    count = int(rng.uniform(1000, 1800))
    z = clear + (h - clear) * (1 - np.sqrt(rng.random(count)))
    reach = wide * (1.02 - (z - clear) / (h - clear)) * np.sqrt(rng.uniform(0.1, 1.0, count))
    around = rng.uniform(0, 2 * np.pi, count)
    # Branches grow in whorls.
    z = np.round(z / 0.6) * 0.6 + rng.normal(0, 0.08, count) - 0.25 * reach
    at = np.stack([reach * np.cos(around), reach * np.sin(around), z], axis=-1)
    parts.append(foliage(rng, at[z > 0.1], rng.uniform(0.12, 0.22)))
    for a in np.arange(int(rng.integers(6, 14))) * 2.4:
        s = clear * rng.uniform(0.6, 1.0) + 0.3
        parts.append(bar((0, 0, s), (0.6 * wide * np.cos(a), 0.6 * wide * np.sin(a), s - 0.1), 0.02, 4))
    return join(*parts)


def bush(rng: np.random.Generator) -> Triangles:
    """Build a bush of leaves about a few stems."""
    w, h = rng.uniform(0.5, 2.0), rng.uniform(0.5, 1.8)
    count = int(rng.uniform(150, 500))
    at = rng.normal(size=(count, 3))
    at *= (rng.uniform(0.6, 1.0, count) / np.linalg.norm(at, axis=1))[:, None]
    at = at * (w / 2, w / 2, h / 2) + (0, 0, h / 2) + rng.normal(0, 0.06, (count, 3))
    stems = [bar((0, 0, 0), at[k] * 0.8, 0.015, 4) for k in range(5)]
    return join(foliage(rng, np.maximum(at, (-9, -9, 0.02)), rng.uniform(0.06, 0.14)), *stems)


def hedge(rng: np.random.Generator, length: float) -> Triangles:
    """Build a cut hedge along x."""
    w, h, count = rng.uniform(0.4, 0.9), rng.uniform(0.6, 1.8), int(90 * length)
    at = rng.uniform(-0.5, 0.5, (count, 3)) * (length, w, h) + (0, 0, h / 2)
    outer = rng.integers(3, size=count)
    at[outer == 0, 1] = np.sign(at[outer == 0, 1]) * w / 2
    at[outer == 1, 2] = h
    return join(box(length, 0.5 * w, 0.9 * h), foliage(rng, at + rng.normal(0, 0.03, at.shape), 0.12))


def rock(rng: np.random.Generator) -> Triangles:
    """Build a boulder."""
    w, d, h = rng.uniform((0.3, 0.3, 0.2), (1.8, 1.8, 1.2))
    return place(bumpy(rounded(w, d, h, rng.uniform(0.5, 1.0), 11), rng, 0.1 * w, w), (0, 0, -0.15 * h))


def car(rng: np.random.Generator) -> Triangles:
    """Build a car, a van or a small truck, along x."""
    kind = rng.choice(["car", "car", "car", "van", "truck"])
    length, width = {"car": (4.3, 1.8), "van": (5.4, 2.0), "truck": (7.0, 2.3)}[str(kind)]
    length, width = length * rng.uniform(0.88, 1.12), width * rng.uniform(0.96, 1.05)
    r = {"car": 0.32, "van": 0.35, "truck": 0.45}[str(kind)]
    if kind == "car":
        waist, top = rng.uniform(0.85, 1.0), rng.uniform(1.4, 1.75)
        bonnet, boot = rng.uniform(0.22, 0.3), rng.uniform(0.02, 0.2)
        body = place(rounded(length, width, waist - 0.22, 0.18, 9), (0, 0, 0.22))
        cabin = _cabin(length, 0.92 * width, waist - 0.04, top, boot, 1 - bonnet)
    elif kind == "van":
        waist, top = 1.1, rng.uniform(1.95, 2.7)
        body = place(rounded(length, width, waist - 0.25, 0.15, 9), (0, 0, 0.25))
        cabin = _cabin(length, width, waist - 0.05, top, 0.0, rng.uniform(0.8, 0.9))
    else:
        top = rng.uniform(2.6, 3.3)
        body = place(box(0.68 * length, width, top - 0.9), (-0.15 * length, 0, 0.9))
        cabin = place(box(0.26 * length, 0.94 * width, rng.uniform(1.7, 2.1)), (0.36 * length, 0, 0.5))
        body = join(body, place(box(0.95 * length, 0.5 * width, 0.3), (0, 0, 0.55)))
    wheel = place(rod(r, 0.22, sides=16), roll=np.pi / 2)
    wheels = [
        place(wheel, (s * 0.31 * length, t * width / 2 + (0.02 if t > 0 else 0.2), r))
        for s in (-1, 1)
        for t in (-1, 1)
    ]
    mirrors = [place(box(0.12, 0.2, 0.13), (0.2 * length, t * (width / 2 + 0.08), 1.0)) for t in (-1, 1)]
    return join(body, cabin, *wheels, *mirrors)


def _cabin(length: float, width: float, low: float, top: float, back: float, front: float) -> Triangles:
    """Build a cabin with slanted windows between the shares `back` and `front` of the length."""
    x0, x1 = (back - 0.5) * length, (front - 0.5) * length
    span = x1 - x0
    rows = []
    for z, inset, narrow in ((low, 0.0, 1.0), (top - 0.08, 0.16, 0.84), (top, 0.26, 0.6)):
        a, b, w = x0 + 0.5 * inset * span, x1 - inset * span, width * narrow / 2
        rows.append([[a, -w, z], [b, -w, z], [b, w, z], [a, w, z], [a, -w, z]])
    lid = np.array(rows[-1])
    return join(sheet(np.array(rows)), lid[[[0, 1, 2], [0, 2, 3]]])


def person(rng: np.random.Generator) -> Triangles:
    """Build a standing or walking person."""
    h, stride = rng.uniform(1.5, 1.95), rng.uniform(0.0, 0.35)
    hip, neck = 0.5 * h, 0.83 * h
    parts = []
    for s in (-1, 1):
        knee = (0.5 * s * stride, 0.09 * s, 0.27 * h)
        parts.append(tube([(s * stride, 0.09 * s, 0.0), knee, (0, 0.08 * s, hip)], 0.07, 8))
        parts.append(place(rounded(0.26, 0.1, 0.09, 0.6, 6), (s * stride + 0.05, 0.09 * s, 0)))
        hand = (-0.6 * s * stride, 0.27 * s, 0.47 * h)
        parts.append(tube([(0, 0.2 * s, 0.8 * h), (-0.2 * s * stride, 0.27 * s, 0.62 * h), hand], 0.045, 7))
    parts.append(place(rounded(0.26, 0.42, neck - 0.92 * hip, 0.6, 9), (0, 0, 0.92 * hip)))
    parts.append(place(rounded(0.2, 0.17, 0.14 * h, 1.0, 9), (0, 0, 0.86 * h)))
    return join(*parts)


def street_lamp(rng: np.random.Generator) -> Triangles:
    """Build a lamp post with an arm along x."""
    h = rng.uniform(4, 9)
    out = rng.uniform(0.3, 1.8)
    parts = [rod(0.09, h, 0.05), rod(0.14, 1.0, 0.12), bar((0, 0, h - 0.05), (out, 0, h + 0.15), 0.035)]
    return join(*parts, place(box(0.6, 0.22, 0.1), (out, 0, h + 0.1)))


def sign(rng: np.random.Generator) -> Triangles:
    """Build a traffic sign or a notice on a pole."""
    h, w = rng.uniform(2.0, 2.8), rng.uniform(0.4, 0.8)
    if rng.random() < 0.5:
        plate = place(rod(w / 2, 0.03, sides=int(rng.choice([3, 4, 8, 18]))), roll=np.pi / 2)
        plate = place(plate, (0, -0.04, h))
    else:
        plate = place(box(w, 0.03, rng.uniform(0.3, 0.9)), (0, -0.05, h - 0.3))
    return join(rod(0.035, h + 0.2), plate)


def bench(rng: np.random.Generator) -> Triangles:
    """Build a bench along x with its back at +y."""
    w = rng.uniform(1.2, 2.2)
    slats = [place(box(w, 0.1, 0.04), (0, y, 0.44)) for y in (-0.2, -0.07, 0.06)]
    slats += [place(box(w, 0.04, 0.1), (0, 0.2, z)) for z in (0.6, 0.76)]
    ends = [place(box(0.06, 0.5, 0.44), (s * 0.42 * w, 0, 0)) for s in (-1, 1)]
    ends += [place(box(0.06, 0.05, 0.9), (s * 0.42 * w, 0.23, 0)) for s in (-1, 1)]
    return join(*slats, *ends)


def street_bin(rng: np.random.Generator) -> Triangles:
    """Build a litter bin or a wheeled container."""
    if rng.random() < 0.5:
        r = rng.uniform(0.18, 0.28)
        return lathe([(0, 0), (r, 0), (1.1 * r, 0.8), (0.6 * r, 0.95), (0, 0.97)], 14)
    w, h = rng.uniform(0.5, 1.3), rng.uniform(0.9, 1.2)
    return join(place(box(w, 0.6, h), (0, 0, 0.12)), place(box(1.04 * w, 0.7, 0.08), (0, 0, h + 0.12)))


def bollard(rng: np.random.Generator) -> Triangles:
    """Build a bollard."""
    return rod(rng.uniform(0.05, 0.12), rng.uniform(0.6, 1.0), sides=10)


def planter(rng: np.random.Generator) -> Triangles:
    """Build a tub with a bush."""
    w = rng.uniform(0.5, 1.2)
    return join(box(w, w, 0.5), place(bush(rng) * 0.6, (0, 0, 0.45)))


def fountain(rng: np.random.Generator) -> Triangles:
    """Build a basin with a bowl on a column; it looks the same from many sides."""
    r, sides = rng.uniform(0.9, 2.4), int(rng.choice([4, 8, 24]))
    rim = lathe([(r, 0), (r, 0.5), (r - 0.2, 0.5), (r - 0.25, 0.2), (0, 0.2)], sides)
    column = lathe(
        [(0.25, 0.0), (0.15, 0.5), (0.12, 1.1), (0.5 * r, 1.3), (0.5 * r, 1.38), (0.1, 1.35), (0, 1.9)]
    )
    return join(place(rim, yaw=np.pi / 4), column)
