"""A floor of a building, scanned by laser from tripods: bays that are built alike and used differently.

Here wrong poses fit nearly as well as right ones: a bay further, or turned by half about the middle. But
nobody builds to the millimetre: of two equal bays the walls stand some millimetres differently.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from wsdesc.core.errors import InputError
from wsdesc.datasets.synthetic.furniture import big_plant, bin_, cabinet, cartons, shelf, table, wardrobe
from wsdesc.datasets.synthetic.fusion import voxel_mean
from wsdesc.datasets.synthetic.raycast import Tree, cast
from wsdesc.datasets.synthetic.scanning import SyntheticScan
from wsdesc.datasets.synthetic.scatter import Maker
from wsdesc.datasets.synthetic.seats import chair, office_chair, sofa
from wsdesc.datasets.synthetic.shapes import Triangles, box, flat, join, place, rotation, sheet
from wsdesc.datasets.synthetic.walls import wall

_BY_WALL: list[Maker] = [table, table, shelf, cabinet, wardrobe, cartons, big_plant, sofa]
_IN_THE_MIDDLE: list[Maker] = [table, table, chair, office_chair, cartons]
_IN_THE_CORRIDOR: list[Maker] = [bin_, cabinet, big_plant, cartons, chair]
_RANGE = (0.5, 30.0)  # metres that the scanner measures
_RAYS = (1000, 420)  # around, and from straight down to straight up
_NOISE = 0.004  # metres
_TOLERANCE = 0.005, 0.001  # metres and radians that a wall or a pillar is off its plan, a standard deviation


class Floor:
    """The floor that belongs to a seed, in metres; z is up, x runs along the corridor, its middle is 0."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng([seed, 0x0D])
        self.bays = int(rng.integers(3, 9))  # on either side
        self.pitch, self.depth = rng.uniform((3.0, 3.5), (6.5, 7.0))  # of a bay, along and across
        self.corridor, self.height = rng.uniform((1.6, 2.5), (3.4, 3.5))
        self.closed = bool(rng.random() < 0.7)  # bays are rooms; else the floor is open between pillars
        self.things = [self._slabs(), *self._ends()]
        for side in (0, 1):
            outside = [wall(rng, self.pitch, self.height, must_open=False) for _ in range(2)]
            front = _front(rng, self.pitch, self.height)
            for bay in range(self.bays):
                panel, extras = outside[int(rng.random() < 0.15)]  # nearly all alike
                things = [place(panel, (0, self.depth, 0))]
                things += [place(extra, (0, self.depth, 0)) for extra in extras]
                things += self._structure(front, bay == self.bays - 1)
                things = [_built(rng, thing) for thing in things] + self._furniture(rng)
                at = ((bay - (self.bays - 1) / 2) * self.pitch, self.corridor / 2)
                yaw = np.pi * side
                self.things += [
                    place(
                        place(thing, (*at, 0.0)) if side == 0 else place(thing, (-at[0], at[1], 0.0)), yaw=yaw
                    )
                    for thing in things
                ]
        for _ in range(rng.integers(0, 2 * self.bays)):
            thing = _IN_THE_CORRIDOR[rng.integers(len(_IN_THE_CORRIDOR))](rng)
            x, y = rng.uniform(-0.48, 0.48) * self.length, rng.choice([-0.35, 0.35]) * self.corridor
            self.things.append(place(thing, (x, y, 0), yaw=rng.choice([0.0, np.pi])))

    @property
    def length(self) -> float:
        """Of the corridor."""
        return float(self.bays * self.pitch)

    @cached_property
    def tree(self) -> Tree:
        """The triangles of all things, ready to be seen."""
        return Tree.over(np.concatenate(self.things))

    def _slabs(self) -> Triangles:
        across = self.corridor + 2 * self.depth
        return join(flat(self.length, across), place(flat(self.length, across), (0, 0, self.height)))

    def _ends(self) -> list[Triangles]:
        across = self.corridor + 2 * self.depth
        return [
            place(_upright(across, self.height), (x, 0, 0), yaw=np.pi / 2)
            for x in (-self.length / 2, self.length / 2)
        ]

    def _structure(self, front: Triangles, last: bool) -> list[Triangles]:
        """What stands between a bay, whose front is at y = 0, and its neighbours."""
        if not self.closed:
            pillar = place(box(0.4, 0.4, self.height), (-self.pitch / 2, 0, 0))
            return [pillar, place(pillar, (0, self.depth / 2, 0))]
        side = place(_upright(self.depth, self.height), (-self.pitch / 2, self.depth / 2, 0), yaw=np.pi / 2)
        return [front] if last else [front, side]

    def _furniture(self, rng: np.random.Generator) -> list[Triangles]:
        things = []
        for _ in range(rng.integers(1, 9)):
            thing = _BY_WALL[rng.integers(len(_BY_WALL))](rng)
            along = rng.uniform(0.1, 0.9)
            back = thing[..., 1].max() + 0.05
            if rng.random() < 0.5:
                at, yaw = ((along - 0.5) * self.pitch, self.depth - back), 0.0
            else:
                side = rng.choice([-1.0, 1.0])
                at, yaw = (side * (self.pitch / 2 - back), along * self.depth), -side * np.pi / 2
            things.append(place(thing, (*at, 0.0), yaw=yaw))
        for _ in range(rng.integers(0, 5)):
            thing = _IN_THE_MIDDLE[rng.integers(len(_IN_THE_MIDDLE))](rng)
            x, y = rng.uniform((-0.3 * self.pitch, 0.25 * self.depth), (0.3 * self.pitch, 0.75 * self.depth))
            things.append(place(thing, (x, y, 0.0), yaw=rng.uniform(0, 2 * np.pi)))
        return things


