"""A warehouse: equal shelves and aisles; the goods differ."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from wsdesc.datasets.synthetic.shapes import Triangles, bar, box, flat, join, place, rod, upright
from wsdesc.datasets.synthetic.sites.outdoors import person
from wsdesc.datasets.synthetic.sites.site import Site, grid_spots, motion, perturb


class _Plan(NamedTuple):
    """Sizes of a warehouse, in metres."""

    rows: int
    bays: int  # of a row
    levels: int
    bay: float  # length of a bay
    deep: float  # depth of a shelf
    level: float  # height of a level
    aisle: float  # width of an aisle
    margin: float  # between the rows and the walls at their ends
    double: bool  # two shelves back to back

    @property
    def pitch(self) -> float:
        """Distance between two rows."""
        return self.aisle + (2 if self.double else 1) * self.deep

    @property
    def length(self) -> float:
        """Length along x."""
        return self.bays * self.bay + 2 * self.margin

    @property
    def width(self) -> float:
        """Width along y."""
        return self.rows * self.pitch + self.aisle


def warehouse(rng: np.random.Generator) -> Site:
    """Build rows of shelves along x."""
    site = Site()
    rows, bays, levels = int(rng.integers(3, 8)), int(rng.integers(5, 13)), int(rng.integers(2, 6))
    bay, deep, level = rng.uniform((1.8, 0.8, 1.2), (3.0, 1.2, 2.0))
    aisle, margin = rng.uniform(1.8, 3.6), rng.uniform(2.5, 5.0)
    plan = _Plan(rows, bays, levels, bay, deep, level, aisle, margin, double=rng.random() < 0.5)
    pitch, length, width = plan.pitch, plan.length, plan.width
    height = levels * level + rng.uniform(0.8, 3.0)
    goods = [_goods(rng, bay, deep, level) for _ in range(int(rng.integers(4, 24)))]
    _add_shelves(rng, site, plan, goods)
    _shell(rng, site, length, width, height)
    for _ in range(rng.integers(0, 8)):  # pallets left on the floor
        at = (rng.uniform(-0.45, 0.45) * length, rng.choice([-0.48, 0.48]) * width + rng.normal(0, 0.2), 0)
        site.add(place(goods[rng.integers(len(goods))], at, yaw=rng.uniform(0, 2 * np.pi)))
    lanes = (np.arange(rows + 1) - rows / 2) * pitch
    reach = length / 2 - 1.0
    cross = length / 2 - margin / 2
    site.spots = np.concatenate(
        [
            *(grid_spots((-reach, y), (reach, y), 0.8) for y in lanes),
            *(grid_spots((x, 1 - width / 2), (x, width / 2 - 1), 0.8) for x in (-cross, cross)),
        ]
    )
    site.symmetries = [motion((0, k * pitch, 0)) for k in (-2, -1, 1, 2)]
    site.symmetries += [motion((k * bay, 0, 0)) for k in (-3, -2, -1, 1, 2, 3)] + [motion(yaw=np.pi)]
    movers = [person(rng), person(rng), _truck(rng)]
    site.visitors = lambda rng: [
        place(
            movers[rng.integers(3)],
            (rng.uniform(-1, 1) * reach, lanes[rng.integers(rows + 1)] + rng.normal(0, 0.2), 0),
            yaw=rng.choice([0, np.pi]),
        )
        for _ in range(rng.integers(0, 4))
    ]
    return site


def _add_shelves(rng: np.random.Generator, site: Site, plan: _Plan, goods: list[Triangles]) -> None:
    """Add the rows of shelves with goods."""
    bay, deep, level, levels = plan.bay, plan.deep, plan.level, plan.levels
    shelf = _shelf(bay, deep, level, levels)
    fill = rng.uniform(0.35, 1.0)  # share of the places with goods
    for row in range(plan.rows):
        y = (row - (plan.rows - 1) / 2) * plan.pitch
        for offset in (-deep / 2, deep / 2) if plan.double else (0.0,):
            for k in range(plan.bays):
                at = ((k - (plan.bays - 1) / 2) * bay, y + offset, 0)
                site.add(perturb(rng, place(shelf, at)))
                stored = [
                    place(
                        goods[rng.integers(len(goods))], (*rng.normal(0, 0.03, 2), n * level + 0.12 * (n > 0))
                    )
                    for n in range(levels + 1)
                    if rng.random() < fill
                ]
                site.add(place(join(*stored), at, yaw=rng.choice([0, np.pi])))
            last = (plan.bays * bay / 2, y + offset, 0)
            site.add(perturb(rng, place(_upright_frame(deep, level * levels + 0.4), last)))


def _upright_frame(deep: float, height: float) -> Triangles:
    """Build the upright of a shelf: two posts and a lattice, in the plane x = 0."""
    parts = [place(box(0.09, 0.07, height), (0, s * (deep / 2 - 0.04), 0)) for s in (-1, 1)]
    levels = np.arange(0.2, height - 0.6, 0.6)
    for k, z in enumerate(levels):
        s = 1 if k % 2 == 0 else -1
        parts.append(bar((0, -s * (deep / 2 - 0.04), z), (0, s * (deep / 2 - 0.04), z + 0.6), 0.02, 4))
    return join(*parts)


def _shelf(bay: float, deep: float, level: float, levels: int) -> Triangles:
    """Build one bay of a shelf, with the upright at its left end."""
    parts = [place(_upright_frame(deep, level * levels + 0.4), (-bay / 2, 0, 0))]
    for n in range(1, levels + 1):
        parts += [place(box(bay, 0.05, 0.12), (0, s * (deep / 2 - 0.03), n * level)) for s in (-1, 1)]
        parts += [place(box(0.08, deep, 0.03), (x * bay, 0, n * level + 0.09)) for x in (-0.25, 0.25)]
    return join(*parts)


def _goods(rng: np.random.Generator, bay: float, deep: float, level: float) -> Triangles:
    """Build the load of one level: pallets with stacked boxes, drums or a single crate."""
    parts = []
    count = 2 if bay < 2.4 else 3
    wide = bay / count - 0.12
    for k in range(count):
        if rng.random() < 0.15:
            continue
        x = (k - (count - 1) / 2) * (bay / count)
        pallet = [place(box(wide, 0.1, 0.1), (0, y * deep, 0)) for y in (-0.4, 0.0, 0.4)]
        pallet.append(place(box(wide, 0.95 * deep, 0.04), (0, 0, 0.1)))
        parts.append(place(join(*pallet), (x, 0, 0)))
        top = level - 0.5
        kind = rng.random()
        if kind < 0.3:
            load = box(
                wide * rng.uniform(0.7, 1.0), deep * rng.uniform(0.7, 0.95), top * rng.uniform(0.3, 1.0)
            )
        elif kind < 0.45:
            r = min(wide, deep) / 4 - 0.01
            load = join(
                *(
                    place(rod(r, min(0.9, top), sides=14), (sx * r, sy * r, 0))
                    for sx in (-1, 1)
                    for sy in (-1, 1)
                )
            )
        else:
            load = _stack(rng, wide, 0.95 * deep, top * rng.uniform(0.3, 1.0))
        parts.append(place(load, (x, 0, 0.14), yaw=rng.normal(0, 0.03)))
    return join(*parts)


def _stack(rng: np.random.Generator, wide: float, deep: float, high: float) -> Triangles:
    """Build a stack of equal boxes of which a few are missing or displaced."""
    counts = np.maximum(np.round(np.array([wide, deep, high]) / rng.uniform(0.25, 0.5, 3)), 1).astype(int)
    size = np.array([wide, deep, high]) / counts
    parts = []
    for i, j, k in np.ndindex(*counts):
        if k == counts[2] - 1 and rng.random() < 0.35:
            continue
        at = np.array([(i + 0.5) * size[0] - wide / 2, (j + 0.5) * size[1] - deep / 2, k * size[2]])
        parts.append(place(box(*(size * 0.96)), at + rng.normal(0, 0.01, 3) * (1, 1, 0)))
    return join(*parts)


def _truck(rng: np.random.Generator) -> Triangles:
    """Build a fork-lift truck, along x."""
    body = join(place(box(1.6, 1.0, 0.8), (-0.3, 0, 0.15)), place(box(1.1, 0.95, 0.05), (-0.3, 0, 2.0)))
    posts = [bar((x, y, 0.9), (x, y, 2.0), 0.03, 6) for x in (-0.8, 0.2) for y in (-0.42, 0.42)]
    mast = [place(box(0.1, 0.1, 2.4), (0.6, y, 0.05)) for y in (-0.3, 0.3)]
    forks = [place(box(1.1, 0.12, 0.04), (1.2, y, rng.uniform(0.05, 0.6))) for y in (-0.25, 0.25)]
    wheels = [
        place(place(rod(0.25, 0.2, sides=14), roll=np.pi / 2), (x, y, 0.25))
        for x in (-0.8, 0.4)
        for y in (-0.3, 0.5)
    ]
    return join(body, *posts, *mast, *forks, *wheels)


def _shell(rng: np.random.Generator, site: Site, length: float, width: float, height: float) -> None:
    """Add floor, roof with beams, and walls with roller doors."""
    site.add(flat(length, width), place(flat(length, width), (0, 0, height)))
    step = rng.uniform(4, 7)
    for x in np.arange(-length / 2 + step / 2, length / 2, step):
        site.add(place(box(0.2, width, 0.35), (x, 0, height - 0.36)))
        for s in (-1, 1):
            site.add(perturb(rng, place(box(0.3, 0.3, height), (x, s * (width / 2 - 0.1), 0))))
    for s in (-1, 1):
        site.add(place(upright(-length / 2, length / 2, 0, height, 0), (0, s * width / 2, 0)))
        site.add(place(upright(-width / 2, width / 2, 0, height, 0), (s * length / 2, 0, 0), yaw=np.pi / 2))
        for y in np.arange(-width / 2 + 3, width / 2 - 2, rng.uniform(5, 9)):
            door = [place(box(3, 0.08, 0.1), (0, 0, z)) for z in np.arange(0.1, 3.0, 0.35)]
            frame = [place(box(0.2, 0.2, 3.2), (x, 0, 0)) for x in (-1.6, 1.6)]
            site.add(place(join(*door, *frame), (s * (length / 2 - 0.06), y, 0), yaw=np.pi / 2))
