"""A synthetic room: walls with openings and fixtures, and furniture with clutter."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from wsdesc.core.geometry import Floats
from wsdesc.datasets.synthetic.furniture import (
    bicycle,
    big_plant,
    bin_,
    cabinet,
    cartons,
    coat_rack,
    counter,
    floor_lamp,
    shelf,
    table,
    wardrobe,
)
from wsdesc.datasets.synthetic.raycast import Tree
from wsdesc.datasets.synthetic.scatter import FLOOR, Maker
from wsdesc.datasets.synthetic.seats import bed, chair, drum, office_chair, sofa
from wsdesc.datasets.synthetic.shapes import Triangles, bar, blob, box, extent, flat, join, place, rod
from wsdesc.datasets.synthetic.walls import wall

_BY_WALL: dict[str, list[Maker]] = {
    "office": [table, table, table, shelf, shelf, cabinet, wardrobe, big_plant, coat_rack, cartons, bin_],
    "living": [sofa, sofa, shelf, cabinet, cabinet, table, floor_lamp, big_plant, drum, cartons],
    "kitchen": [counter, counter, counter, shelf, wardrobe, cabinet, bin_, table, chair],
    "bedroom": [bed, bed, wardrobe, cabinet, table, chair, coat_rack, floor_lamp, sofa, shelf],
    "workshop": [table, table, shelf, shelf, cartons, cartons, bicycle, bicycle, cabinet, drum, bin_, chair],
}
_CENTRE: list[Maker] = [
    table, table, table, sofa, drum, office_chair, chair, cartons, bicycle, shelf, big_plant,
]  # fmt: skip


class Room:
    """A random room, in metres; z is up, the origin of the world is the centre of the floor."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng([seed, 0x0A])
        self.size: Floats = rng.uniform((2.6, 2.4, 2.3), (6.5, 5.0, 3.1))
        self.kind = str(rng.choice(list(_BY_WALL)))
        self.items: list[Triangles] = []  # the shell first
        self._taken: list[Floats] = []  # (4,) low and high corner of each footprint

        self._build_shell(rng)
        self._furnish_walls(rng)
        self._furnish_centre(rng)
        for _ in range(rng.integers(0, 25)):
            item = FLOOR[rng.integers(len(FLOOR))](rng)
            self._stand(item, rng.uniform(-0.48, 0.48, 2) * self.size[:2], rng.uniform(0, 2 * np.pi))

        # Dark and shiny items lose pixels where a unit random field exceeds the item's level.
        level = rng.uniform(-0.3, 1.5, len(self.items))
        self.dropout_level = np.where(rng.random(len(self.items)) < 0.12, level, np.inf).astype(np.float32)
        self.dropout_level[0] = np.inf

    @cached_property
    def tree(self) -> Tree:
        """Bounding volume tree of the triangles of all items."""
        return Tree.over(np.concatenate(self.items))

    @cached_property
    def item_of(self) -> NDArray[np.int32]:
        """Item (F,) of each triangle of the tree; the shell is item 0."""
        owner = np.repeat(np.arange(len(self.items)), [len(item) for item in self.items])
        return owner[self.tree.source].astype(np.int32)

    def _build_shell(self, rng: np.random.Generator) -> None:
        length, width, height = self.size
        shell = [flat(length, width), place(flat(length, width), (0, 0, height))]
        fixtures = []
        for side, (across, out) in enumerate([(length, width), (width, length)] * 2):
            panel, extras = wall(rng, across, height, must_open=side == 0)
            yaw = side * np.pi / 2
            at = np.array([-np.sin(yaw), np.cos(yaw), 0]) * out / 2
            shell.append(place(panel, at, yaw=yaw))
            fixtures += [place(extra, at, yaw=yaw) for extra in extras]
        if rng.random() < 0.3:  # a pillar or chimney in a corner or along a wall
            w, d = rng.uniform(0.2, 0.6, 2)
            pillar = box(w, d, height) if rng.random() < 0.7 else rod(w / 2, height, sides=18)
            x, y = rng.choice([-0.5, 0.1, 0.5], 2) * self.size[:2]
            shell.append(place(pillar, (x, y, 0)))
        if rng.random() < 0.35:
            sag = rng.uniform(0.3, 0.9)
            shade = place(blob(rng.uniform(0.2, 0.5, 3)), (0, 0, -sag - 0.3))
            lamp = join(bar((0, 0, 0), (0, 0, -sag), 0.008, 5), shade)
            fixtures.append(place(lamp, (*rng.normal(0, 0.4, 2), height)))
        self.items += [join(*shell), *fixtures]

    def _furnish_walls(self, rng: np.random.Generator) -> None:
        makers = _BY_WALL[self.kind]
        for _ in range(int(rng.uniform(1.2, 4.0) * self.size[:2].sum())):
            item = makers[rng.integers(len(makers))](rng)
            side = int(rng.integers(4))
            across, out = self.size[[0, 1]] if side % 2 == 0 else self.size[[1, 0]]
            back = item[..., 1].max()
            gap = abs(rng.normal(0, 0.05)) + (rng.uniform(0.1, 0.8) if rng.random() < 0.15 else 0.0)
            x, y = rng.uniform(-0.5, 0.5) * across, out / 2 - back - gap - 0.02
            yaw = side * np.pi / 2
            xy = np.array([x * np.cos(yaw) - y * np.sin(yaw), x * np.sin(yaw) + y * np.cos(yaw)])
            lean = rng.normal(0, 0.04) if rng.random() < 0.7 else rng.normal(0, 0.3)
            desk = self._stand(item, xy, yaw + lean)
            if desk and item[..., 2].max() < 1.6 and rng.random() < 0.6:
                seat = (office_chair if rng.random() < 0.6 else chair)(rng)
                forward = np.array([np.sin(yaw), -np.cos(yaw)]) * rng.uniform(0.6, 0.9)
                self._stand(seat, xy + forward, yaw + np.pi + rng.normal(0, 0.6))

    def _furnish_centre(self, rng: np.random.Generator) -> None:
        for _ in range(int(rng.uniform(0.1, 0.8) * self.size[0] * self.size[1])):
            item = _CENTRE[rng.integers(len(_CENTRE))](rng)
            xy, yaw = rng.uniform(-0.36, 0.36, 2) * self.size[:2], rng.uniform(0, 2 * np.pi)
            if self._stand(item, xy, yaw) and np.ptp(item[..., 0]) > 1.0:
                for _ in range(rng.integers(0, 5)):
                    around, reach = rng.uniform(0, 2 * np.pi), rng.uniform(0.6, 1.0)
                    at = xy + reach * np.array([np.cos(around), np.sin(around)])
                    self._stand(chair(rng), at, around + rng.normal(-np.pi / 2, 0.4))

    def _stand(self, item: Triangles, xy: Floats, yaw: float) -> bool:
        """Put an item on the floor; return False if it would leave the room or intersect another item."""
        item = place(item, (*xy, 0.0), yaw=yaw)
        low, high = extent(item)
        reach = np.maximum(-low, high)
        if (reach > self.size * (0.5, 0.5, 1.0) - 0.01).any():
            return False
        # Corners of a rotated footprint are mostly empty: tolerate an overlap of a tenth.
        slack = 0.1 * (high - low)[:2]
        for taken in self._taken:
            if (low[:2] + slack < taken[2:]).all() and (high[:2] - slack > taken[:2]).all():
                return False
        self._taken.append(np.concatenate([low[:2] + slack, high[:2] - slack]))
        self.items.append(item)
        return True
