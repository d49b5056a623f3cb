"""Challenge a layout: do some of its scans fit as well at another position of a repetitive structure?

The pairs of a layout may agree with each other, and yet it is wrong: in a court with four equal corners,
scans of all corners can lie on top of each other. Other candidates of the pairs tell how the place repeats.
A part of the scans is moved in the same way, and only free space compares the two layouts: how much scans
overlap tells where the scanner stood, not which of the equal parts it saw. Where equal parts differ, such as
in their furniture, wrong poses violate free space, and a pose that does not is right. Where they do not
differ, nothing can tell, and the layout is cut there.

All lengths are in model metres.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy.sparse import coo_array

from wsdesc.core.geometry import Floats, inverse
from wsdesc.reconstruction.cuts import cheapest_part
from wsdesc.reconstruction.disambiguation import MIN_CANDIDATE_CONFIDENCE
from wsdesc.reconstruction.layout import Checker, Visibility, near_pairs
from wsdesc.reconstruction.motions import GroupMotions
from wsdesc.reconstruction.pose_graph import Edge, PoseGraph
from wsdesc.reconstruction.usual_violation import MIN_VIEW, log_likelihood, usual_share

MIN_MARGIN = 3.0  # log odds of a layout against a rival
# Share of the scans, at a wrong pose of the repetitive structure, that free space does not contradict. Above,
# free space that is not violated is no evidence.
MAX_CHANCE, _MIN_CHANCE = 0.3, 0.05
_MIN_VIEWS = 5  # from which it is measured,
_MIN_OVERLAP = 0.15  # with this overlap of the scan where it is smaller
EQUAL_FIT = 0.8  # share of the overlap at which another position fits as well
_MIN_PAIRS = 3  # whose candidates propose a motion: then the place repeats
_MIN_SHARE = 0.04  # of the pairs of a group, too
_MOTIONS = 12  # that are compared, those of most pairs
_MAX_LOSS = 6.0  # log odds of one pair

REPEATS = "the place may repeat: its scans fit as well at another position"


def challenge(
    pairs: Sequence[Sequence[Edge]],
    accepted: Mapping[int, Edge],
    components: Sequence[Sequence[int]],
    T_world_scan: Floats,
    radii: Floats,
    check: Checker,
    whole: PoseGraph,
) -> dict[int, str]:
    """Find accepted edges that connect parts of a group that fit as well at another position.

    Args:
        pairs: Candidate edges of each pair.
        accepted: Accepted edges, by the number of their pair.
        components: Groups of scans that the edges connect.
        T_world_scan: (N, 4, 4) poses of the scans, in the frame of their group.
        radii: (N,) of the scans.
        check: Checks poses by free space.
        whole: Layout before it was separated into groups: candidates between groups tell how it repeats.

    Returns:
        Edges to reject, by the number of their pair, with reasons.
    """
    rejected: dict[int, str] = {}
    motions_at = _motions_of_scans(pairs, whole, radii)
    for scans in (own for own in components if len(own) > 1):
        T_group_whole = T_world_scan[scans[0]] @ inverse(whole.T_world_scan[scans[0]])
        motions = [T_group_whole @ G @ inverse(T_group_whole) for G in motions_at[scans[0]]]
        rivals = [_Rival.of(motion, scans, T_world_scan, radii, check) for motion in motions]
        rivals = [rival for rival in rivals if rival.views >= _MIN_VIEWS]
        equal = max((rival.chance for rival in rivals), default=0.0)
        if equal > MAX_CHANCE:
            groups = [[scan] for scan in scans]
            reason = f"the place repeats, and {equal:.0%} of its scans fit as well at another position"
        else:
            groups, reason = _certain_parts(rivals, scans), REPEATS
        number = {scan: n for n, group in enumerate(groups) for scan in group}
        for p, edge in accepted.items():
            if edge.source in number and number[edge.source] != number[edge.target]:
                rejected[p] = reason
    return rejected


def _motions_of_scans(
    pairs: Sequence[Sequence[Edge]], whole: PoseGraph, radii: Floats
) -> dict[int, list[Floats]]:
    """Return the motions under which the place of each scan repeats, in the frame of its group."""
    motions: dict[int, list[Floats]] = {}
    for scans, inside in zip(whole.components, pairs_inside(pairs, whole.components), strict=True):
        repeating = repeating_motions(inside, list(scans), whole.T_world_scan, radii)
        motions |= dict.fromkeys(scans, repeating)
    return motions


def _certain_parts(rivals: Sequence[_Rival], scans: Sequence[int]) -> list[list[int]]:
    """Cut a group wherever a rival is nearly as good."""
    parts, left = [], [np.array(scans)]
    while left:
        own = left.pop()
        cuts = [rival.cheapest_part(own) for rival in rivals] if len(own) > 1 else []
        part, margin = min(cuts, key=lambda cut: cut[1], default=(np.zeros(0, dtype=bool), np.inf))
        if margin < MIN_MARGIN:
            left += [own[part], own[~part]]
        else:
            parts.append(own.tolist())
    return parts


def pairs_inside(
    pairs: Sequence[Sequence[Edge]], components: Sequence[Sequence[int]]
) -> list[list[Sequence[Edge]]]:
    """Return the pairs with candidates inside each group."""
    group = {scan: number for number, scans in enumerate(components) for scan in scans}
    inside: list[list[Sequence[Edge]]] = [[] for _ in components]
    for candidates in pairs:
        if candidates and group[candidates[0].source] == group[candidates[0].target]:
            inside[group[candidates[0].source]].append(candidates)
    return inside


def repeating_motions(
    pairs: Sequence[Sequence[Edge]], scans: list[int], T: Floats, radii: Floats
) -> list[Floats]:
    """Find motions (4, 4) under which the place repeats: candidates of several pairs propose them.

    Of a motion and its inverse, one is returned; those of most pairs come first. Twice a motion is another.
    """
    proposed, owner = [], []
    for number, candidates in enumerate(pairs):
        for edge in candidates:
            if edge.confidence >= MIN_CANDIDATE_CONFIDENCE:
                proposed.append(T[edge.target] @ edge.T_target_source @ inverse(T[edge.source]))
                owner.append(number)
    if not proposed:
        return []
    group, motions, owners = GroupMotions(T[scans], radii[scans]), np.stack(proposed), np.array(owner)
    votes = {int(own[0]): len(set(owners[own].tolist())) for own in group.distinct(motions)}
    least = max(_MIN_PAIRS, _MIN_SHARE * len(pairs))
    repeating = sorted((k for k, count in votes.items() if count >= least), key=lambda k: (-votes[k], k))
    return group.with_doubles([motions[k] for k in repeating[:_MOTIONS]])


class _Rival(NamedTuple):
    """What all pairs of a group lose if one of their scans is moved by a motion."""

    views: int  # poses after the motion whose free space is known
    chance: float  # that a pose after the motion does not violate free space more than is usual
    losses: dict[tuple[int, int], float]  # by the scan that is moved, and the other one

    @classmethod
    def of(cls, motion: Floats, scans: Sequence[int], T: Floats, radii: Floats, check: Checker) -> _Rival:
        """Check all pairs of a group without and with the motion."""
        poses = {}
        for i, j in near_pairs(scans, scans, T, radii):
            T_i = inverse(T[i])
            poses[i, j] = np.stack([T_i @ T[j], T_i @ inverse(motion) @ T[j], T_i @ motion @ T[j]])
        visibilities = check(poses)
        usual = usual_share(
            [
                checked[0].violating / checked[0].visible
                for checked in visibilities.values()
                if checked[0].visible >= MIN_VIEW
            ]
        )
        odds = [
            log_likelihood(v.violating, v.visible, usual)
            for checked in visibilities.values()
            for v in checked[1:]
            if v.visible >= MIN_VIEW and v.overlap >= _MIN_OVERLAP
        ]
        chance = float(np.exp(odds).mean()) if odds else 0.0
        losses = {}
        for (i, j), (now, first, second) in visibilities.items():
            losses[i, j] = _loss(now, first, usual, max(chance, _MIN_CHANCE))
            losses[j, i] = _loss(now, second, usual, max(chance, _MIN_CHANCE))
        return cls(len(odds), chance, losses)

    def cheapest_part(self, scans: np.ndarray) -> tuple[np.ndarray, float]:
        """Find the part (n,) of scans whose motion loses least, and what it loses."""
        index = {scan: k for k, scan in enumerate(scans.tolist())}
        own = [(index[i], index[j], v) for (i, j), v in self.losses.items() if i in index and j in index]
        rows, columns, values = zip(*own, strict=True) if own else ((), (), ())
        size = (len(scans), len(scans))
        return cheapest_part(coo_array((values, (rows, columns)), shape=size).tocsr(), MIN_MARGIN)


def _loss(now: Visibility, moved: Visibility, usual: float, chance: float) -> float:
    """Return the log odds of a pose against the pose after a motion; without free space, by overlap."""
    visible = max(now.visible, moved.visible)
    if visible < MIN_VIEW:
        return 0.0 if moved.overlap >= EQUAL_FIT * now.overlap else MIN_MARGIN
    odds = [log_likelihood(v.violating, v.visible, usual) for v in (now, moved)]
    seen = (now.visible - moved.visible) / visible
    return float(np.clip(odds[0] - odds[1] - seen * np.log(chance), -_MAX_LOSS, _MAX_LOSS))
