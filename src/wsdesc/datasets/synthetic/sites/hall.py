"""A hall with pillars and trusses at equal distances, gates, and a few machines or goods."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from wsdesc.datasets.synthetic.furniture import cartons, shelf, table, wardrobe
from wsdesc.datasets.synthetic.seats import chair
from wsdesc.datasets.synthetic.shapes import Triangles, bar, box, flat, join, place, rod, upright
from wsdesc.datasets.synthetic.sites.facade import LAP, pierced
from wsdesc.datasets.synthetic.sites.outdoors import car, person
from wsdesc.datasets.synthetic.sites.site import Site, grid_spots, motion, perturb


class _Plan(NamedTuple):
    """Sizes of a hall, in metres."""

    bays: int
    aisles: int
    bay: float  # length of a bay
    aisle: float  # width of an aisle
    height: float

    @property
    def length(self) -> float:
        """Length along x."""
        return self.bays * self.bay

    @property
    def width(self) -> float:
        """Width along y."""
        return self.aisles * self.aisle


def hall(rng: np.random.Generator) -> Site:
    """Build a hall along x."""
    site = Site()
    bays, aisles = int(rng.integers(3, 11)), int(rng.integers(1, 4))
    plan = _Plan(bays, aisles, *rng.uniform((4, 6, 4.5), (9, 16, 12)))
    length, width, bay, aisle = plan.length, plan.width, plan.bay, plan.aisle
    site.add(flat(length, width), place(flat(length, width), (0, 0, plan.height)))
    _add_bays(rng, site, plan)
    _add_ends(rng, site, plan)
    _fill(rng, site, length, width)
    site.spots = grid_spots((1.5 - length / 2, 1.5 - width / 2), (length / 2 - 1.5, width / 2 - 1.5), 1.5)
    steps = [(k * bay, 0, 0) for k in range(-3, 4) if k] + [(0, k * aisle, 0) for k in (-1, 1) if aisles > 1]
    site.symmetries = [motion(step) for step in steps] + [motion(yaw=np.pi)]
    persons = [person(rng) for _ in range(3)]
    if rng.random() < 0.5:
        site.visitors = lambda rng: [
            place(
                persons[rng.integers(3)],
                (*(rng.uniform(-0.45, 0.45, 2) * (length, width)), 0),
                yaw=rng.uniform(0, 6.3),
            )
            for _ in range(rng.integers(0, 8))
        ]
    return site


def _add_bays(rng: np.random.Generator, site: Site, plan: _Plan) -> None:
    """Add pillars and girders, and gates, windows or walls on both sides."""
    bay, aisle, height = plan.bay, plan.aisle, plan.height
    frame = _truss(aisle, height) if rng.random() < 0.7 else _beam(aisle, height)
    thick = rng.uniform(0.25, 0.8)
    pillar = rod(thick / 2, height, sides=20) if rng.random() < 0.4 else box(thick, thick, height)
    gate_every = int(rng.integers(1, 4))
    panel = upright(-bay / 2 - LAP, bay / 2 + LAP, 0, height + LAP)
    sill, top = rng.uniform(0.5, 0.7) * height, 0.92 * height
    windows = pierced(bay, height, (-0.4 * bay, 0.4 * bay, sill, top), 0.3)
    gate = _gate(bay, height)
    for i in range(plan.bays + 1):
        x = i * bay - plan.length / 2
        for j in range(plan.aisles + 1):
            y = j * aisle - plan.width / 2
            site.add(perturb(rng, place(pillar, (x, y, 0))))
            if j < plan.aisles:
                site.add(perturb(rng, place(frame, (x, y + aisle / 2, 0))))
        if i < plan.bays:
            for s in (-1, 1):
                part = gate if i % gate_every == 0 else windows if rng.random() < 0.95 else panel
                at = (x + bay / 2, s * plan.width / 2, 0)
                site.add(perturb(rng, place(part, at, yaw=0 if s > 0 else np.pi)))


def _add_ends(rng: np.random.Generator, site: Site, plan: _Plan) -> None:
    """Add the end walls, and a pipe along each side."""
    length, width, aisle, height = plan.length, plan.width, plan.aisle, plan.height
    wall = upright(-aisle / 2 - LAP, aisle / 2 + LAP, 0, height + LAP)
    for s in (-1, 1):
        for j in range(plan.aisles):
            at = (s * length / 2, (j - (plan.aisles - 1) / 2) * aisle, 0)
            site.add(perturb(rng, place(wall, at, yaw=np.pi / 2)))
        start, end = ((x, s * 0.4 * width, 0.85 * height) for x in (-length / 2, length / 2))
        site.add(bar(start, end, 0.2, 12))


def _truss(span: float, height: float) -> Triangles:
    """Build a lattice girder along y below the ceiling."""
    depth = 0.08 * span + 0.3
    low, high = height - depth - 0.1, height - 0.1
    count = max(4, 2 * round(span / (2 * depth)))
    y = np.linspace(-span / 2, span / 2, count + 1)
    parts = [place(box(0.16, span, 0.16), (0, 0, z - 0.08)) for z in (low, high)]
    for k in range(count):
        ends = (low, high) if k % 2 == 0 else (high, low)
        parts.append(bar((0, y[k], ends[0]), (0, y[k + 1], ends[1]), 0.05, 6))
    return join(*parts)


def _beam(span: float, height: float) -> Triangles:
    """Build an I-beam along y below the ceiling."""
    depth = 0.05 * span + 0.2
    web = place(box(0.06, span, depth), (0, 0, height - depth))
    return join(web, *(place(box(0.35, span, 0.05), (0, 0, height - s * depth - 0.05)) for s in (0, 1)))


def _gate(bay: float, height: float) -> Triangles:
    w, h = min(0.7 * bay, 4.5), min(0.7 * height, 4.5)
    door = upright(-w / 2, w / 2, 0, h, 0.2)
    ribs = [place(box(w, 0.06, 0.08), (0, 0.18, z)) for z in np.arange(0.5, h, 0.5)]
    return join(pierced(bay, height, (-w / 2, w / 2, 0, h), 0.2), door, *ribs)


def _machine(rng: np.random.Generator) -> Triangles:
    """Build a machine of boxes, cylinders and pipes."""
    w, d, h = rng.uniform((1, 0.8, 0.8), (4, 2.2, 2.4))
    parts = [box(w, d, h)]
    for _ in range(rng.integers(2, 7)):
        x, y = rng.uniform(-0.4, 0.4, 2) * (w, d)
        size = rng.uniform(0.2, 0.8, 3) * (0.5 * w, 0.6 * d, h)
        part = box(*size) if rng.random() < 0.5 else rod(size[:2].min() / 2, size[2], sides=16)
        parts.append(
            place(part, (x, y, h)) if rng.random() < 0.5 else place(part, (1.1 * x, -d / 2, 0.3 * h))
        )
    parts.append(bar((0.4 * w, 0.3 * d, h), (0.4 * w, 0.3 * d, h + 1.2), 0.08))
    return join(*parts)


def _fill(rng: np.random.Generator, site: Site, length: float, width: float) -> None:
    makers = [_machine, _machine, cartons, car, shelf, table, wardrobe, chair]
    things = [makers[rng.integers(len(makers))](rng) for _ in range(8)]
    for _ in range(int(rng.uniform(2, 0.06 * length * width + 4))):
        at = (*(rng.uniform(-0.46, 0.46, 2) * (length, width)), 0)
        thing = things[rng.integers(len(things))]
        site.add(place(thing, at, yaw=rng.choice([0, np.pi / 2, np.pi]) + rng.normal(0, 0.1)))
