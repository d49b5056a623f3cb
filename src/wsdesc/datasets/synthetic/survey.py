"""Scan synthetic sites: choose positions and headings of a sensor so that scans overlap little or much."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from wsdesc.core.errors import InputError
from wsdesc.core.geometry import Floats
from wsdesc.datasets.synthetic.raycast import Hits, cast
from wsdesc.datasets.synthetic.scanning import SyntheticScan
from wsdesc.datasets.synthetic.sensors import Heading, Sensor, draw_sensor
from wsdesc.datasets.synthetic.sites import SITES, SUITABLE, Site, build_site
from wsdesc.datasets.synthetic.sites.site import Surfaces

Station = tuple[Floats, Heading]  # position (3,) and orientation of a sensor

_TRIES, _MAX_TRIES = 40, 300  # tried stations with a clear view, and all tried stations
_CLEARANCE = 0.45  # metres between a sensor and everything else
_COUNTERPART = 0.25  # share of scans from the counterpart of an earlier position in repetitive structure
_COUNTERPART_DISTANCE = 1.5  # metres between a position and the exact counterpart
_MIN_IN_RANGE = 0.4  # share of a limited field of view that must be in range
_MIN_DETAIL = 0.06  # fewest triangles in a limited field of view, per ray
_MAX_FLAT = 0.7  # largest share of a limited field of view with one direction of normals
_OVERLAP_TOLERANCE = 0.06  # tolerated difference from the wanted overlap
_RAY_ANGLE = 0.15  # radians from a ray of the probe to a direction in the field of view


def site_scans(
    kind: str,
    seed: int,
    count: int,
    sensor: str | None = None,
    overlaps: tuple[float, float] = (0.0, 0.95),
) -> list[SyntheticScan]:
    """Scan the site of a kind with this seed.

    Each scan overlaps one of the earlier scans by a share drawn from `overlaps`, as far as the site allows.
    Where the site has repetitive structure, some positions are counterparts of earlier ones: the
    scans show equal surfaces and overlap little or not at all. Persons and cars may move from scan to scan.

    Args:
        kind: One of `SITES`.
        seed: Seed of the site, of the sensor and of the scans.
        count: Number of scans. The first scans do not depend on it.
        sensor: One of `SENSORS` that suits the site; None draws one.
        overlaps: Smallest and largest wanted overlap of a scan and an earlier one. It is estimated from rays.

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
    if not 0 <= overlaps[0] <= overlaps[1] <= 1:
        raise InputError(f"overlaps {overlaps}: two numbers in ascending order between 0 and 1 are required")
    site = build_site(kind, seed)
    rng = np.random.default_rng([seed, 0x11, SITES.index(kind)])
    name = str(rng.choice(SUITABLE[kind]))
    device = draw_sensor(name if sensor is None else sensor, rng)
    scans: list[SyntheticScan] = []
    stations: list[Station] = []
    for index in range(count):
        own = np.random.default_rng([seed, 0x12, SITES.index(kind), index])
        surfaces = site.surfaces(own)
        wanted = own.uniform(*overlaps)
        stations.append(_choose(site, surfaces, device, stations, wanted, own))
        scans.append(device.scan(surfaces, *stations[-1], own))
    return scans


def _choose(
    site: Site,
    surfaces: Surfaces,
    sensor: Sensor,
    earlier: list[Station],
    wanted: float,
    rng: np.random.Generator,
) -> Station:
    """Choose a free station that overlaps an earlier one by the `wanted` share, or is a counterpart of it."""
    before = earlier[rng.integers(len(earlier))] if earlier else None
    counterpart = bool(site.symmetries) and rng.random() < _COUNTERPART
    up = np.array([0.0, 0.0, rng.uniform(*sensor.height) if site.gaze is None else 0.0])
    best, best_score = (site.spots[0] + up, Heading(0.0)), -np.inf
    free = 0
    for _ in range(_MAX_TRIES):
        station = _propose(site, sensor, before, counterpart, up, rng)
        score = _score(surfaces, sensor, station) if site.gaze is None else 0.0
        free += score >= 0
        if score >= 0 and before is not None and not counterpart:
            shared = min(_shared(surfaces, sensor, a, b) for a, b in ((station, before), (before, station)))
            score = max(1 - abs(shared - wanted), 0.0)
        if score > best_score:
            best, best_score = station, score
        if free == _TRIES or score >= (0.0 if before is None or counterpart else 1 - _OVERLAP_TOLERANCE):
            break
    return best


