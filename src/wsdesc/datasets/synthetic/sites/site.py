"""The base of all synthetic sites: triangles, positions of sensors, and symmetries."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from wsdesc.core.geometry import Floats, make_pose
from wsdesc.datasets.synthetic.raycast import Tree
from wsdesc.datasets.synthetic.shapes import Triangles, place, rotation

TOLERANCE = 0.004, 0.0008  # standard deviations of equal parts from the plan, metres and radians
Visitors = Callable[[np.random.Generator], list[Triangles]]


@dataclass(frozen=True)
class Surfaces:
    """Triangles ready for ray casting; see `camera.Scene`."""

    tree: Tree
    item_of: NDArray[np.int32]  # (F,) item of each triangle of the tree
    glass: NDArray[np.bool_]  # (M,) whether an item is glass
    dropout_level: NDArray[np.float32]  # (M,) per item

    @classmethod
    def over(cls, solid: list[Triangles], glass: list[Triangles]) -> Surfaces:
        """Build the tree over items; every tenth solid item is dark or shiny."""
        items = [*solid, *glass]
        tree = Tree.over(np.concatenate(items))
        owner = np.repeat(np.arange(len(items)), [len(item) for item in items])
        level = np.full(len(items), np.inf, dtype=np.float32)
        level[3 : len(solid) : 10] = 1.0
        level[len(solid) :] = -np.inf
        return cls(tree, owner[tree.source].astype(np.int32), np.arange(len(items)) >= len(solid), level)

    def joined(self, other: Surfaces) -> Surfaces:
        """Join two sets of surfaces."""
        return Surfaces(
            self.tree.joined(other.tree),
            np.concatenate([self.item_of, other.item_of + np.int32(len(self.glass))]),
            np.concatenate([self.glass, other.glass]),
            np.concatenate([self.dropout_level, other.dropout_level]),
        )


@dataclass
class Site:
    """A place in metres; z is up."""

    items: list[Triangles] = field(default_factory=list)
    glass: list[Triangles] = field(default_factory=list)  # panes: most rays pass through them
    spots: Floats = field(default_factory=lambda: np.zeros((0, 3)))  # ground below a sensor
    symmetries: list[Floats] = field(default_factory=list)  # (4, 4) equal parts to equal parts
    fold: int = 1  # rotational repetition about the middle
    visitors: Visitors | None = None  # draws moving items; None: nothing moves
    gaze: Floats | None = None  # (3,) target of all sensors; spots are then the sensors

    def add(self, *items: Triangles) -> None:
        """Add items; empty ones are left out."""
        self.items += [item for item in items if len(item)]

    def surfaces(self, rng: np.random.Generator) -> Surfaces:
        """Return the surfaces with the visitors of one moment."""
        moving = [item for item in self.visitors(rng) if len(item)] if self.visitors else []
        return self._still.joined(Surfaces.over(moving, [])) if moving else self._still

    @cached_property
    def _still(self) -> Surfaces:
        return Surfaces.over(self.items, [pane for pane in self.glass if len(pane)])


def perturb(rng: np.random.Generator, item: Triangles, factor: float = 1.0) -> Triangles:
    """Displace a part by the tolerance of building."""
    if len(item) == 0:
        return item
    centre = item.sum(axis=(0, 1)) / (3 * len(item))
    turned = place(item - centre, yaw=rng.normal(0, factor * TOLERANCE[1]))
    return place(turned, centre + rng.normal(0, factor * TOLERANCE[0], 3))


def motion(at: ArrayLike = (0.0, 0.0, 0.0), yaw: float = 0.0) -> Floats:
    """Compute the pose (4, 4) of a rotation about the z axis, then a translation."""
    return make_pose(rotation(yaw), at)


def grid_spots(low: ArrayLike, high: ArrayLike, step: float, z: float = 0.0) -> Floats:
    """Return positions (K, 3) on a grid over a rectangle, at height z."""
    axes = [
        np.linspace(a, b, max(1, round(float(b - a) / step)) + 1)
        for a, b in zip(np.asarray(low), np.asarray(high), strict=True)
    ]
    x, y = np.meshgrid(*axes, indexing="ij")
    return np.stack([x.ravel(), y.ravel(), np.full(x.size, z)], axis=-1)
