"""A street: two rows of facades, pavements with kerbs, trees, lamps, parked and moving cars, persons."""

from __future__ import annotations

import numpy as np

from wsdesc.datasets.synthetic.shapes import Triangles, box, flat, join, place, upright
from wsdesc.datasets.synthetic.sites.facade import Style, facade, roof
from wsdesc.datasets.synthetic.sites.outdoors import (
    bollard,
    broadleaf,
    bush,
    car,
    person,
    sign,
    street_bin,
    street_lamp,
)
from wsdesc.datasets.synthetic.sites.site import Site, grid_spots, motion


def street(rng: np.random.Generator) -> Site:
    """Build a street along x."""
    site = Site()
    road, pavement, kerb = rng.uniform(6, 14), rng.uniform(1.5, 4.5), rng.uniform(0.05, 0.16)
    edge = road / 2 + pavement  # distance of the facades from the middle of the road
    length = rng.uniform(70, 160)
    terrace = rng.random() < 0.5  # equal houses
    styles = [Style.draw(rng) for _ in range(1 if terrace else 6)]
    bays = int(rng.integers(2, 7))
    for side in (0, 1):
        x = -length / 2
        while x < length / 2:
            style = styles[rng.integers(len(styles))]
            count = bays if terrace else int(rng.integers(2, 9))
            house = _house(rng, style, count)
            wide = count * style.bay
            for part in house.items:
                site.add(_stand(part, x + wide / 2, edge, side))
            site.glass += [_stand(pane, x + wide / 2, edge, side) for pane in house.glass]
            gap = rng.random() < (0.1 if terrace else 0.3)
            x += wide + (rng.uniform(3, 9) if gap else 0.0)
    site.add(flat(length + 60, road))
    for s in (-1, 1):
        slab = box(length + 60, pavement + 12, kerb + 0.5)
        site.add(place(slab, (0, s * (road / 2 + (pavement + 12) / 2), -0.5)))
    _furnish(rng, site, length, road, pavement, kerb)
    site.spots = np.concatenate(
        [
            grid_spots((-0.45 * length, -0.2 * road), (0.45 * length, 0.2 * road), 1.5),
            *(grid_spots((-0.45 * length, y), (0.45 * length, y), 1.5, kerb) for y in (1 - edge, edge - 1)),
        ]
    )
    step = bays * styles[0].bay if terrace else styles[0].bay
    site.symmetries = [motion((k * step, 0, 0)) for k in (-3, -2, -1, 1, 2, 3)] + [motion(yaw=np.pi)]
    moving = [car(rng) for _ in range(3)] + [person(rng) for _ in range(4)]
    site.visitors = lambda rng: _traffic(rng, moving, length, road, pavement, kerb)
    return site


def _stand(part: Triangles, x: float, edge: float, side: int) -> Triangles:
    """Move a part of a house to its place in the row at +y (side 0) or at -y (side 1)."""
    return place(part, (x, edge, 0)) if side == 0 else place(part, (x, -edge, 0), yaw=np.pi)


def _house(rng: np.random.Generator, style: Style, bays: int) -> Site:
    """Build a house with its facade in the plane y = 0."""
    kinds = ["shop" if rng.random() < 0.25 else "window"] * bays
    kinds[int(rng.integers(bays))] = "door"
    house = Site()
    parts, house.glass = facade(rng, style, kinds)
    length, depth = bays * style.bay, rng.uniform(8, 12)
    house.add(*parts, roof(length, depth, style.height, rng.uniform(0.0, 1.0), 0.3))
    side = place(upright(0, depth, 0, style.height), yaw=np.pi / 2)
    house.add(join(*(place(side, (s * length / 2, 0, 0)) for s in (-1, 1))))
    if rng.random() < 0.6:
        pipe = place(box(0.1, 0.1, style.height), (rng.choice([-0.47, 0.47]) * length, -0.08, 0))
        house.add(pipe)
    return house


def _furnish(
    rng: np.random.Generator, site: Site, length: float, road: float, pavement: float, kerb: float
) -> None:
    """Add rows of trees and lamps, parked cars, and small things along the facades."""
    kerb_line = road / 2 + 0.5
    trees = [broadleaf(rng, bare=rng.random() < 0.2) for _ in range(3)] if rng.random() < 0.65 else []
    lamp, parking = street_lamp(rng), rng.uniform(0.0, 0.9)
    cars = [car(rng) for _ in range(6)]
    spacing, offset = rng.uniform(7, 14), rng.uniform(0, 7)
    for s in (-1, 1):
        for k, x in enumerate(np.arange(-length / 2 + offset, length / 2, spacing)):
            at = (x + rng.normal(0, 0.1), s * kerb_line, kerb)
            if trees and k % 2 == 0 and pavement > 2:
                tree = trees[rng.integers(len(trees))] * rng.uniform(0.8, 1.15)
                site.add(place(tree, at, yaw=rng.uniform(0, 2 * np.pi)))
            elif k % 3 == 1:
                site.add(place(lamp, at, yaw=-s * np.pi / 2))
        for x in np.arange(-length / 2 + 4, length / 2 - 4, rng.uniform(5.5, 8.0)):
            if rng.random() < parking:
                parked = cars[rng.integers(len(cars))]
                at = (x + rng.normal(0, 0.4), s * (road / 2 - 1.15), 0)
                site.add(place(parked, at, yaw=(s < 0) * np.pi + rng.normal(0, 0.03)))
        for _ in range(int(rng.integers(4, 25))):
            maker = [sign, street_bin, bollard, bush][rng.integers(4)]
            y = s * (road / 2 + rng.choice([0.35, pavement - 0.4]))
            at = (rng.uniform(-0.5, 0.5) * length, y, kerb)
            site.add(place(maker(rng), at, yaw=rng.choice([0, np.pi / 2]) + rng.normal(0, 0.2)))


def _traffic(
    rng: np.random.Generator,
    things: list[Triangles],
    length: float,
    road: float,
    pavement: float,
    kerb: float,
) -> list[Triangles]:
    cars, persons = things[:3], things[3:]
    out = []
    for _ in range(rng.integers(0, 4)):
        s, x = rng.choice([-1, 1]), rng.uniform(-0.5, 0.5) * length
        out.append(place(cars[rng.integers(3)], (x, s * 0.22 * road, 0), yaw=(s > 0) * np.pi))
    for _ in range(rng.integers(0, 12)):
        y = rng.choice([-1, 1]) * (road / 2 + rng.uniform(0.6, pavement - 0.5))
        at = (rng.uniform(-0.5, 0.5) * length, y, kerb)
        out.append(place(persons[rng.integers(4)], at, yaw=rng.uniform(0, 2 * np.pi)))
    return out
