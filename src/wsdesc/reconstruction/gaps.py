"""Find groups that lie on equal parts of a place: the gaps between their patches are larger than inside them.

Equal rooms can agree in everything that free space shows, and yet they differ by millimetres. All scans of
one room fit each other more tightly than those of two rooms. How tightly right poses fit depends on the
scanner, on its distance, and on distortion. So each edge is compared with the best edge of each of its scans.

A single edge is weak evidence: overlaps at the border of a scan have larger gaps, too. The edges between two
parts of a group count together.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.sparse import coo_array

from wsdesc.core.geometry import Floats
from wsdesc.reconstruction.cuts import cheapest_part
from wsdesc.reconstruction.pose_graph import Edge, connected_scans
from wsdesc.reconstruction.usual_gap import SMALLEST_GAP

# Chosen on 1 532 accepted edges of 35 synthetic places, right and wrong ones.
_NEUTRAL = 1.5  # gap over that of the best edges, at which an edge is as often right as wrong
_SLOPE = 4.0  # log odds that an edge loses when its gap grows by a factor of e,
_LEAST, _MOST = -1.6, 0.9  # within these limits
_MARGIN = 2.0  # log odds against all edges between two parts, from which on they are separated


def separate_by_gaps(edges: Sequence[Edge], count: int) -> list[list[int]]:
    """Divide scans into groups between which the gaps of all edges together are too large.

    Args:
        edges: E accepted edges.
        count: Number of scans.

    Returns:
        Groups of scans that edges connect.
    """
    odds = _log_odds(edges, count)
    groups, left = [], [np.array(scans) for scans in connected_scans(count, edges)]
    ends = np.array([(edge.source, edge.target) for edge in edges], dtype=np.intp).reshape(-1, 2)
    while left:
        scans = left.pop()
        part, value = _loosest_part(scans, ends, odds, count)
        if value < -_MARGIN:
            left += [scans[part], scans[~part]]
        else:
            groups.append(scans.tolist())
    return groups


def _log_odds(edges: Sequence[Edge], count: int) -> Floats:
    """Return the log odds (E,) of edges by their gaps, compared with the best edges of their scans."""
    gaps = np.array([np.nan if edge.patch_gap is None else edge.patch_gap for edge in edges])
    gaps = np.maximum(gaps, SMALLEST_GAP)
    best = np.full(count, np.inf)
    for edge, gap in zip(edges, gaps.tolist(), strict=True):
        for scan in (edge.source, edge.target):
            best[scan] = np.fmin(best[scan], gap)
    usual = np.array([max(best[edge.source], best[edge.target]) for edge in edges])
    odds = np.clip(-_SLOPE * np.log(gaps / (_NEUTRAL * usual)), _LEAST, _MOST)
    return np.where(np.isnan(odds), 0.0, odds)  # unknown gaps are no evidence


def _loosest_part(scans: np.ndarray, ends: np.ndarray, odds: Floats, count: int) -> tuple[np.ndarray, float]:
    """Find the part (n,) of scans whose edges to the others have the least log odds, and these."""
    if len(scans) < 2:
        return np.zeros(len(scans), dtype=bool), np.inf
    index = np.full(count, -1)
    index[scans] = np.arange(len(scans))
    rows, columns = index[ends].T
    inside = (rows >= 0) & (columns >= 0)
    rows, columns, values = rows[inside], columns[inside], odds[inside]
    both = np.concatenate([rows, columns]), np.concatenate([columns, rows])
    losses = coo_array((np.tile(values, 2), both), shape=(len(scans), len(scans))).tocsr()
    return cheapest_part(losses, 1e-9)
