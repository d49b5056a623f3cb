"""A synthetic floor of a building with repetitive structure, scanned by a laser from tripods.

The bays have equal walls and different furniture. Wrong poses therefore fit nearly as well as the right one:
one bay further, or rotated by 180° about the centre. Walls of equal bays differ by some millimetres.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from wsdesc.core.errors import InputError
from wsdesc.core.geometry import Floats, make_pose
from wsdesc.datasets.synthetic.furniture import big_plant, bin_, cabinet, cartons, shelf, table, wardrobe
from wsdesc.datasets.synthetic.fusion import voxel_mean
from wsdesc.datasets.synthetic.raycast import Tree, cast
from wsdesc.datasets.synthetic.scanning import SyntheticScan
from wsdesc.datasets.synthetic.scatter import Maker
from wsdesc.datasets.synthetic.seats import chair, office_chair, sofa
from wsdesc.datasets.synthetic.shapes import Triangles, box, flat, join, place, rotation, upright
from wsdesc.datasets.synthetic.walls import wall

_BY_WALL: list[Maker] = [table, table, shelf, cabinet, wardrobe, cartons, big_plant, sofa]
_CENTRE: list[Maker] = [table, table, chair, office_chair, cartons]
_CORRIDOR: list[Maker] = [bin_, cabinet, big_plant, cartons, chair]
_RANGE = (0.5, 30.0)  # metres, shortest and longest measured distance
_RAYS = (1000, 420)  # rays in azimuth, and in elevation from -90° to 90°
_NOISE = 0.004  # metres
_TOLERANCE = 0.005, 0.001  # standard deviations of walls and pillars from the plan, metres and radians


class Floor:
    """A random floor, in metres; z is up, x runs along the corridor, the origin is its centre."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng([seed, 0x0D])
        self.bays = int(rng.integers(3, 9))  # on each side of the corridor
        self.pitch, self.depth = rng.uniform((3.0, 3.5), (6.5, 7.0))  # of a bay, along and across
        self.corridor, self.height = rng.uniform((1.6, 2.5), (3.4, 3.5))
        self.closed = bool(rng.random() < 0.7)  # True: bays are rooms; False: open space between pillars
        self.items = [self._slabs(), *self._ends()]
        for side in (0, 1):
            outside = [wall(rng, self.pitch, self.height, must_open=False) for _ in range(2)]
            front = _front(rng, self.pitch, self.height)
            for bay in range(self.bays):
                panel, extras = outside[int(rng.random() < 0.15)]  # most bays are equal
                items = [place(panel, (0, self.depth, 0))]
                items += [place(extra, (0, self.depth, 0)) for extra in extras]
                items += self._structure(front, bay == self.bays - 1)
                items = [_perturb(rng, item) for item in items] + self._furniture(rng)
                at = ((bay - (self.bays - 1) / 2) * self.pitch, self.corridor / 2)
                yaw = np.pi * side
                self.items += [
                    place(
                        place(item, (*at, 0.0)) if side == 0 else place(item, (-at[0], at[1], 0.0)), yaw=yaw
                    )
                    for item in items
                ]
        for _ in range(rng.integers(0, 2 * self.bays)):
            item = _CORRIDOR[rng.integers(len(_CORRIDOR))](rng)
            x, y = rng.uniform(-0.48, 0.48) * self.length, rng.choice([-0.35, 0.35]) * self.corridor
            self.items.append(place(item, (x, y, 0), yaw=rng.choice([0.0, np.pi])))

    @property
    def length(self) -> float:
        """Length of the corridor."""
        return float(self.bays * self.pitch)

    @cached_property
    def tree(self) -> Tree:
        """Bounding volume tree of the triangles of all items."""
        return Tree.over(np.concatenate(self.items))

    def _slabs(self) -> Triangles:
        across = self.corridor + 2 * self.depth
        return join(flat(self.length, across), place(flat(self.length, across), (0, 0, self.height)))

    def _ends(self) -> list[Triangles]:
        across = self.corridor + 2 * self.depth
        return [
            place(upright(-across / 2, across / 2, 0, self.height), (x, 0, 0), yaw=np.pi / 2)
            for x in (-self.length / 2, self.length / 2)
        ]

    def _structure(self, front: Triangles, last: bool) -> list[Triangles]:
        """Build the walls or pillars between a bay, whose front is at y = 0, and its neighbours."""
        if not self.closed:
            pillar = place(box(0.4, 0.4, self.height), (-self.pitch / 2, 0, 0))
            return [pillar, place(pillar, (0, self.depth / 2, 0))]
        side = upright(-self.depth / 2, self.depth / 2, 0, self.height)
        side = place(side, (-self.pitch / 2, self.depth / 2, 0), yaw=np.pi / 2)
        return [front] if last else [front, side]

    def _furniture(self, rng: np.random.Generator) -> list[Triangles]:
        items = []
        for _ in range(rng.integers(1, 9)):
            item = _BY_WALL[rng.integers(len(_BY_WALL))](rng)
            along = rng.uniform(0.1, 0.9)
            back = item[..., 1].max() + 0.05
            if rng.random() < 0.5:
                at, yaw = ((along - 0.5) * self.pitch, self.depth - back), 0.0
            else:
                side = rng.choice([-1.0, 1.0])
                at, yaw = (side * (self.pitch / 2 - back), along * self.depth), -side * np.pi / 2
            items.append(place(item, (*at, 0.0), yaw=yaw))
        for _ in range(rng.integers(0, 5)):
            item = _CENTRE[rng.integers(len(_CENTRE))](rng)
            x, y = rng.uniform((-0.3 * self.pitch, 0.25 * self.depth), (0.3 * self.pitch, 0.75 * self.depth))
            items.append(place(item, (x, y, 0.0), yaw=rng.uniform(0, 2 * np.pi)))
        return items


