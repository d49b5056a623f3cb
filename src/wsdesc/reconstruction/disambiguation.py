"""Which of several poses of each pair is right, as far as the other pairs can tell.

In a building with equal bays a scan fits in more than one place, and the pose that fits best need not be the
right one. But right poses agree with each other. So registration gives a few poses of each pair with their
probabilities. Sure ones come first: they place scans along a tree, those before others that close triangles,
and what they connect stays together. Doubtful ones only move such groups against each other: each is tried in
every place that any pose proposes for it, given where the others are, until none improves the odds of the
whole. Doubtful poses never outvote sure ones, however many they are: where bays repeat, wrong poses agree
with each other as well. What a group's second best place lacks in odds is how sure its place is.

All lengths are metres of the model; the frame of a scan has its origin in the scan's middle.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from wsdesc.cloud.units import INDOOR_RESOLUTION
from wsdesc.core.geometry import Floats, inverse
from wsdesc.reconstruction.pose_graph import Edge, along_best_edges, connected

LOOP_TOLERANCE = (
    5 * INDOOR_RESOLUTION
)  # metres: motions that move a scan's points less than this apart are the same
DRIFT = 3.0  # times that: what may have added up along a tree
MIN_CONFIDENCE = (
    0.9  # probability of a pose that needs no other to be believed: what registration calls a success
)
CHANCE = 0.02  # probability that a wrong pose agrees with others all the same
LEAST = 0.02  # probability below which a pose is not considered
_SWEEPS = 20  # over all scans, at most; each improves the odds, a few are enough


class Choice(NamedTuple):
    """One pose of each pair, and how sure the place of each scan is."""

    picked: list[int]  # for each pair the number of a pose; 0, the first, where none agrees with the others
    margin: Floats  # (N,) log odds of the place of each scan's group against its second best one


def choose(pairs: Sequence[Sequence[Edge]], radii: Floats) -> Choice:
    """Of each pair's poses, which name the same two scans, best first, the one that agrees with the others.

    `radii` (N,): how far the points of a scan typically are from its middle.
    """
    poses = _Poses.of(pairs)
    margin = np.full(len(radii), np.inf)
    picked = [0] * len(pairs)
    if len(poses.pair) == 0:
        return Choice(picked, margin)
    votes = triangle_votes(poses, radii) + (poses.weight >= MIN_CONFIDENCE)  # sure ones first, all of them
    edges = [
        Edge(b, a, T, vote, pairs[p][n].information, pairs[p][n].rmse)
        for a, b, T, vote, p, n in zip(*poses[2:5], votes.tolist(), *poses[:2], strict=True)
    ]
    roots = [scans[0] for scans in connected(len(radii), edges)]
    groups = connected(len(radii), [edge for edge in edges if edge.confidence >= 1])
    search = _Search(poses, radii, groups, along_best_edges(len(radii), edges, roots))
    for _ in range(_SWEEPS):
        moved = [group for group in range(len(groups)) if search.improve(group)]
        if not moved:
            break
    apart = search.apart(np.arange(len(poses.pair)))
    for k in np.argsort(-apart, kind="stable"):  # the nearest one comes last, and stays
        if apart[k] <= DRIFT * LOOP_TOLERANCE:
            picked[poses.pair[k]] = int(poses.number[k])
    for group, scans in enumerate(groups):
        margin[scans] = search.margin(group)
    return Choice(picked, margin)


class _Poses(NamedTuple):
    """All poses worth considering, in arrays."""

    pair: NDArray[np.intp]  # (H,) that a pose belongs to
    number: NDArray[np.intp]  # (H,) among the poses of that pair
    a: NDArray[np.intp]  # (H,) the scan with the lower number
    b: NDArray[np.intp]
    T_a_b: Floats  # (H, 4, 4)
    weight: Floats  # (H,) probability that it is right
    none: Floats  # (P,) for each pair the probability that no pose of it is right

    @classmethod
    def of(cls, pairs: Sequence[Sequence[Edge]]) -> _Poses:
        rows = []
        none = np.ones(len(pairs))
        for p, poses in enumerate(pairs):
            none[p] = max(LEAST, 1 - sum(edge.confidence for edge in poses))
            for number, edge in enumerate(poses):
                if edge.confidence >= LEAST:
                    T, a, b = edge.T_target_source, edge.target, edge.source
                    a, b, T = (a, b, T) if a < b else (b, a, inverse(T[None])[0])
                    rows.append((p, number, a, b, T, edge.confidence))
        columns = list(zip(*rows, strict=True)) or [()] * 6
        whole = [np.array(column, dtype=np.intp) for column in columns[:4]]
        T_a_b, weight = np.array(columns[4]).reshape(-1, 4, 4), np.array(columns[5])
        return cls(whole[0], whole[1], whole[2], whole[3], T_a_b, weight, none)


def triangle_votes(poses: _Poses, radii: Floats) -> Floats:
    """(H,) probabilities of poses once the triangles have spoken that they close with poses of other pairs.

    Each third scan has one vote, that of its most probable pair of poses that close the triangle. Where
    there are sure poses, only they vote.
    """
    some = poses.weight >= MIN_CONFIDENCE if (poses.weight >= MIN_CONFIDENCE).any() else poses.weight > 0
    at: dict[tuple[int, int], list[int]] = {}
    for k in np.flatnonzero(some).tolist():
        at.setdefault((int(poses.a[k]), int(poses.b[k])), []).append(k)
    after: dict[int, list[int]] = {}
    for a, b in sorted(at):
        after.setdefault(a, []).append(b)
    gain = np.zeros(len(poses.pair))
    for a, others in after.items():
        for b, c in combinations(others, 2):
            if (b, c) not in at:
                continue
            ab, bc, ac = (np.array(at[ends]) for ends in ((a, b), (b, c), (a, c)))
            T = poses.T_a_b[ab][:, None] @ poses.T_a_b[bc]  # (AB, BC, 4, 4) of c in a
            apart = displacements(T[:, :, None], poses.T_a_b[ac], radii[a], radii[c])  # (AB, BC, AC)
            closed = apart <= LOOP_TOLERANCE
            w, v, u = poses.weight[ab], poses.weight[bc], poses.weight[ac]
            gain[ab] += np.log1p((closed * v[:, None] * u).max(axis=(1, 2)) / CHANCE)
            gain[bc] += np.log1p((closed * w[:, None, None] * u).max(axis=(0, 2)) / CHANCE)
            gain[ac] += np.log1p((closed * w[:, None, None] * v[:, None]).max(axis=(0, 1)) / CHANCE)
    odds = np.log(poses.weight) + gain  # against those that no pose is right
    top = np.zeros(len(poses.none))
    np.maximum.at(top, poses.pair, odds)
    total = poses.none * np.exp(-top)
    np.add.at(total, poses.pair, np.exp(odds - top[poses.pair]))
    return np.asarray(np.exp(odds - top[poses.pair]) / total[poses.pair])


class _Search:
    """Places of all scans, and what speaks for them; scans of a group keep their places to each other."""

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
        self.of: list[list[int]] = [[] for _ in groups]  # poses between a group and others, ascending
        for k, *ends in zip(across.tolist(), a[across].tolist(), b[across].tolist(), strict=True):
            for number in ends:
                self.of[number].append(k)
        self.gain = np.log1p(poses.weight / CHANCE)

    def improve(self, group: int) -> bool:
        """Move a group to its best place, given the others; whether that is another one."""
        motions = self.proposals(group)
        if len(motions) == 0:
            return False
        odds = self.odds(group, motions)
        best = int(odds.argmax())
        if odds[best] <= self.odds(group, np.eye(4)[None])[0] + 1e-9:
            return False
        self.T_world_scan[self.groups[group]] = motions[best] @ self.T_world_scan[self.groups[group]]
        return True

    def margin(self, group: int) -> float:
        """Log odds of a group's place against the best one elsewhere."""
        motions = self.proposals(group)
        T = self.T_world_scan[self.groups[group][0]]
        radius = self.radii[self.groups[group][0]]
        elsewhere = (
            displacements(np.eye(4), inverse(T) @ motions @ T, radius, radius) > DRIFT * LOOP_TOLERANCE
        )
        if not elsewhere.any():
            return np.inf
        odds = self.odds(group, np.concatenate([np.eye(4)[None], motions[elsewhere]]))
        return float(odds[0] - odds[1:].max())

    def proposals(self, group: int) -> Floats:
        """(M, 4, 4) motions of a group that each fulfil one of its poses."""
        p, own = self.poses, np.array(self.of[group], dtype=np.intp)
        first = self.group[p.a[own]] == group
        inner, outer = np.where(first, (p.a[own], p.b[own]), (p.b[own], p.a[own]))
        T_outer_inner = np.where(first[:, None, None], inverse(p.T_a_b[own]), p.T_a_b[own])
        wanted = self.T_world_scan[outer] @ T_outer_inner
        return np.asarray(wanted @ inverse(self.T_world_scan[inner]))

    def odds(self, group: int, motions: Floats) -> Floats:
        """(M,) log odds of a group after each of the motions (M, 4, 4), the others where they are.

        A pair speaks for a place with the pose that agrees with it; if none does, against it, by the
        probability that one of its poses is right.
        """
        p, own = self.poses, np.array(self.of[group], dtype=np.intp)
        if len(own) == 0:
            return np.zeros(len(motions))
        pairs, start = np.unique(p.pair[own], return_index=True)
        gain = np.where(
            self.apart(own, group, motions) <= LOOP_TOLERANCE, self.gain[own], -np.inf
        )  # (M, own)
        best = np.maximum.reduceat(gain, start, axis=1)
        return np.asarray(np.where(np.isfinite(best), best, np.log(p.none[pairs])).sum(axis=1))

    def apart(self, poses: NDArray[np.intp], group: int = -1, motions: Floats | None = None) -> Floats:
        """(H,) how far poses are from where the scans are; (M, H) after each of the motions of a group."""
        p = self.poses
        a, b = p.a[poses], p.b[poses]
        T_a, T_b = self.T_world_scan[a], self.T_world_scan[b]
        if motions is not None:
            T_a = np.where((self.group[a] == group)[:, None, None], motions[:, None] @ T_a, T_a)
            T_b = np.where((self.group[b] == group)[:, None, None], motions[:, None] @ T_b, T_b)
        return displacements(inverse(T_a) @ T_b, p.T_a_b[poses], self.radii[a], self.radii[b])


def displacements(T_a_b: Floats, S_a_b: Floats, radius_a: Floats | float, radius_b: Floats | float) -> Floats:
    """(…) how far apart two poses of b in a move points, at most, that are a radius from a scan's middle."""
    R, Q = T_a_b[..., :3, :3], S_a_b[..., :3, :3]
    t, s = T_a_b[..., :3, 3], S_a_b[..., :3, 3]
    cosine = np.clip((np.einsum("...ij,...ij->...", R, Q) - 1) / 2, -1.0, 1.0)
    chord = 2 * np.sqrt((1 - cosine) / 2)
    of_b = np.linalg.norm(t - s, axis=-1) + chord * radius_b  # b's middle, as a sees it
    middle_a = np.einsum("...ji,...j->...i", R, t) - np.einsum("...ji,...j->...i", Q, s)
    of_a = np.linalg.norm(middle_a, axis=-1) + chord * radius_a
    return np.asarray(np.maximum(of_a, of_b))
