"""A stairwell of equal storeys: flights that turn back, landings, doors and short corridors."""

from __future__ import annotations

import numpy as np

from wsdesc.datasets.synthetic.furniture import bicycle, big_plant, bin_, cartons
from wsdesc.datasets.synthetic.seats import chair
from wsdesc.datasets.synthetic.shapes import Triangles, bar, box, join, place, upright
from wsdesc.datasets.synthetic.sites.facade import pierced
from wsdesc.datasets.synthetic.sites.outdoors import person
from wsdesc.datasets.synthetic.sites.site import Site, grid_spots, motion, perturb

_THINGS = [bicycle, big_plant, bin_, cartons, chair]


def stairwell(rng: np.random.Generator) -> Site:
    """Build a stairwell; the flights run along x, the corridors of the storeys along y beyond the landing."""
    site = Site()
    storeys, steps = int(rng.integers(3, 8)), int(rng.integers(7, 11))  # steps of one flight
    rise, tread, flight = rng.uniform((0.155, 0.25, 1.1), (0.19, 0.31, 1.9))
    eye, landing = rng.uniform((0.1, 1.2), (1.6, 2.4))  # gap between the flights, depth of the landings
    corridor, reach = rng.uniform((1.5, 3.0), (2.6, 8.0))  # of the storeys, across x and along y
    storey, run = 2 * steps * rise, steps * tread
    width = 2 * flight + eye
    unit = _storey(rng, steps, rise, tread, flight, eye, landing)
    walls = _walls(rng, run, width, landing, corridor, reach, storey)
    for k in range(storeys):
        up = np.array([0.0, 0.0, k * storey])
        if k < storeys - 1:
            site.add(*(perturb(rng, part) + up for part in unit))
        site.add(*(perturb(rng, part) + up for part in walls))
        for _ in range(rng.poisson(rng.uniform(0, 2))):
            item = _THINGS[rng.integers(len(_THINGS))](rng)
            y = rng.uniform(-1, 1) * (width / 2 + reach - 0.5)
            at = (-landing - corridor + 0.35, y, k * storey)
            site.add(place(item, at, yaw=-np.pi / 2))
    top = storeys * storey
    x0, x1 = -landing - corridor, run + landing
    for z in (-0.01, top):
        site.add(place(box(x1 - x0 + 0.4, width + 2 * reach + 0.4, 0.02), ((x0 + x1) / 2, 0, z)))
    spots = [grid_spots((0.45 - landing, 0.45 - width / 2), (-0.45, width / 2 - 0.45), 0.4)]
    half = grid_spots(
        (run + 0.45, 0.45 - width / 2), (run + landing - 0.45, width / 2 - 0.45), 0.4, storey / 2
    )
    middle = -landing - corridor / 2
    spots.append(grid_spots((middle, 0.6 - width / 2 - reach), (middle, width / 2 + reach - 0.6), 0.7))
    up = np.array([0.0, 0.0, storey])
    levels = [part + k * up for k in range(storeys) for part in spots]
    levels += [half + k * up for k in range(storeys - 1)]
    site.spots = np.concatenate(levels)
    site.symmetries = [motion((0, 0, k * storey)) for k in (-3, -2, -1, 1, 2, 3)]
    site.symmetries += [motion((run, 0, s * storey / 2), yaw=np.pi) for s in (-1, 1)]
    if rng.random() < 0.3:
        someone = person(rng)
        site.visitors = lambda rng: [
            place(someone, site.spots[rng.integers(len(site.spots))], yaw=rng.uniform(0, 2 * np.pi))
            for _ in range(rng.integers(0, 4))
        ]
    return site