def _propose(
    site: Site,
    sensor: Sensor,
    before: Station | None,
    counterpart: bool,
    up: Floats,
    rng: np.random.Generator,
) -> Station:
    spots = site.spots + up
    at, yaw = spots[rng.integers(len(spots))], rng.uniform(0, 2 * np.pi)
    if before is not None and counterpart:
        T = site.symmetries[rng.integers(len(site.symmetries))]
        offset = np.linalg.norm(spots - (np.einsum("ij,j->i", T[:3, :3], before[0]) + T[:3, 3]), axis=1)
        if offset.min() < _COUNTERPART_DISTANCE:
            at = spots[offset.argmin()]
            yaw = before[1].yaw + np.arctan2(T[1, 0], T[0, 0]) + rng.normal(0, 0.3)
    elif before is not None:
        # Log-uniform distances: near neighbours are few among all spots.
        distance = np.linalg.norm(spots - before[0], axis=1)
        step = distance.max() * np.exp(rng.uniform(np.log(0.02), 0))
        order = np.argsort(np.abs(distance - step), kind="stable")[: max(3, len(spots) // 50)]
        at = spots[order[rng.integers(len(order))]]
        yaw = before[1].yaw + rng.normal(0, 0.6) if rng.random() < 0.6 else yaw
    pitch, roll = rng.normal(0, sensor.tilt, 2)
    if site.gaze is None:
        return at + rng.normal(0, 0.15, 3) * (1, 1, 0.1), Heading(yaw, pitch, roll)
    x, y, z = site.gaze + rng.normal(0, 0.02 * np.linalg.norm(at), 3) - at
    return at, Heading(float(np.arctan2(y, x)), float(np.arctan2(-z, np.hypot(x, y))), roll)


def _score(surfaces: Surfaces, sensor: Sensor, station: Station) -> float:
    """Score a station: 0 if it is clear of everything and the view shows several surfaces; else negative."""
    origin = station[0].astype(np.float32)
    around = cast(surfaces.tree, np.broadcast_to(origin, _SPHERE.shape), _SPHERE)
    shortfall = min(float(around.depth.min()) / max(_CLEARANCE, sensor.reach[0]) - 1, 0.0)
    if not sensor.aimed or shortfall < 0:
        return shortfall
    _, hits, seen = _look(surfaces, sensor, station)
    shortfall += min(float(seen.mean()) - _MIN_IN_RANGE, 0.0)
    if seen.any():
        _, b, c = np.moveaxis(surfaces.tree.triangles[hits.triangle[seen]], 1, 0)
        normal = np.cross(b, c)
        normal /= np.linalg.norm(normal, axis=1, keepdims=True) + 1e-12
        _, counts = np.unique(np.round(np.abs(normal) * 4), axis=0, return_counts=True)
        shortfall += min(_MAX_FLAT - counts.max() / seen.sum(), 0.0)
        # Walls have few triangles, details many.
        details = len(np.unique(hits.triangle[seen])) / (_MIN_DETAIL * len(seen))
        shortfall += min(details - 1, 0.0)
    return shortfall


def _look(
    surfaces: Surfaces, sensor: Sensor, station: Station
) -> tuple[NDArray[np.float32], Hits, NDArray[np.bool_]]:
    """Cast the probe of a sensor; return the rays in the world (P, 3), their hits, and which are in range."""
    rays = np.einsum("ij,pj->pi", station[1].matrix, sensor.probe).astype(np.float32)
    hits = cast(surfaces.tree, np.broadcast_to(station[0].astype(np.float32), rays.shape), rays)
    return rays, hits, (hits.depth > sensor.reach[0]) & (hits.depth < sensor.reach[1])


def _shared(surfaces: Surfaces, sensor: Sensor, first: Station, second: Station) -> float:
    """Estimate the share of the surface seen from one station that is also seen from another."""
    rays, hits, seen = _look(surfaces, sensor, first)
    if not seen.any():
        return 0.0
    depth = hits.depth[seen]
    points = first[0] + depth[:, None] * rays[seen]
    # A ray stands for an area that grows with the distance and the slant.
    area = depth**2 / np.maximum(hits.slant[seen], 0.1)
    away = points - second[0]
    distance = np.linalg.norm(away, axis=1)
    local = np.einsum("ji,nj->ni", second[1].matrix, away / distance[:, None])
    beside, _ = cKDTree(sensor.probe).query(local)
    back = cast(
        surfaces.tree, np.broadcast_to(second[0].astype(np.float32), away.shape), away.astype(np.float32)
    )
    both = (beside < _RAY_ANGLE) & (back.depth > 0.98)
    both &= (distance > sensor.reach[0]) & (distance < sensor.reach[1])
    return float(area[both].sum() / area.sum())


def _sphere(count: int) -> NDArray[np.float32]:
    """Return unit vectors (count, 3) all around."""
    z, turn = np.linspace(-0.99, 0.99, count), np.arange(count) * (np.pi * (3 - 5**0.5))
    level = np.sqrt(1 - z**2)
    return np.stack([level * np.cos(turn), level * np.sin(turn), z], axis=-1).astype(np.float32)


_SPHERE = _sphere(200)
