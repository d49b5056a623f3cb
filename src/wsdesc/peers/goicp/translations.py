"""The inner search of Go-ICP: the best translation for the rotations of one cube."""

from __future__ import annotations

import heapq

import numpy as np

from wsdesc.core.kernels import inline, kernel
from wsdesc.peers.goicp.field import look_up

_HALF = 0.5  # translations lie in [−½, ½]³


@kernel
def search_translations(points, reach, values, low, step, best, gap, kept):
    """Search the cube of translations best first.

    Args:
        points: Source points (n, 3), turned by the rotation at the centre of the cube.
        reach: Distances (n,) that points move at most within the cube; zero for a single rotation.
        values: Distance field of the target.
        low: Coordinate of the field's first node.
        step: Distance between nodes.
        best: Error that a better pose must undercut.
        gap: Difference of the error to its bound at which the search stops.
        kept: Number of points with the smallest distances that count.

    Returns:
        The smallest error (`best` if none is smaller), its translation x, y, z, and a lower bound of the
        error. The bound holds for all rotations of the cube and all translations, and is at most `best`.
    """
    count = len(points)
    distances, nearer = np.empty(count), np.empty(count)
    found_x, found_y, found_z = 0.0, 0.0, 0.0
    queue = [(0.0, 0.0, 0.0, 0.0, _HALF)]  # lower bound, centre, half side
    while len(queue) > 0:
        bound, x, y, z, half = heapq.heappop(queue)
        if best - bound < gap:
            return best, found_x, found_y, found_z, min(bound, best)
        half = half / 2
        spread = np.sqrt(3.0) * half  # from the centre of a child to its corners
        for child in range(8):
            tx = x + (half if child & 1 else -half)
            ty = y + (half if child & 2 else -half)
            tz = z + (half if child & 4 else -half)
            for p in range(count):
                d = look_up(points[p, 0] + tx, points[p, 1] + ty, points[p, 2] + tz, values, low, step)
                distances[p] = max(d - reach[p], 0.0)
                nearer[p] = max(distances[p] - spread, 0.0)
            error = _sum_of_squares(distances, kept)
            if error < best:
                best, found_x, found_y, found_z = error, tx, ty, tz
            bound = _sum_of_squares(nearer, kept)
            if bound < best:
                heapq.heappush(queue, (bound, tx, ty, tz, half))
    return best, found_x, found_y, found_z, best


@inline
def _sum_of_squares(distances, kept):
    """Sum the squares of the `kept` smallest distances."""
    if kept < len(distances):
        distances = np.partition(distances, kept - 1)[:kept]
    total = 0.0
    for d in distances:
        total += d * d
    return total