def floor_scans(seed: int, count: int, resolution: float = 0.05) -> list[SyntheticScan]:
    """Make laser scans of the floor with this seed, from positions along the corridor and in bays.

    Args:
        seed: Seed of the floor and of the scans.
        count: Number of scans.
        resolution: Distance between points, in metres.
    """
    if seed < 0 or count < 0 or not 0.01 <= resolution <= 0.5:
        raise InputError(
            f"cannot scan a synthetic floor with seed {seed}, count {count}, resolution {resolution}: "
            "seed and count must not be negative, and the resolution must be between 0.01 and 0.5 m"
        )
    floor, rng = Floor(seed), np.random.default_rng([seed, 0x0E])
    scans = []
    for x in (np.linspace(-0.4, 0.4, count) if count > 1 else np.zeros(count)) * floor.length:
        at = np.array([x + rng.normal(0, 0.3), rng.normal(0, 0.2), rng.uniform(1.3, 1.8)])
        if rng.random() < 0.4:  # in a bay
            bay = np.round(at[0] / floor.pitch - (floor.bays - 1) / 2) + (floor.bays - 1) / 2
            at[0] = bay * floor.pitch + rng.normal(0, 0.3)
            at[1] = rng.choice([-1, 1]) * (floor.corridor / 2 + rng.uniform(0.3, 0.5) * floor.depth)
        scans.append(_scan(floor, at, rng.uniform(0, 2 * np.pi), rng, resolution))
    return scans


def _scan(floor: Floor, at: Floats, yaw: float, rng: np.random.Generator, resolution: float) -> SyntheticScan:
    around, up = (np.arange(_RAYS[0]) + rng.random()) / _RAYS[0], (np.arange(_RAYS[1]) + 0.5) / _RAYS[1]
    azimuth, elevation = np.meshgrid(2 * np.pi * around, np.pi * (up - 0.5), indexing="ij")
    level = np.cos(elevation)
    rays = np.stack([level * np.cos(azimuth), level * np.sin(azimuth), np.sin(elevation)], axis=-1)
    rays = rays[elevation > np.radians(-60)].astype(np.float32)  # the tripod hides what is below
    seen = cast(floor.tree, np.broadcast_to(at.astype(np.float32), rays.shape), rays)
    kept = (seen.depth > _RANGE[0]) & (seen.depth < _RANGE[1]) & (seen.slant > 0.05)
    depth = seen.depth[kept] + rng.normal(0, _NOISE, int(kept.sum())).astype(np.float32)
    T_world_scan = make_pose(rotation(yaw), at)
    points = np.einsum("ji,nj->ni", T_world_scan[:3, :3], rays[kept] * depth[:, None]).astype(np.float32)
    return SyntheticScan(voxel_mean(points, resolution), T_world_scan, "terrestrial", np.zeros(3))


def _perturb(rng: np.random.Generator, item: Triangles) -> Triangles:
    """Displace an item by the tolerance of building."""
    centre = item.sum(axis=(0, 1)) / max(1, 3 * len(item))
    turned = place(item - centre, yaw=rng.normal(0, _TOLERANCE[1]))
    return place(turned, centre + rng.normal(0, _TOLERANCE[0], 3))


def _front(rng: np.random.Generator, pitch: float, height: float) -> Triangles:
    """Build the wall between a bay and the corridor, in the plane y = 0, with an open door."""
    width, top = rng.uniform(0.85, 1.1), 2.1
    left = rng.uniform(0.1, pitch - width - 0.1)
    right = pitch - width - left
    parts = [
        place(box(left, 0.12, height), (left / 2 - pitch / 2, 0, 0)),
        place(box(right, 0.12, height), (pitch / 2 - right / 2, 0, 0)),
        place(box(width, 0.12, height - top), (left + width / 2 - pitch / 2, 0, top)),
    ]
    swing = rng.uniform(0.2, 1.4)
    leaf = place(box(width, 0.04, top), (width / 2, 0, 0))
    return join(*parts, place(leaf, (left - pitch / 2, 0.08, 0), yaw=swing))