def _storey(
    rng: np.random.Generator, steps: int, rise: float, tread: float, flight: float, eye: float, landing: float
) -> list[Triangles]:
    """Build two flights, the landing between them at the half height, and the railings."""
    run, half, width = steps * tread, steps * rise, 2 * flight + eye
    y = (flight + eye) / 2
    parts = [place(_flight(steps, rise, tread, flight), (0, -y, 0))]
    parts.append(place(_flight(steps, rise, tread, flight), (run, y, half), yaw=np.pi))
    parts.append(place(box(landing, width, 0.2), (run + landing / 2, 0, half - 0.2)))
    post = rng.uniform(0.1, 0.3)
    low, high = np.array([0, -eye / 2 - 0.05, 0]), np.array([run, -eye / 2 - 0.05, half])
    parts.append(_railing(low, high, post))
    parts.append(
        _railing(np.array([run, eye / 2 + 0.05, half]), np.array([0, eye / 2 + 0.05, 2 * half]), post)
    )
    turn, across = np.array([run + 0.05, 0, half]), np.array([0, eye / 2 + 0.05, 0])
    parts.append(_railing(turn - across, turn + across, post))
    return parts


def _flight(steps: int, rise: float, tread: float, width: float) -> Triangles:
    """Build a flight that climbs along +x, with a sloping underside."""
    parts = [place(box(tread + 0.02, width, rise), ((k + 0.5) * tread, 0, k * rise)) for k in range(steps)]
    slope = np.arctan2(rise, tread)
    long = steps * np.hypot(rise, tread)
    slab = place(box(long, width, 0.14), (long / 2, 0, -0.16))
    return join(*parts, place(slab, pitch=-slope))


def _railing(a: np.ndarray, b: np.ndarray, spacing: float) -> Triangles:
    rail, length = np.array([0, 0, 0.95]), float(np.linalg.norm((b - a)[:2]))
    parts = [bar(a + rail, b + rail, 0.025, 6)]
    for s in np.linspace(0, 1, max(2, int(length / spacing) + 1)):
        at = a + s * (b - a)
        parts.append(bar(at, at + rail, 0.01, 4))
    return join(*parts)


def _walls(
    rng: np.random.Generator,
    run: float,
    width: float,
    landing: float,
    corridor: float,
    reach: float,
    storey: float,
) -> list[Triangles]:
    """Build the walls, the landing and the corridor of one storey."""
    long, mid = run + 2 * landing, run / 2
    parts = [place(upright(-long / 2, long / 2, 0, storey), (mid, s * width / 2, 0)) for s in (-1, 1)]
    sill = rng.uniform(0.3, 0.8) * storey
    window = (-0.25 * width, 0.25 * width, sill, sill + 0.4 * storey)
    window = (*window[:3], min(window[3], storey - 0.1))
    back = join(pierced(width, storey, window, 0.3), upright(*window, 0.3))
    parts.append(place(back, (run + landing, 0, 0), yaw=-np.pi / 2))
    parts.append(place(box(landing, width, 0.2), (-landing / 2, 0, -0.2)))
    # An opening leads from the landing to the corridor.
    opening = (-0.35 * width, 0.35 * width, 0.0, min(2.2, storey - 0.3))
    parts.append(place(pierced(width, storey, opening, 0.15), (-landing, 0, 0), yaw=np.pi / 2))
    total = width + 2 * reach
    parts.append(place(box(corridor, total, 0.2), (-landing - corridor / 2, 0, -0.2)))
    for s in (-1, 1):
        parts.append(
            place(
                upright(-reach / 2, reach / 2, 0, storey),
                (-landing, s * (width + reach) / 2, 0),
                yaw=np.pi / 2,
            )
        )
        parts.append(
            place(
                upright(-corridor / 2, corridor / 2, 0, storey), (-landing - corridor / 2, s * total / 2, 0)
            )
        )
    doors = max(2, int(total / rng.uniform(2.2, 4.5)))
    bay = total / doors
    door = (-0.45, 0.45, 0.0, 2.05)
    panel = join(pierced(bay, storey, door, 0.12), upright(*door, 0.12))
    for k in range(doors):
        y = (k - (doors - 1) / 2) * bay
        parts.append(place(panel, (-landing - corridor, y, 0), yaw=np.pi / 2))
    return parts
