"""Objects: assemblies of random shapes, alone or among clutter on a table."""

from __future__ import annotations

import numpy as np

from wsdesc.core.geometry import Floats
from wsdesc.datasets.synthetic.scatter import DESK, scatter
from wsdesc.datasets.synthetic.shapes import (
    Triangles,
    blob,
    box,
    bumpy,
    extent,
    join,
    lathe,
    legs,
    place,
    ring,
    rod,
    tube,
)
from wsdesc.datasets.synthetic.sites.site import Site

_POSITIONS = 150  # of sensors around an object


def objects(rng: np.random.Generator) -> Site:
    """Build one object about the origin, 5 cm to 2 m large; sensors look at it from all sides."""
    body = _assembly(rng)
    low, high = extent(body)
    size = np.exp(rng.uniform(np.log(0.05), np.log(2.0)))
    site = Site()
    site.add((body - (low + high) / 2) * (size / np.linalg.norm(high - low)))
    site.spots = _orbit(rng.uniform(1.2, 1.6) * size, -0.3, 0.9)
    site.gaze = np.zeros(3)
    return site


def tabletop(rng: np.random.Generator) -> Site:
    """Build a table with clutter about the origin; sensors look at it from above."""
    site = Site()
    w, d, h = rng.uniform((0.9, 0.55, 0.68), (2.0, 0.95, 0.78))
    goods = scatter(rng, DESK, 0.95 * w, 0.95 * d, int(rng.integers(4, 30)))
    site.add(place(box(w, d, 0.04), (0, 0, -0.04)), legs(rng, 0.94 * w, 0.9 * d, h) - (0, 0, h), goods)
    site.add(place(box(8, 8, 0.02), (0, 0, -h - 0.02)))
    for _ in range(rng.integers(0, 4)):
        item = _assembly(rng)
        a, b = extent(item)
        item = (item - (*(a + b)[:2] / 2, a[2])) * (rng.uniform(0.15, 0.4) / np.linalg.norm(b - a))
        x, y = rng.uniform(-0.4, 0.4, 2) * (w, d)
        # Sink it a little: it shall not balance on a corner.
        site.add(place(item, (x, y, -0.1 * item[..., 2].max()), yaw=rng.uniform(0, 2 * np.pi)))
    size = float(np.hypot(w, d))
    site.spots = np.concatenate([_orbit(k * size + 0.4, 0.4, 0.92) for k in (0.6, 0.9)])
    site.gaze = np.zeros(3)
    return site


def _orbit(radius: float, low: float, high: float) -> Floats:
    """Return evenly spread positions (K, 3) on a sphere, between two sines of the elevation."""
    z, turn = np.linspace(low, high, _POSITIONS), np.arange(_POSITIONS) * (np.pi * (3 - 5**0.5))
    level = np.sqrt(1 - z**2)
    return radius * np.stack([level * np.cos(turn), level * np.sin(turn), z], axis=-1)


def _part(rng: np.random.Generator) -> Triangles:
    kind = rng.integers(6)
    w, d, h = rng.uniform(0.15, 0.8, 3)
    if kind == 0:
        return box(w, d, h)
    if kind == 1:
        return rod(w / 2, h, rng.uniform(0.3, 1.0) * w / 2, 24)
    if kind == 2:
        shape = blob(np.array([w, d, h]), rng.uniform(0.3, 1.0), 25)
        return bumpy(shape, rng, rng.uniform(0, 0.06), 0.4)
    if kind == 3:
        return ring(w / 2, 0.15 * w, sides=36)
    if kind == 4:
        z = np.linspace(0, h, 14)
        radius = np.abs(0.25 * w + 0.12 * w * np.sin(z * rng.uniform(4, 14) + rng.uniform(0, 6))) + 0.03
        return lathe([(0.0, 0.0), *zip(radius, z, strict=True), (0.0, h)], 32)
    knots = rng.normal(0, 0.4, (4, 3))
    s = np.linspace(0, 1, 20)[:, None]
    curve = (
        (1 - s) ** 3 * knots[0]
        + 3 * s * (1 - s) ** 2 * knots[1]
        + 3 * s**2 * (1 - s) * knots[2]
        + s**3 * knots[3]
    )
    return tube(curve, rng.uniform(0.04, 0.12), 14)


def _assembly(rng: np.random.Generator) -> Triangles:
    """Join a few random shapes that touch; some assemblies repeat one shape around an axis."""
    core = _part(rng)
    parts = [core - (0, 0, core[..., 2].mean())]
    for _ in range(rng.integers(2, 8)):
        part = _part(rng) * rng.uniform(0.3, 0.9)
        on = parts[rng.integers(len(parts))]
        at = on[rng.integers(len(on))].mean(axis=0)
        pose = rng.uniform(0, 2 * np.pi, 3)
        parts.append(place(part, at, yaw=pose[0], pitch=pose[1], roll=pose[2]))
    if rng.random() < 0.25:
        fold = int(rng.integers(2, 7))
        repeated = join(*parts[1:])
        parts += [place(repeated, yaw=2 * np.pi * k / fold) for k in range(1, fold)]
    return join(*parts)
