"""A floor of a building around a square or rectangular ring of corridors, with equal rooms at its sides.

A pose wrong by 90° or 180° about the centre, or by one room along a corridor, fits nearly as well as the
right one. Rooms hold the same furniture in equal or different places, depending on the building.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wsdesc.core.geometry import Floats
from wsdesc.datasets.synthetic.furniture import (
    big_plant,
    bin_,
    cabinet,
    cartons,
    coat_rack,
    shelf,
    table,
    wardrobe,
)
from wsdesc.datasets.synthetic.scatter import Maker
from wsdesc.datasets.synthetic.seats import chair, office_chair, sofa
from wsdesc.datasets.synthetic.shapes import Triangles, bar, box, flat, join, place, upright
from wsdesc.datasets.synthetic.sites.facade import LAP, pierced
from wsdesc.datasets.synthetic.sites.outdoors import person
from wsdesc.datasets.synthetic.sites.site import Site, grid_spots, motion, perturb

_ROOM: list[Maker] = [table, table, table, shelf, cabinet, wardrobe, sofa, big_plant, cartons]
_SEAT: list[Maker] = [chair, office_chair]
_CORRIDOR: list[Maker] = [bin_, cabinet, big_plant, cartons, chair, coat_rack]
_DOOR = 2.1  # metres, height


@dataclass(frozen=True)
class _Plan:
    bays: tuple[int, int]  # rooms along x and along y
    pitch: float  # width of the rooms with a wall
    depth: float  # depth of the rooms
    corridor: float  # width
    height: float
    door: float  # width
    hinge: float  # where the door is, as a share of the wall
    sill: float
    core: str  # walls inside the ring: blank, doors or windows
    niche: float  # depth of a niche between rooms; 0: none
    equal: float  # share of rooms with equal furniture

    @property
    def half(self) -> Floats:
        """Half the size (2,) of the core."""
        return np.array(self.bays) * self.pitch / 2


def building(rng: np.random.Generator) -> Site:
    """Build a ring of corridors about the z axis."""
    square = rng.random() < 0.5
    x = int(rng.integers(2, 7))
    plan = _Plan(
        bays=(x, x if square else x + int(rng.integers(1, 4))),
        pitch=rng.uniform(3.0, 6.0),
        depth=rng.uniform(3.5, 6.5),
        corridor=rng.uniform(1.6, 3.4),
        height=rng.uniform(2.4, 3.4),
        door=rng.uniform(0.85, 1.1),
        hinge=rng.uniform(0.15, 0.85),
        sill=rng.uniform(0.0, 1.0),
        core=str(rng.choice(["blank", "doors", "windows"])),
        niche=rng.uniform(0.3, 0.8) if rng.random() < 0.3 else 0.0,
        equal=rng.uniform(0.0, 1.0),
    )
    site = Site(fold=4 if square else 2)
    across = 2 * (plan.half + plan.corridor + plan.depth)
    site.add(flat(*across), place(flat(*across), (0, 0, plan.height)))
    stock = [_ROOM[rng.integers(len(_ROOM))](rng) for _ in range(9)]
    stock += [_SEAT[rng.integers(len(_SEAT))](rng) for _ in range(2)]
    usual = _furniture(rng, plan, stock)
    for k in range(4):
        along, away = (0, 1) if k % 2 == 0 else (1, 0)
        side = _side(rng, plan, plan.bays[along], stock, usual)
        at, yaw = (0.0, plan.half[away], 0.0), k * np.pi / 2
        site.add(*(place(place(item, at), yaw=yaw) for item in side.items))
        site.glass += [place(place(pane, at), yaw=yaw) for pane in side.glass]
    for _ in range(int(rng.integers(0, 10))):
        item, k = _CORRIDOR[rng.integers(len(_CORRIDOR))](rng), int(rng.integers(4))
        along, away = (0, 1) if k % 2 == 0 else (1, 0)
        y = plan.half[away] + (0.3 if rng.random() < 0.5 else plan.corridor - 0.3)
        at = (rng.uniform(-0.95, 0.95) * plan.half[along], y, 0)
        site.add(place(place(item, at, yaw=rng.choice([0, np.pi])), yaw=k * np.pi / 2))
    site.spots = _spots(plan)
    turns = (1, 2, 3) if square else (2,)
    site.symmetries = [motion(yaw=k * np.pi / 2) for k in turns]
    site.symmetries += [motion((k * plan.pitch, 0, 0)) for k in (-1, 1)]
    site.symmetries += [motion((0, k * plan.pitch, 0)) for k in (-1, 1)]
    persons = [person(rng) for _ in range(3)]
    if rng.random() < 0.4:
        site.visitors = lambda rng: [
            place(
                persons[rng.integers(3)],
                site.spots[rng.integers(len(site.spots))] + rng.normal(0, 0.2, 3) * (1, 1, 0),
                yaw=rng.uniform(0, 2 * np.pi),
            )
            for _ in range(rng.integers(0, 5))
        ]
    return site


def _side(
    rng: np.random.Generator, plan: _Plan, bays: int, stock: list[Triangles], usual: list[Triangles]
) -> Site:
    """Build a corridor along x from y = 0 to y = corridor, the rooms beyond, and the corner at its end."""
    side, h, c = Site(), plan.height, plan.corridor
    length = bays * plan.pitch
    outside = _window_wall(plan)
    inner = {
        "blank": upright(-plan.pitch / 2 - LAP, plan.pitch / 2 + LAP, 0, h + LAP),
        "doors": _closed_door(plan),
    }
    for i in range(bays):
        x = (i - (bays - 1) / 2) * plan.pitch
        core = _window_wall(plan)[0] if plan.core == "windows" else inner[plan.core]
        side.add(perturb(rng, place(core, (x, 0, 0), yaw=np.pi)))
        if plan.core == "windows":
            side.glass.append(place(outside[1], (x, 0, 0), yaw=np.pi))
        shut = rng.random() < 0.25
        front = _closed_door(plan) if shut else _open_door(rng, plan)
        side.add(perturb(rng, place(front, (x, c, 0))))
        side.add(perturb(rng, place(outside[0], (x, c + plan.depth, 0))))
        side.glass.append(place(outside[1], (x, c + plan.depth, 0)))
        if i > 0:
            between = place(upright(0, plan.depth, 0, h), yaw=np.pi / 2)
            side.add(
                perturb(
                    rng, place(join(between, place(between, (0.1, 0, 0))), (x - plan.pitch / 2 - 0.05, c, 0))
                )
            )
        if plan.niche and i > 0:
            side.add(
                perturb(rng, place(box(0.4, plan.niche / 2, h), (x - plan.pitch / 2, c - plan.niche / 4, 0)))
            )
        furniture = usual if rng.random() < plan.equal else _furniture(rng, plan, stock)
        side.add(*(place(perturb(rng, item, 5.0), (x, c, 0)) for item in furniture))
        lamp = place(box(1.2, 0.3, 0.06), (x, c / 2, h - 0.07))
        side.add(perturb(rng, lamp))
    ends = [place(upright(0, plan.depth, 0, h), (s * length / 2, c, 0), yaw=np.pi / 2) for s in (-1, 1)]
    side.add(*ends)
    side.add(perturb(rng, place(upright(-LAP, c + LAP, 0, h + LAP), (length / 2, c, 0))))
    side.add(perturb(rng, place(upright(-LAP, c + LAP, 0, h + LAP), (length / 2 + c, 0, 0), yaw=np.pi / 2)))
    side.add(bar((-length / 2, c - 0.15, h - 0.2), (length / 2 + c, c - 0.15, h - 0.2), 0.06, 8))
    return side


def _window_wall(plan: _Plan) -> tuple[Triangles, Triangles]:
    w, z0, z1 = 0.32 * plan.pitch, plan.sill, plan.height - 0.3
    hole = (-w, w, z0, z1)
    frame = [place(box(0.06, 0.06, z1 - z0), (x, 0.1, z0)) for x in (-w, 0.0, w)]
    parts = [pierced(plan.pitch, plan.height, hole, 0.2), *frame]
    if z0 > 0.6:
        parts.append(place(box(1.6 * w, 0.1, 0.45), (0, -0.08, 0.1)))  # a radiator
    return join(*parts), upright(*hole, 0.12)


def _doorway(plan: _Plan) -> tuple[float, float, float, float]:
    free = plan.pitch - plan.door - 0.3
    left = 0.15 + plan.hinge * free - plan.pitch / 2
    return left, left + plan.door, 0.0, _DOOR


def _closed_door(plan: _Plan) -> Triangles:
    hole = _doorway(plan)
    handle = bar((hole[1] - 0.15, 0.02, 1.05), (hole[1] - 0.03, 0.02, 1.05), 0.012)
    return join(pierced(plan.pitch, plan.height, hole, 0.12), upright(*hole, 0.08), handle)


def _open_door(rng: np.random.Generator, plan: _Plan) -> Triangles:
    hole = _doorway(plan)
    leaf = place(box(plan.door, 0.04, _DOOR), (plan.door / 2, 0, 0))
    swing = rng.uniform(0.3, 1.7)
    back = pierced(plan.pitch, plan.height, hole, 0.0)
    leaf = place(leaf, (hole[0], 0.14, 0), yaw=swing)
    return join(pierced(plan.pitch, plan.height, hole, 0.12), place(back, (0, 0.12, 0)), leaf)


def _furniture(rng: np.random.Generator, plan: _Plan, stock: list[Triangles]) -> list[Triangles]:
    """Furnish a room between y = 0 and y = depth, centred at the z axis; the door is at y = 0."""
    items = []
    door_at = sum(_doorway(plan)[:2]) / 2
    for _ in range(rng.integers(2, 6)):
        item = stock[rng.integers(len(stock) - 2)]
        back, half = item[..., 1].max() + 0.06, np.abs(item[..., 0]).max()
        kind = rng.integers(3)
        if kind == 0:
            x = rng.uniform(-1, 1) * max(plan.pitch / 2 - half - 0.1, 0)
            items.append(place(item, (x, plan.depth - back, 0)))
        else:
            s = -1.0 if kind == 1 else 1.0
            low = half + (1.0 if abs(s * plan.pitch / 2 - door_at) < 1.2 else 0.1)
            y = rng.uniform(low, max(plan.depth - half, low + 0.1))
            items.append(place(item, (s * (plan.pitch / 2 - 0.05 - back), y, 0), yaw=-s * np.pi / 2))
    for _ in range(rng.integers(0, 4)):
        seat = stock[len(stock) - 1 - rng.integers(2)]
        x, y = rng.uniform((-0.3 * plan.pitch, 0.35 * plan.depth), (0.3 * plan.pitch, 0.8 * plan.depth))
        items.append(place(seat, (x, y, 0), yaw=rng.uniform(0, 2 * np.pi)))
    return items


def _spots(plan: _Plan) -> Floats:
    x, y = plan.half + plan.corridor / 2
    spots = [grid_spots((-x, s * y), (x, s * y), 0.6) for s in (-1, 1)]
    spots += [grid_spots((s * x, -y), (s * x, y), 0.6) for s in (-1, 1)]
    for k in range(4):
        along, away = (0, 1) if k % 2 == 0 else (1, 0)
        for i in range(plan.bays[along]):
            middle = (i - (plan.bays[along] - 1) / 2) * plan.pitch
            low = plan.half[away] + plan.corridor + 0.8
            room = grid_spots(
                (middle - 0.3 * plan.pitch, low), (middle + 0.3 * plan.pitch, low + 0.6 * plan.depth), 1.0
            )
            (cos, sin) = np.cos(k * np.pi / 2), np.sin(k * np.pi / 2)
            spots.append(
                np.stack(
                    [cos * room[:, 0] - sin * room[:, 1], sin * room[:, 0] + cos * room[:, 1], room[:, 2]], -1
                )
            )
    return np.concatenate(spots)
