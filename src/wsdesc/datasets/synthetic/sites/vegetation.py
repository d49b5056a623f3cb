"""Terrain with trees, bushes, rocks and logs: a wood, a park, or a plantation in rows."""

from __future__ import annotations

import numpy as np
from scipy.ndimage import map_coordinates, zoom

from wsdesc.core.geometry import Floats
from wsdesc.datasets.synthetic.shapes import bar, bumpy, place, sheet
from wsdesc.datasets.synthetic.sites.outdoors import broadleaf, bush, conifer, foliage, rock
from wsdesc.datasets.synthetic.sites.site import Site, grid_spots, motion


class _Terrain:
    """A height field over a square of the given size, with one height per half metre."""

    def __init__(self, rng: np.random.Generator, size: float) -> None:
        self.size, cells = size, int(2 * size)
        height = np.zeros((cells, cells))
        for coarse, amplitude in (
            (3, 0.035 * size * rng.uniform(0, 1)),
            (9, 0.6),
            (30, 0.15),
            (cells, 0.015),
        ):
            field = rng.normal(size=(coarse, coarse)) * amplitude
            height += zoom(field, cells / coarse, order=3)[:cells, :cells] if coarse < cells else field
        self.height = height
        axis = np.linspace(-size / 2, size / 2, cells)
        x, y = np.meshgrid(axis, axis, indexing="ij")
        self.triangles = sheet(np.stack([x, y, height], axis=-1))

    def at(self, xy: Floats) -> Floats:
        """Interpolate heights (N,) at positions (N, 2)."""
        cell = (xy / self.size + 0.5) * (len(self.height) - 1)
        return np.asarray(map_coordinates(self.height, cell.T, order=1, mode="nearest"))


def vegetation(rng: np.random.Generator) -> Site:
    """Build a piece of land about the z axis."""
    site, size = Site(), rng.uniform(40, 90)
    terrain = _Terrain(rng, size)
    site.add(terrain.triangles)
    kind = rng.choice(["wood", "park", "plantation"])
    makers = [broadleaf] if rng.random() < 0.3 else [conifer] if rng.random() < 0.4 else [broadleaf, conifer]
    if kind == "plantation":
        makers = makers[:1]
        step = rng.uniform((2.5, 3.5), (5.0, 6.0))
        x, y = np.meshgrid(
            np.arange(-0.47 * size, 0.47 * size, step[0]), np.arange(-0.47 * size, 0.47 * size, step[1])
        )
        xy = np.stack([x.ravel(), y.ravel()], -1) + rng.normal(0, 0.08, (x.size, 2))
        xy = xy[rng.random(len(xy)) > rng.uniform(0, 0.15)]
        site.symmetries = [
            motion((i * step[0], j * step[1], 0)) for i in (-1, 0, 1) for j in (-1, 0, 1) if i or j
        ]
        site.symmetries.append(motion(yaw=np.pi))
    else:
        per_area = rng.uniform(0.02, 0.06) if kind == "wood" else rng.uniform(0.003, 0.012)
        xy = rng.uniform(-0.48, 0.48, (int(per_area * size**2), 2)) * size
    trees = [makers[k % len(makers)](rng) for k in range(6)]
    spread = 0.05 if kind == "plantation" else 0.25
    for (x, y), z in zip(xy, terrain.at(xy), strict=True):
        tree = trees[rng.integers(len(trees))] * np.clip(rng.normal(1, spread), 0.4, 1.6)
        site.add(place(tree, (x, y, z - 0.05), yaw=rng.uniform(0, 2 * np.pi)))
    small = [maker(rng) for maker in (bush, bush, bush, rock, rock)]
    where = rng.uniform(-0.48, 0.48, (int(rng.uniform(0.002, 0.03) * size**2), 2)) * size
    for (x, y), z in zip(where, terrain.at(where), strict=True):
        site.add(place(small[rng.integers(5)] * rng.uniform(0.6, 1.4), (x, y, z), yaw=rng.uniform(0, 6.3)))
    for x, y in rng.uniform(-0.45, 0.45, (int(rng.integers(0, 10)), 2)) * size:
        turn, long, r = rng.uniform(0, 2 * np.pi), rng.uniform(2, 9), rng.uniform(0.08, 0.25)
        ends = np.array([[x, y], [x + long * np.cos(turn), y + long * np.sin(turn)]])
        a, b = np.column_stack([ends, terrain.at(ends) + 0.8 * r])
        site.add(bumpy(bar(a, b, r, 9), rng, 0.02, 0.6))
    tufts = rng.uniform(-0.48, 0.48, (int(rng.uniform(0, 6000)), 2)) * size
    low = rng.uniform(0.02, 0.25, len(tufts))
    site.add(foliage(rng, np.column_stack([tufts, terrain.at(tufts) + low]), 0.12))
    spots = grid_spots((-0.42 * size,) * 2, (0.42 * size,) * 2, 2.0)
    spots[:, 2] = terrain.at(spots[:, :2])
    site.spots = spots
    return site
