"""Distances from the points of one scan to the surface of others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy.spatial import cKDTree

from wsdesc.alignment.refine import OVERLAP_DISTANCE
from wsdesc.core.geometry import Floats, transform

NEIGHBOURS = 10  # points of the plane that a distance is measured to
_LINE_RATIO = 0.01  # neighbours with a smaller ratio of middle to largest variance form a line, not a plane
_MAX_POINTS = 1_000_000  # points of the other scan that are used; more would take minutes


class Distances(NamedTuple):
    """Distances of points to the surface of other scans."""

    values: Floats  # (N,) in the scans' unit; NaN for points without a partner
    limit: float  # farther points have no partner

    @property
    def share(self) -> float:
        """Share of the points that have a partner, 0 … 1."""
        return float(np.isfinite(self.values).mean())

    def quantile(self, share: float) -> float:
        """Return a quantile of the distances of points with a partner; NaN without such points."""
        finite = self.values[np.isfinite(self.values)]
        return float(np.quantile(finite, share)) if len(finite) else float("nan")

    @property
    def median(self) -> float:
        """Median of the distances."""
        return self.quantile(0.5)


class PlaneDistances:
    """Surface of a scan, to which distances of points are measured.

    Args:
        points: (M, 3) points of the scan.
        limit: Points farther from the nearest point of the scan have no partner.
    """

    def __init__(self, points: Floats, limit: float) -> None:
        if len(points) > _MAX_POINTS:  # a random selection keeps the surface, and is fast
            points = points[np.random.default_rng(0).choice(len(points), _MAX_POINTS, replace=False)]
        self.points = points
        self.limit = limit
        self._tree = cKDTree(self.points)

    def measure(self, points: Floats) -> Distances:
        """Measure the distances of points (N, 3) to the plane of their nearest neighbours.

        The distance to the nearest point would depend on the density of the scan.
        """
        count = min(NEIGHBOURS, len(self.points))
        values = np.full(len(points), np.nan)
        nearest = self._tree.query(points, distance_upper_bound=self.limit)[0]
        close = np.flatnonzero(np.isfinite(nearest))
        if len(close) and count >= 3:
            near = self.points[self._tree.query(points[close], count)[1]]  # (C, count, 3)
            centre = near.mean(axis=1)
            offsets = near - centre[:, None]
            spreads, vectors = np.linalg.eigh(np.einsum("nki,nkj->nij", offsets, offsets))
            across = np.abs(np.einsum("ni,ni->n", points[close] - centre, vectors[:, :, 0]))
            surface = spreads[:, 1] > _LINE_RATIO * spreads[:, 2]
            values[close] = np.where(surface, np.minimum(across, nearest[close]), nearest[close])
        else:
            values[close] = nearest[close]
        return Distances(values, self.limit)


def neighbour_distances(
    clouds: Mapping[str, Floats],
    drawn: Mapping[str, Floats],
    T_world_scan: Mapping[str, Floats],
    pairs: Iterable[tuple[str, str]],
    resolution: float,
) -> dict[str, Distances]:
    """Measure the distances of the drawn points of each scan to the scans connected with it.

    Args:
        clouds: Points (M, 3) of each scan, dense enough to be its surface.
        drawn: Points (N, 3) whose distances are measured.
        T_world_scan: Poses (4, 4).
        pairs: Names of connected scans.
        resolution: Working resolution: points have a partner within two of them.
    """
    world = {name: transform(points, T_world_scan[name]) for name, points in drawn.items()}
    surfaces = {
        name: PlaneDistances(transform(points, T_world_scan[name]), OVERLAP_DISTANCE * resolution)
        for name, points in clouds.items()
    }
    parts: dict[str, list[Distances]] = {}
    for a, b in pairs:
        for one, other in ((a, b), (b, a)):
            parts.setdefault(one, []).append(surfaces[other].measure(world[one]))
    return {name: _smallest(several) for name, several in parts.items()}


def _smallest(parts: Sequence[Distances]) -> Distances:
    """Combine distances of the same points to several scans: the smallest counts."""
    values = np.fmin.reduce([part.values for part in parts])
    return Distances(values, parts[0].limit)
