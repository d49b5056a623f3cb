"""Scan synthetic sites: choose positions and headings of a sensor so that scans overlap little or much."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from wsdesc.core.errors import InputError
from wsdesc.datasets.synthetic.raycast import cast
from wsdesc.datasets.synthetic.scanning import SyntheticScan
from wsdesc.datasets.synthetic.sensors import Heading, Sensor, draw_sensor
from wsdesc.datasets.synthetic.sites import SITES, SUITABLE, Site, build_site
from wsdesc.datasets.synthetic.sites.site import Surfaces

_TRIES = 30
_CLEARANCE = 0.45  # metres between a sensor and everything else
_COUNTERPART = 0.3  # share of scans from the counterpart of an earlier position in repetitive structure
_SAME = 1.5  # metres between a position and the exact counterpart
_FEWEST = 0.4  # share of a limited field of view that must be in range
_DETAILS = 20  # fewest triangles in a view of 169 rays
_FLATTEST = 0.7  # largest share of the view with one direction of normals


def site_scans(kind: str, seed: int, count: int, sensor: str | None = None) -> list[SyntheticScan]:
    """Scan the site of a kind with this seed.

    Distances between two positions range from half a metre to the size of the site. Where the site has
    repetitive structure, some positions are counterparts of earlier ones: the scans look alike and overlap
    little or not at all. Persons and cars may move from scan to scan.

    Args:
        kind: One of `SITES`.
        seed: Seed of the site, of the sensor and of the scans.
        count: Number of scans. The first scans do not depend on it.
        sensor: One of `SENSORS` that suits the site; None draws one.

    Returns:
        The scans, each in the frame of its sensor.
    """
    if kind not in SITES:
        raise InputError(f"unknown synthetic site {kind!r}: choose one of {', '.join(SITES)}")
    if sensor is not None and sensor not in SUITABLE[kind]:
        raise InputError(
            f"sensor {sensor!r} cannot scan the synthetic site {kind!r}: choose one of "
            f"{', '.join(SUITABLE[kind])}"
        )
    if seed < 0 or count < 0:
        raise InputError(
            f"cannot scan a synthetic site with seed {seed} and count {count}: they must not be negative"
        )
    site = build_site(kind, seed)
    rng = np.random.default_rng([seed, 0x11, SITES.index(kind)])
    name = str(rng.choice(SUITABLE[kind]))
    device = draw_sensor(name if sensor is None else sensor, rng)
    scans: list[SyntheticScan] = []
    places: list[tuple[NDArray[np.float64], float]] = []
    for index in range(count):
        own = np.random.default_rng([seed, 0x12, SITES.index(kind), index])
        surfaces = site.surfaces(own)
        at, heading = _choose(site, surfaces, device, places, own)
        places.append((at, heading.yaw))
        scans.append(device.scan(surfaces, at, heading, own))
    return scans


def _choose(
    site: Site,
    surfaces: Surfaces,
    sensor: Sensor,
    places: list[tuple[NDArray[np.float64], float]],
    rng: np.random.Generator,
) -> tuple[NDArray[np.float64], Heading]:
    """Choose a free position and a heading, relative to those of an earlier scan."""
    best, best_score = (np.zeros(3), Heading(0.0)), -np.inf
    lift = rng.uniform(*sensor.height)
    for _ in range(_TRIES):
        at, yaw = _propose(site, places, lift, rng)
        pitch, roll = rng.normal(0, sensor.tilt, 2)
        heading = Heading(yaw, pitch, roll)
        if site.gaze is not None:
            heading = _towards(at, site.gaze + rng.normal(0, 0.02 * np.linalg.norm(at), 3), roll)
        score = _score(surfaces, sensor, at, heading)
        if score > best_score:
            best, best_score = (at, heading), score
        if score >= 0:
            break
    return best


def _propose(
    site: Site, places: list[tuple[NDArray[np.float64], float]], lift: float, rng: np.random.Generator
) -> tuple[NDArray[np.float64], float]:
    spots = site.spots
    up = np.array([0.0, 0.0, lift if site.gaze is None else 0.0])
    turn = rng.uniform(0, 2 * np.pi)
    if not places:
        return _jitter(spots[rng.integers(len(spots))] + up, site, rng), turn
    before, yaw = places[rng.integers(len(places))]
    if site.symmetries and rng.random() < _COUNTERPART:
        T = site.symmetries[rng.integers(len(site.symmetries))]
        wanted = np.einsum("ij,j->i", T[:3, :3], before) + T[:3, 3]
        offset = np.linalg.norm(spots + up - wanted, axis=1)
        nearest = int(offset.argmin())
        if offset[nearest] < _SAME:
            turned = yaw + np.arctan2(T[1, 0], T[0, 0]) + rng.normal(0, 0.3)
            return _jitter(spots[nearest] + up, site, rng), turned
    # Log-uniform distances give as many near neighbours as far ones.
    distance = np.linalg.norm(spots + up - before, axis=1)
    farthest = float(distance.max())
    nearest_share = 0.02 if site.gaze is None else 0.1
    wanted_distance = farthest * np.exp(rng.uniform(np.log(nearest_share), 0))
    order = np.argsort(np.abs(distance - wanted_distance), kind="stable")[: max(3, len(spots) // 50)]
    heading = yaw + rng.normal(0, 0.6) if rng.random() < 0.7 else turn
    return _jitter(spots[order[rng.integers(len(order))]] + up, site, rng), heading


def _jitter(at: NDArray[np.float64], site: Site, rng: np.random.Generator) -> NDArray[np.float64]:
    return at if site.gaze is not None else at + rng.normal(0, 0.15, 3) * (1, 1, 0.1)


def _towards(at: NDArray[np.float64], gaze: NDArray[np.float64], roll: float) -> Heading:
    x, y, z = gaze - at
    return Heading(float(np.arctan2(y, x)), float(np.arctan2(-z, np.hypot(x, y))), roll)


def _score(surfaces: Surfaces, sensor: Sensor, at: NDArray[np.float64], heading: Heading) -> float:
    """Score a position: 0 if it is clear of everything and the view shows several surfaces; else negative."""
    origin = at.astype(np.float32)
    around = cast(surfaces.tree, np.broadcast_to(origin, _SPHERE.shape), _SPHERE)
    shortfall = min(float(around.depth.min()) / max(_CLEARANCE, sensor.reach[0]) - 1, 0.0)
    if sensor.view is None:
        return shortfall
    steps = np.linspace(-0.9, 0.9, 13) * np.tan(sensor.view)
    y, z = np.meshgrid(steps, steps)
    rays = np.einsum("ij,rcj->rci", heading.matrix, np.stack([np.ones_like(y), y, z], axis=-1))
    hits = cast(surfaces.tree, np.broadcast_to(origin, rays.shape), rays.astype(np.float32))
    seen = (hits.depth > sensor.reach[0]) & (hits.depth < sensor.reach[1])
    shortfall += min(float(seen.mean()) - _FEWEST, 0.0)
    if seen.any():
        # Parallel planes have the same cosines with the three axes.
        _, b, c = np.moveaxis(surfaces.tree.triangles[hits.triangle[seen]], 1, 0)
        normal = np.cross(b, c)
        normal /= np.linalg.norm(normal, axis=1, keepdims=True) + 1e-12
        _, counts = np.unique(np.round(np.abs(normal) * 4), axis=0, return_counts=True)
        shortfall += min(_FLATTEST - counts.max() / seen.sum(), 0.0)
        # Walls have few triangles, details many.
        shortfall += min(len(np.unique(hits.triangle[seen])) / _DETAILS - 1, 0.0)
    return shortfall


def _sphere(count: int) -> NDArray[np.float32]:
    """Return unit vectors (count, 3) all around."""
    z, turn = np.linspace(-0.99, 0.99, count), np.arange(count) * (np.pi * (3 - 5**0.5))
    level = np.sqrt(1 - z**2)
    return np.stack([level * np.cos(turn), level * np.sin(turn), z], axis=-1).astype(np.float32)


_SPHERE = _sphere(200)
