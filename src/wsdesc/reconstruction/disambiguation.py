"""Choose one of several candidate poses of each pair, by their agreement with the poses of other pairs.

In a scene with repetitive structure a scan fits at several positions, and the best fit need not be right. But
right poses agree with each other. Confident poses (at least `MIN_CONFIDENCE`) place scans along a tree, poses
in closed triangles first, and the scans that they connect form a rigid group. Uncertain poses only move
groups against each other. Each group is tried at every position that a pose proposes, given the positions of
the others, until no move improves the log odds. However many uncertain poses there are, they never outvote
confident ones: with repetitive structure, wrong poses agree with each other, too.

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
_SWEEPS = 20  # over all groups, at most
_IMPROVEMENT = 1e-9  # log odds that a move must gain


class Choice(NamedTuple):
    """The chosen candidate of each pair, and the margin of each scan's position."""

    candidates: list[int]  # (P,) index into each pair's candidates; 0, the best fit, where none agrees
    margin: Floats  # (N,) log odds of the position of each scan's group against its second best position


def choose_candidates(pairs: Sequence[Sequence[Edge]], radii: Floats) -> Choice:
    """Choose for each pair the candidate that agrees with the other pairs.

    Args:
        pairs: P pairs, each with candidate edges between the same two scans, best first.
        radii: (N,) root mean square distance of each scan's points from its centre.
    """
    poses = _Poses.of(pairs)
    margin = np.full(len(radii), np.inf)
    chosen = [0] * len(pairs)
    if len(poses.pair) == 0:
        return Choice(chosen, margin)
    # Adding 1 puts all confident poses before the uncertain ones.
    votes = triangle_votes(poses, radii) + (poses.weight >= MIN_CONFIDENCE)
    edges = [
        Edge(b, a, T, vote, pairs[p][n].information, pairs[p][n].rmse)
        for a, b, T, vote, p, n in zip(*poses[2:5], votes.tolist(), *poses[:2], strict=True)
    ]
    roots = [scans[0] for scans in connected_scans(len(radii), edges)]
    groups = connected_scans(len(radii), [edge for edge in edges if edge.confidence >= 1])
    search = _GroupSearch(poses, radii, groups, poses_along_tree(len(radii), edges, roots))
    for _ in range(_SWEEPS):
        moved = [group for group in range(len(groups)) if search.improve(group)]
        if not moved:
            break
    errors = search.errors(np.arange(len(poses.pair)))
    for k in np.argsort(-errors, kind="stable"):  # the smallest error comes last and wins
        if errors[k] <= DRIFT * LOOP_TOLERANCE:
            chosen[poses.pair[k]] = int(poses.candidate[k])
    for group, scans in enumerate(groups):
        margin[scans] = search.margin(group)
    return Choice(chosen, margin)


class _Poses(NamedTuple):
    """All candidates worth considering, as arrays."""

    pair: NDArray[np.intp]  # (H,) index of the pair
    candidate: NDArray[np.intp]  # (H,) index among the pair's candidates
    a: NDArray[np.intp]  # (H,) the scan with the lower index
    b: NDArray[np.intp]  # (H,) the other scan
    T_a_b: Floats  # (H, 4, 4)
    weight: Floats  # (H,) confidence
    none: Floats  # (P,) probability that no candidate of a pair is right

    @classmethod
    def of(cls, pairs: Sequence[Sequence[Edge]]) -> _Poses:
        rows = []
        none = np.ones(len(pairs))
        for p, edges in enumerate(pairs):
            none[p] = max(MIN_CANDIDATE_CONFIDENCE, 1 - sum(edge.confidence for edge in edges))
            for number, edge in enumerate(edges):
                if edge.confidence >= MIN_CANDIDATE_CONFIDENCE:
                    T, a, b = edge.T_target_source, edge.target, edge.source
                    a, b, T = (a, b, T) if a < b else (b, a, inverse(T[None])[0])
                    rows.append((p, number, a, b, T, edge.confidence))
        columns = list(zip(*rows, strict=True)) or [()] * 6
        indices = [np.array(column, dtype=np.intp) for column in columns[:4]]
        T_a_b, weight = np.array(columns[4]).reshape(-1, 4, 4), np.array(columns[5])
        return cls(indices[0], indices[1], indices[2], indices[3], T_a_b, weight, none)


