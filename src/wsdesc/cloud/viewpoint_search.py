"""Search for the viewpoint of a scan that was moved.

`detect_viewpoint` decides whether one position is the viewpoint. A scan that was rotated, shifted or
georeferenced has its viewpoint anywhere. Two properties of the points lead to it, if the scanner looked all
around:

- From the scanner, rays have equal angles, so the density of directions is even. It varies smoothly with the
  place, and the search is fast. Thinned scans lack this property.
- From the scanner, hardly a point lies behind another one. Only places within some centimetres are that good,
  so many are tried, first with few points in wide cells.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from wsdesc.cloud.viewpoint_detection import count_hidden, detect_viewpoint, unevenness

_POINTS = 30_000  # points of the sample of the scan
_TRIES = 12  # random displacements of a position in a step
_SHRINK = 0.6  # factor on the displacements from step to step
_LOPSIDED = 0.1  # penalty, as a share of hidden points, of a mean direction of length 1


class _Level(NamedTuple):
    """One level of a search; lengths in median ranges."""

    points: int  # of the sample
    cells: int  # per side of a face of the cube map
    starts: int  # best places of the level before
    deviation: float  # of the first displacements
    steps: int
    kept: int  # places


_EVEN = _Level(12_000, 32, 4, 0.3, 8, 1)
_EVEN_PLACES, _HIDDEN_PLACES = 100, 2000  # random places of both searches
_HIDDEN = (
    _Level(6_000, 32, 80, 0.0, 0, 80),
    _Level(15_000, 64, 24, 0.1, 4, 8),
    _Level(30_000, 96, 4, 0.03, 5, 2),
)

Place = NDArray[np.float64]  # (3,)
Cost = Callable[[Place], float]


def search_viewpoint(points: NDArray[Any]) -> Place | None:
    """Find the position (3,) of the scanner in the coordinates of the points; None if there is none.

    Scans of narrow fields of view, fused fragments and merged scans have none.

    Args:
        points: (N, 3), finite.
    """
    rng = np.random.default_rng(0)
    sample = np.asarray(points, np.float64)[rng.permutation(len(points))[:_POINTS]]
    centre = sample.mean(axis=0)
    unit = float(np.median(np.linalg.norm(sample - centre, axis=1)))
    if not 0 < unit < np.inf:
        return None
    local = np.ascontiguousarray((sample - centre) / unit, np.float32)
    low, high = np.percentile(local, (1, 99), axis=0)
    for search, count in ((_most_even, _EVEN_PLACES), (_least_hidden, _HIDDEN_PLACES)):
        for place in search(local, list(rng.uniform(low, high, (count, 3))), rng):
            position = centre + unit * place
            if detect_viewpoint(points, position):
                return np.asarray(position)
    return None


def _most_even(points: NDArray[np.float32], places: list[Place], rng: np.random.Generator) -> list[Place]:
    """Find the place from which the density of directions is most even."""
    sample, cells = points[: _EVEN.points], _EVEN.cells

    def cost(place: Place) -> float:
        return unevenness(sample, place.astype(np.float32), cells)

    return _improve(cost, places, _EVEN, rng)


def _least_hidden(points: NDArray[np.float32], places: list[Place], rng: np.random.Generator) -> list[Place]:
    """Find places from which the fewest points are hidden, and which see points in all directions."""
    for level in _HIDDEN:
        sample, cells = points[: level.points], level.cells
        nearest, counts = np.full(6 * cells**2, np.inf, np.float32), np.zeros(6 * cells**2, np.int32)

        def cost(
            place: Place,
            sample: NDArray[np.float32] = sample,
            cells: int = cells,
            buffers: tuple[Any, Any] = (nearest, counts),
        ) -> float:
            shared, hidden, _, length = count_hidden(sample, place.astype(np.float32), cells, *buffers)
            return float(hidden / max(shared, 1) + _LOPSIDED * length)

        places = _improve(cost, places, level, rng)
    return places


def _improve(cost: Cost, places: list[Place], level: _Level, rng: np.random.Generator) -> list[Place]:
    """Displace the best places at random, less in each step; keep better ones, best first."""
    best = sorted(((cost(place), k, place) for k, place in enumerate(places)))[: level.starts]
    for step in range(level.steps):
        moved = []
        for value, k, place in best:
            tries = place + rng.normal(0, level.deviation * _SHRINK**step, (_TRIES, 3))
            moved.append(min([(value, k, place), *((cost(t), k, t) for t in tries)], key=lambda m: m[0]))
        best = sorted(moved, key=lambda m: m[:2])
    return [place for *_, place in best[: level.kept]]
