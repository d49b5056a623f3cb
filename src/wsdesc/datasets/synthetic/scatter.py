"""Scatter clutter over a surface; lists of the clutter for each kind of surface."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from wsdesc.datasets.synthetic.clutter import (
    bag,
    book,
    book_stack,
    bottle,
    cable,
    carton,
    cup,
    desk_lamp,
    device,
    fruit,
    holder,
    keyboard,
    knot,
    laptop,
    leaning_books,
    monitor,
    mouse,
    papers,
    pebble,
    plant,
    toy,
    vessel,
)
from wsdesc.datasets.synthetic.shapes import Triangles, extent, join, place

Maker = Callable[[np.random.Generator], Triangles]

DESK: list[Maker] = [
    book, book_stack, leaning_books, cup, cup, bottle, vessel, keyboard, mouse, monitor, monitor, laptop,
    desk_lamp, plant, carton, bag, toy, papers, papers, cable, device, device, holder, knot, pebble, pebble,
]  # fmt: skip
KITCHEN: list[Maker] = [
    cup, cup, bottle, bottle, vessel, vessel, vessel, carton, device, device, fruit, holder, papers, bag,
    plant, knot, pebble,
]  # fmt: skip
SHELF: list[Maker] = [
    leaning_books, leaning_books, leaning_books, book_stack, vessel, carton, toy, bottle, plant, device, knot,
    bag, holder, pebble,
]  # fmt: skip
FLOOR: list[Maker] = [carton, bag, bag, cable, toy, book_stack, papers, pebble, device, bottle]


def scatter(
    rng: np.random.Generator,
    makers: list[Maker],
    width: float,
    depth: float,
    count: int,
    room_above: float = 9.0,
) -> Triangles:
    """Scatter up to `count` items over a rectangle about the origin; items that do not fit are left out."""
    parts: list[Triangles] = []
    taken: list[tuple[float, float, float]] = []
    for _ in range(count):
        item = makers[rng.integers(len(makers))](rng)
        # Most items on a desk face its front.
        yaw = rng.normal(0, 0.3) if rng.random() < 0.7 else rng.uniform(0, 2 * np.pi)
        item = place(item, yaw=yaw)
        low, high = extent(item)
        item = item - np.array([*(low + high)[:2] / 2, 0.0])
        half = (high - low)[:2] / 2
        room = np.array([width, depth]) / 2 - 0.8 * half
        if high[2] > room_above or room.min() < 0:
            continue
        reach = 0.7 * float(np.sqrt(half[0] * half[1]))
        for _ in range(4):
            x, y = rng.uniform(-room, room)
            if all((x - a) ** 2 + (y - b) ** 2 > (reach + c) ** 2 for a, b, c in taken):
                taken.append((x, y, reach))
                parts.append(item + np.array([x, y, 0.0]))
                break
    return join(*parts)
