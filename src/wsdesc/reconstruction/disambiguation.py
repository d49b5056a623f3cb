"""Candidate poses of all pairs, and a first layout of the scans by those that agree with each other.

In a scene with repetitive structure a scan fits at several positions, and the best fit need not be right. But
right poses agree with each other: they close triangles. The first layout chains the poses along a tree,
confident ones and those of closed triangles first. `find_layout` improves it.

All lengths are in model metres. The frame of a scan has its origin at the scan's centre.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from wsdesc.cloud.units import INDOOR_RESOLUTION
from wsdesc.core.geometry import Floats, inverse
from wsdesc.reconstruction.pose_graph import Edge, connected_scans, poses_along_tree

LOOP_TOLERANCE = 5 * INDOOR_RESOLUTION  # metres: poses that differ less, at a scan's points, count as equal
DRIFT = 3.0  # factor on the tolerance: error that may add up along a tree
MIN_CONFIDENCE = 0.9  # of a pose that needs no confirmation: a success of the registration
CHANCE = 0.02  # probability that a wrong pose agrees with others
MIN_CANDIDATE_CONFIDENCE = 0.02  # of a candidate that is considered


def first_layout(pairs: Sequence[Sequence[Edge]], poses: CandidatePoses, radii: Floats) -> Floats:
    """Chain poses (N, 4, 4) along a tree, confident ones and those of closed triangles first.

    Args:
        pairs: P pairs, each with candidate edges between the same two scans, best first.
        poses: Their candidates.
        radii: (N,) root mean square distance of each scan's points from its centre.
    """
    # Adding 1 puts all confident poses before the uncertain ones.
    votes = triangle_votes(poses, radii) + (poses.weight >= MIN_CONFIDENCE)
    edges = [
        Edge(b, a, T, vote, pairs[p][n].information, pairs[p][n].rmse)
        for a, b, T, vote, p, n in zip(*poses[2:5], votes.tolist(), *poses[:2], strict=True)
    ]
    roots = [scans[0] for scans in connected_scans(len(radii), edges)]
    return poses_along_tree(len(radii), edges, roots)


class CandidatePoses(NamedTuple):
    """All candidates worth considering, as arrays."""

    pair: NDArray[np.intp]  # (H,) index of the pair
    candidate: NDArray[np.intp]  # (H,) index among the pair's candidates
    a: NDArray[np.intp]  # (H,) the scan with the lower index
    b: NDArray[np.intp]  # (H,) the other scan
    T_a_b: Floats  # (H, 4, 4)
    weight: Floats  # (H,) confidence
    ambiguous: NDArray[np.bool_]  # (H,) another candidate is also plausible
    none: Floats  # (P,) probability that no candidate of a pair is right

    @classmethod
    def of(cls, pairs: Sequence[Sequence[Edge]]) -> CandidatePoses:
        rows = []
        none = np.ones(len(pairs))
        for p, edges in enumerate(pairs):
            none[p] = max(MIN_CANDIDATE_CONFIDENCE, 1 - sum(edge.confidence for edge in edges))
            for number, edge in enumerate(edges):
                if edge.confidence >= MIN_CANDIDATE_CONFIDENCE:
                    T, a, b = edge.T_target_source, edge.target, edge.source
                    a, b, T = (a, b, T) if a < b else (b, a, inverse(T[None])[0])
                    rows.append((p, number, a, b, T, edge.confidence, edge.ambiguous))
        columns = list(zip(*rows, strict=True)) or [()] * 7
        indices = [np.array(column, dtype=np.intp) for column in columns[:4]]
        T_a_b, weight = np.array(columns[4]).reshape(-1, 4, 4), np.array(columns[5])
        ambiguous = np.array(columns[6], dtype=bool)
        return cls(indices[0], indices[1], indices[2], indices[3], T_a_b, weight, ambiguous, none)


def triangle_votes(poses: CandidatePoses, radii: Floats) -> Floats:
    """Update the probabilities of poses (H,) by triangle consistency.

    Each third scan votes once, by its most probable two poses that close the triangle. If any pose is
    confident, only confident poses vote.
    """
    confident = poses.weight >= MIN_CONFIDENCE
    voters = confident if confident.any() else poses.weight > 0
    between: dict[tuple[int, int], list[int]] = {}  # poses by pair of scans
    for k in np.flatnonzero(voters).tolist():
        between.setdefault((int(poses.a[k]), int(poses.b[k])), []).append(k)
    following: dict[int, list[int]] = {}  # partners of a scan with a higher index, ascending
    for a, b in sorted(between):
        following.setdefault(a, []).append(b)
    gain = np.zeros(len(poses.pair))
    for a, partners in following.items():
        for b, c in combinations(partners, 2):
            if (b, c) not in between:
                continue
            ab, bc, ac = (np.array(between[ends]) for ends in ((a, b), (b, c), (a, c)))
            T_a_c = poses.T_a_b[ab][:, None] @ poses.T_a_b[bc]  # (AB, BC, 4, 4)
            error = displacements(T_a_c[:, :, None], poses.T_a_b[ac], radii[a], radii[c])  # (AB, BC, AC)
            closed = error <= LOOP_TOLERANCE
            w, v, u = poses.weight[ab], poses.weight[bc], poses.weight[ac]
            gain[ab] += np.log1p((closed * v[:, None] * u).max(axis=(1, 2)) / CHANCE)
            gain[bc] += np.log1p((closed * w[:, None, None] * u).max(axis=(0, 2)) / CHANCE)
            gain[ac] += np.log1p((closed * w[:, None, None] * v[:, None]).max(axis=(0, 1)) / CHANCE)
    odds = np.log(poses.weight) + gain  # log odds against "no candidate is right"
    top = np.zeros(len(poses.none))
    np.maximum.at(top, poses.pair, odds)
    total = poses.none * np.exp(-top)
    np.add.at(total, poses.pair, np.exp(odds - top[poses.pair]))
    return np.asarray(np.exp(odds - top[poses.pair]) / total[poses.pair])


def displacements(T_a_b: Floats, S_a_b: Floats, radius_a: Floats | float, radius_b: Floats | float) -> Floats:
    """Bound the distance (…) between the points of a scan under two poses.

    Args:
        T_a_b: (…, 4, 4) poses of b in a.
        S_a_b: (…, 4, 4) other poses of b in a.
        radius_a: Distance of the points of a from its centre.
        radius_b: Distance of the points of b from its centre.
    """
    R, Q = T_a_b[..., :3, :3], S_a_b[..., :3, :3]
    t, s = T_a_b[..., :3, 3], S_a_b[..., :3, 3]
    cosine = np.clip((np.einsum("...ij,...ij->...", R, Q) - 1) / 2, -1.0, 1.0)
    chord = 2 * np.sqrt((1 - cosine) / 2)
    of_b = np.linalg.norm(t - s, axis=-1) + chord * radius_b  # in the frame of a
    centre_a = np.einsum("...ji,...j->...i", R, t) - np.einsum("...ji,...j->...i", Q, s)
    of_a = np.linalg.norm(centre_a, axis=-1) + chord * radius_a  # in the frame of b
    return np.asarray(np.maximum(of_a, of_b))