def triangle_votes(poses: _Poses, radii: Floats) -> Floats:
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


class _GroupSearch:
    """Positions of rigid groups of scans, improved one group at a time."""

    def __init__(
        self, poses: _Poses, radii: Floats, groups: Sequence[Sequence[int]], T_world_scan: Floats
    ) -> None:
        self.poses, self.radii, self.T_world_scan = poses, radii, T_world_scan
        self.groups = [np.array(scans) for scans in groups]
        self.group = np.empty(len(radii), dtype=np.intp)  # of each scan
        for number, scans in enumerate(self.groups):
            self.group[scans] = number
        a, b = self.group[poses.a], self.group[poses.b]
        across = np.flatnonzero(a != b)
        self.poses_of: list[list[int]] = [[] for _ in groups]  # poses to other groups, ascending
        for k, *ends in zip(across.tolist(), a[across].tolist(), b[across].tolist(), strict=True):
            for number in ends:
                self.poses_of[number].append(k)
        self.gain = np.log1p(poses.weight / CHANCE)

    def improve(self, group: int) -> bool:
        """Move a group to its best position, given the others; return whether it moved."""
        moves = self.proposals(group)
        if len(moves) == 0:
            return False
        odds = self.odds(group, moves)
        best = int(odds.argmax())
        if odds[best] <= self.odds(group, np.eye(4)[None])[0] + _IMPROVEMENT:
            return False
        self.T_world_scan[self.groups[group]] = moves[best] @ self.T_world_scan[self.groups[group]]
        return True

    def margin(self, group: int) -> float:
        """Return the log odds of a group's position against its best other position."""
        moves = self.proposals(group)
        T = self.T_world_scan[self.groups[group][0]]
        radius = self.radii[self.groups[group][0]]
        distance = displacements(np.eye(4), inverse(T) @ moves @ T, radius, radius)
        elsewhere = distance > DRIFT * LOOP_TOLERANCE
        if not elsewhere.any():
            return np.inf
        odds = self.odds(group, np.concatenate([np.eye(4)[None], moves[elsewhere]]))
        return float(odds[0] - odds[1:].max())

    def proposals(self, group: int) -> Floats:
        """Return moves (M, 4, 4) of a group that each satisfy one of its poses."""
        p, own = self.poses, np.array(self.poses_of[group], dtype=np.intp)
        first = self.group[p.a[own]] == group
        inner, outer = np.where(first, (p.a[own], p.b[own]), (p.b[own], p.a[own]))
        T_outer_inner = np.where(first[:, None, None], inverse(p.T_a_b[own]), p.T_a_b[own])
        T_world_inner = self.T_world_scan[outer] @ T_outer_inner
        return np.asarray(T_world_inner @ inverse(self.T_world_scan[inner]))

    def odds(self, group: int, moves: Floats) -> Floats:
        """Return the log odds (M,) of a group after each of the moves (M, 4, 4), the others unmoved.

        A pair counts by its best pose that agrees with the positions. If none agrees, it counts by the
        probability that none of its poses is right.
        """
        p, own = self.poses, np.array(self.poses_of[group], dtype=np.intp)
        if len(own) == 0:
            return np.zeros(len(moves))
        pairs, start = np.unique(p.pair[own], return_index=True)
        agrees = self.errors(own, group, moves) <= LOOP_TOLERANCE  # (M, own)
        best = np.maximum.reduceat(np.where(agrees, self.gain[own], -np.inf), start, axis=1)
        return np.asarray(np.where(np.isfinite(best), best, np.log(p.none[pairs])).sum(axis=1))

    def errors(self, poses: NDArray[np.intp], group: int = -1, moves: Floats | None = None) -> Floats:
        """Return the distance (H,) of poses from the positions; (M, H) after each of the moves of a group."""
        p = self.poses
        a, b = p.a[poses], p.b[poses]
        T_a, T_b = self.T_world_scan[a], self.T_world_scan[b]
        if moves is not None:
            T_a = np.where((self.group[a] == group)[:, None, None], moves[:, None] @ T_a, T_a)
            T_b = np.where((self.group[b] == group)[:, None, None], moves[:, None] @ T_b, T_b)
        return displacements(inverse(T_a) @ T_b, p.T_a_b[poses], self.radii[a], self.radii[b])


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