def floor_scans(seed: int, count: int, resolution: float = 0.05) -> list[SyntheticScan]:
    """`count` laser scans of the floor that belongs to `seed`, (N, 3) each around its scanner, thinned to
    `resolution` in metres. Scanners stand some metres apart along the corridor, some of them in bays."""
    if seed < 0 or count < 0 or not 0.01 <= resolution <= 0.5:
        raise InputError(
            f"cannot scan a synthetic floor with seed {seed}, count {count}, resolution {resolution}: "
            "seed and count must not be negative, and the resolution lies in 0.01 … 0.5 m"
        )
    floor, rng = Floor(seed), np.random.default_rng([seed, 0x0E])
    scans = []
    for x in (np.linspace(-0.4, 0.4, count) if count > 1 else np.zeros(count)) * floor.length:
        at = np.array([x + rng.normal(0, 0.3), rng.normal(0, 0.2), rng.uniform(1.3, 1.8)])
        if rng.random() < 0.4:  # in the bay, behind its door
            bay = np.round(at[0] / floor.pitch - (floor.bays - 1) / 2) + (floor.bays - 1) / 2
            at[0] = bay * floor.pitch + rng.normal(0, 0.3)
            at[1] = rng.choice([-1, 1]) * (floor.corridor / 2 + rng.uniform(0.3, 0.5) * floor.depth)
        scans.append(_scan(floor, at, rng.uniform(0, 2 * np.pi), rng, resolution))
    return scans


def _scan(
    floor: Floor, at: NDArray[np.float64], yaw: float, rng: np.random.Generator, resolution: float
) -> SyntheticScan:
    around, up = (np.arange(_RAYS[0]) + rng.random()) / _RAYS[0], (np.arange(_RAYS[1]) + 0.5) / _RAYS[1]
    azimuth, elevation = np.meshgrid(2 * np.pi * around, np.pi * (up - 0.5), indexing="ij")
    level = np.cos(elevation)
    rays = np.stack([level * np.cos(azimuth), level * np.sin(azimuth), np.sin(elevation)], axis=-1)
    rays = rays[elevation > np.radians(-60)].astype(np.float32)  # below is the tripod
    seen = cast(floor.tree, np.broadcast_to(at.astype(np.float32), rays.shape), rays)
    kept = (seen.depth > _RANGE[0]) & (seen.depth < _RANGE[1]) & (seen.slant > 0.05)
    depth = seen.depth[kept] + rng.normal(0, _NOISE, int(kept.sum())).astype(np.float32)
    T_world_scan = np.eye(4)
    T_world_scan[:3, :3], T_world_scan[:3, 3] = rotation(yaw), at
    points = np.einsum("ji,nj->ni", T_world_scan[:3, :3], rays[kept] * depth[:, None]).astype(np.float32)
    return SyntheticScan(voxel_mean(points, resolution), T_world_scan)


def _built(rng: np.random.Generator, thing: Triangles) -> Triangles:
    """As it came out, not as it was planned."""
    middle = thing.sum(axis=(0, 1)) / max(1, 3 * len(thing))
    turned = place(thing - middle, yaw=rng.normal(0, _TOLERANCE[1]))
    return place(turned, middle + rng.normal(0, _TOLERANCE[0], 3))


def _upright(length: float, height: float) -> Triangles:
    """A bare wall in the plane y = 0 around the z axis."""
    x = length / 2
    return sheet(np.array([[[-x, 0, 0], [-x, 0, height]], [[x, 0, 0], [x, 0, height]]]))


def _front(rng: np.random.Generator, pitch: float, height: float) -> Triangles:
    """The wall between a bay and the corridor, in the plane y = 0, with a door that stands open."""
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
