"""Courtyards with 2- or 4-fold rotational repetition: facades, arcades, passages, one court or several.

A pose wrong by 90° or 180° about the centre of a court fits nearly as well as the right one. Equal bays
differ by some millimetres, and only a few items have no counterpart.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wsdesc.core.geometry import Floats
from wsdesc.datasets.synthetic.furniture import bicycle, cartons
from wsdesc.datasets.synthetic.shapes import Triangles, box, flat, join, place, upright
from wsdesc.datasets.synthetic.sites.facade import (
    Style,
    arched,
    door_bay,
    facade,
    roof,
    window_bay,
)
from wsdesc.datasets.synthetic.sites.outdoors import (
    bench,
    broadleaf,
    bush,
    car,
    fountain,
    hedge,
    person,
    planter,
    sign,
    street_bin,
    street_lamp,
)
from wsdesc.datasets.synthetic.sites.site import Site, grid_spots, motion, perturb

_ORBIT = [
    broadleaf,
    broadleaf,
    street_lamp,
    bench,
    planter,
    bush,
    lambda rng: hedge(rng, rng.uniform(1.5, 4)),
]
_SINGLE = [bicycle, street_bin, sign, cartons, bush, planter, bench, car]
_STEP = 0.15  # height of the arcade's floor


@dataclass(frozen=True)
class _Plan:
    style: Style
    fold: int  # 2 or 4
    bays: tuple[int, int]  # along x and along y
    arcade: float  # depth; 0: none
    passages: tuple[bool, bool]  # in the sides along x, and along y
    wing: float  # depth of the buildings
    pitch: float  # of the roof
    core: int  # bays between the sides and a block in the middle of the court; 0: no block

    @property
    def half(self) -> Floats:
        """Half the size (2,) of the court."""
        return np.array(self.bays) * self.style.bay / 2

    @property
    def block(self) -> Floats:
        """Half the size (2,) of the block in the middle; 0 without one."""
        return self.half - self.core * self.style.bay if self.core else np.zeros(2)

    def position(self, rng: np.random.Generator) -> Floats:
        """Draw a position (3,) in the court, outside of the block."""
        while True:
            at = rng.uniform(-1, 1, 2) * (self.half - 1.5)
            if not self.core or (np.abs(at) > self.block + 1.0).any():
                return np.array([*at, 0.0])


def courtyard(rng: np.random.Generator) -> Site:
    """Build one to four equal courts."""
    plan = _draw(rng)
    site = Site(fold=plan.fold)
    counts = [(1, 1), (1, 1), (1, 2), (2, 2)][rng.integers(4)] if any(plan.passages) else (1, 1)
    pitch = 2 * plan.half + plan.wing
    centres = [
        np.array([(i - (counts[0] - 1) / 2) * pitch[0], (j - (counts[1] - 1) / 2) * pitch[1], 0.0])
        for i in range(counts[0])
        for j in range(counts[1])
    ]
    furniture = _furniture(rng, plan)
    singles = rng.uniform(0.3, 8)  # mean number of items without a counterpart in each court
    for centre in centres:
        court = _court(rng, plan)
        court.add(*(perturb(rng, item, 3.0) for item in furniture))
        for _ in range(rng.poisson(singles)):
            item = _SINGLE[rng.integers(len(_SINGLE))](rng)
            court.add(place(item, plan.position(rng), yaw=rng.uniform(0, 2 * np.pi)))
        site.add(*(place(item, centre) for item in court.items))
        site.glass += [place(pane, centre) for pane in court.glass]
    across = 2 * plan.half * counts + plan.wing * (np.array(counts) + 1)
    site.add(flat(*(across + 30)))
    local = _spots(plan)
    site.spots = np.concatenate([local + centre for centre in centres])
    site.symmetries = [
        motion(b) @ motion(yaw=2 * np.pi * k / plan.fold) @ motion(-a)
        for a in centres
        for b in centres
        for k in range(plan.fold)
        if k or a is not b
    ]
    persons = [person(rng) for _ in range(3)]
    if rng.random() < 0.5:
        site.visitors = lambda rng: [
            place(
                persons[rng.integers(3)],
                plan.position(rng) + centres[rng.integers(len(centres))],
                yaw=rng.uniform(0, 2 * np.pi),
            )
            for _ in range(rng.integers(0, 8))
        ]
    return site


def _draw(rng: np.random.Generator) -> _Plan:
    fold = int(rng.choice([2, 4]))
    style = Style.draw(rng, (1, 4))
    x = int(rng.integers(3, 14))
    y = x if fold == 4 else x + int(rng.integers(1, 5))
    gap = int(np.ceil(rng.uniform(4, 9) / style.bay))
    if fold == 4:
        both = bool(rng.random() < 0.7)
        passages = (both, both)
    else:
        passages = (bool(rng.random() < 0.6), bool(rng.random() < 0.6))
    return _Plan(
        style=style,
        fold=fold,
        bays=(x, y),
        arcade=rng.uniform(2.2, 4.0) if rng.random() < 0.5 else 0.0,
        passages=passages,
        wing=rng.uniform(9, 13),
        pitch=rng.uniform(0.2, 0.9),
        core=gap if 2 * gap + 2 <= min(x, y) and rng.random() < 0.7 else 0,
    )


def _court(rng: np.random.Generator, plan: _Plan) -> Site:
    """Build the four sides of a court about the origin."""
    court = Site()
    for k in range(4):
        along, away = (0, 1) if k % 2 == 0 else (1, 0)
        side = _side(rng, plan, plan.bays[along], plan.passages[along])
        yaw, at = k * np.pi / 2, (0.0, plan.half[away], 0.0)
        court.add(*(place(place(item, at), yaw=yaw) for item in side.items))
        court.glass += [place(place(pane, at), yaw=yaw) for pane in side.glass]
        if plan.core:
            kinds = ["window"] * (plan.bays[along] - 2 * plan.core)
            kinds[len(kinds) // 2] = "door"
            parts, glass = facade(rng, plan.style, kinds)
            at = (0.0, -plan.block[away], 0.0)
            court.add(*(place(place(part, at), yaw=yaw) for part in parts))
            court.glass += [place(place(pane, at), yaw=yaw) for pane in glass]
    if plan.core:
        court.add(place(flat(*(2 * plan.block + 0.6)), (0, 0, plan.style.height)))
    return court


def _side(rng: np.random.Generator, plan: _Plan, bays: int, passage: bool) -> Site:
    """Build one side of a court, with its facade in the plane y = 0."""
    style, side = plan.style, Site()
    # Doors and passages lie symmetrically about the middle of the side.
    kinds = ["arch" if plan.arcade else "window"] * bays
    if not plan.arcade:
        kinds[bays // 4] = kinds[bays - 1 - bays // 4] = "door"
    if passage:
        kinds[(bays - 1) // 2] = "passage"
    parts, side.glass = facade(rng, style, kinds)
    length = bays * style.bay
    side.add(*parts, roof(length + 2 * plan.wing, plan.wing, style.height, plan.pitch, 0.4))
    middle = ((bays - 1) // 2 - (bays - 1) / 2) * style.bay
    if plan.arcade:
        side.add(*_gallery(rng, plan, bays, passage))
    if passage:
        reach, wide = plan.wing / 2 - plan.arcade + 0.01, 0.78 * style.bay
        tunnel = [
            place(upright(0, reach, 0, style.ground), (s * wide / 2, 0, 0), yaw=np.pi / 2) for s in (-1, 1)
        ]
        tunnel.append(place(flat(wide, reach), (0, reach / 2, style.ground - 0.3)))
        side.add(place(join(*tunnel), (middle, plan.arcade, 0)))
    return side


def _gallery(rng: np.random.Generator, plan: _Plan, bays: int, passage: bool) -> list[Triangles]:
    """Build the covered walk behind the arches of one side, out to the corners."""
    style, depth = plan.style, plan.arcade
    length = bays * style.bay
    parts = [
        place(flat(length + 2 * depth, depth), (0, depth / 2, style.ground - 0.1)),
        place(box(length + 2 * depth, depth + 0.3, _STEP), (0, depth / 2 - 0.15, 0)),
    ]
    ends = join(
        *(place(upright(0, depth, 0, style.ground), (s, depth, 0)) for s in (-length / 2 - depth, length / 2))
    )
    parts.append(ends)
    closed = [door_bay(style, style.ground), window_bay(style, style.ground)[0]]
    opening = min(0.78 * style.bay, 1.6 * (style.ground - 0.5))
    gate = arched(style.bay, style.ground, opening, max(style.ground - 0.6 - opening / 2, 0.5), 0.3)
    for i in range(bays):
        x = (i - (bays - 1) / 2) * style.bay
        part = gate if passage and i == (bays - 1) // 2 else closed[min(i, bays - 1 - i) % 2]
        parts.append(perturb(rng, place(part, (x, depth, 0))))
    return parts


def _furniture(rng: np.random.Generator, plan: _Plan) -> list[Triangles]:
    """Draw the items of a court, in 2- or 4-fold repetition."""
    items = [fountain(rng)] if rng.random() < 0.4 and not plan.core else []
    for _ in range(rng.integers(0, 5)):
        item = _ORBIT[rng.integers(len(_ORBIT))](rng)
        at, turn = plan.position(rng), rng.uniform(0, 2 * np.pi)
        items += [place(place(item, at, yaw=turn), yaw=2 * np.pi * k / plan.fold) for k in range(plan.fold)]
    return items


def _spots(plan: _Plan) -> Floats:
    inside = plan.half - 1.0
    court = grid_spots(-inside, inside, 1.2)
    spots = [court[(np.abs(court[:, :2]) > plan.block + 0.8).any(axis=1)] if plan.core else court]
    if plan.arcade:
        x, y = plan.half + plan.arcade / 2
        for s in (-1, 1):
            spots.append(grid_spots((-x, s * y), (x, s * y), 1.2, _STEP))
            spots.append(grid_spots((s * x, -y), (s * x, y), 1.2, _STEP))
    return np.concatenate(spots)
