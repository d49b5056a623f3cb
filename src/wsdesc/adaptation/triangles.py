"""Triangles of pairs: find the poses that contradict others.

Three scans that overlap pairwise form a triangle. It closes if the product of its three poses is the
identity. Right poses close it; two wrong poses hardly ever cancel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np

from wsdesc.core.geometry import Floats, inverse
from wsdesc.reconstruction.disambiguation import LOOP_TOLERANCE


def contradicted_pairs(T_q_p: Mapping[tuple[int, int], Floats], radii: Sequence[float]) -> set[int]:
    """Find the pairs to leave out, one by one, until all triangles of the other pairs close.

    The pair in the fewest closed minus open triangles is left out first.

    Args:
        T_q_p: Poses (4, 4) by the scans (p, q) of each pair, p < q.
        radii: Root mean square distance of each scan's points from the origin of its frame.

    Returns:
        Numbers of these pairs, in the order of the mapping.
    """
    number = {ends: k for k, ends in enumerate(T_q_p)}
    scans = sorted({scan for ends in T_q_p for scan in ends})
    after = {a: [b for b in scans if (a, b) in number] for a in scans}
    corners = [(a, b, c) for a in scans for b, c in combinations(after[a], 2) if (b, c) in number]
    closed = np.array([closing_error(T_q_p, ends, radii) <= LOOP_TOLERANCE for ends in corners], bool)
    triangles = np.array([(number[a, b], number[b, c], number[a, c]) for a, b, c in corners]).reshape(-1, 3)
    left_out: set[int] = set()
    while not closed.all():
        votes = np.bincount(triangles.ravel(), np.repeat(np.where(closed, 1, -1), 3))
        suspects = np.unique(triangles[~closed])
        worst = suspects[np.argmin(votes[suspects])]
        left_out.add(int(worst))
        kept = (triangles != worst).all(axis=1)
        triangles, closed = triangles[kept], closed[kept]
    return left_out


def closing_error(
    T_q_p: Mapping[tuple[int, int], Floats], scans: tuple[int, int, int], radii: Sequence[float]
) -> float:
    """Measure how far the product of the poses of a triangle moves points; the largest of all three scans."""
    a, b, c = scans
    T_a_b, T_b_c, T_c_a = inverse(T_q_p[a, b]), inverse(T_q_p[b, c]), T_q_p[a, c]
    products = {a: T_a_b @ T_b_c @ T_c_a, b: T_b_c @ T_c_a @ T_a_b, c: T_c_a @ T_a_b @ T_b_c}
    return max(displacement(T, radii[scan]) for scan, T in products.items())


def displacement(T: Floats, radius: float) -> float:
    """Bound the distance that a transformation moves points within `radius` of the origin."""
    cosine = np.clip((np.trace(T[:3, :3]) - 1) / 2, -1.0, 1.0)
    return float(np.linalg.norm(T[:3, 3]) + 2 * radius * np.sqrt((1 - cosine) / 2))
