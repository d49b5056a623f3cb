"""Challenge a layout: do some of its scans fit as well at another position of a repetitive structure?

The pairs of a layout may agree with each other, and yet it is wrong: in a court with four equal corners,
scans of all corners can lie on top of each other. Other candidates of the pairs show how the place repeats.
A part of the scans is moved in the same way, and only free space compares the two layouts: how much scans
overlap depends on where the scanner stood, not on which of the equal parts it saw. Where equal parts differ,
such as in their furniture, wrong poses violate free space, and a pose that does not is right. Where they do
not differ, the right layout is not known, and the layout is cut there.

All lengths are in model metres.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

import numpy as np

from wsdesc.core.geometry import Floats, inverse
from wsdesc.reconstruction.edge_result import MAY_REPEAT
from wsdesc.reconstruction.layout import Checker
from wsdesc.reconstruction.motions import GroupMotions
from wsdesc.reconstruction.pose_graph import Edge, group_numbers
from wsdesc.reconstruction.rivals import MIN_MARGIN, Rival, find_rivals

# Share of the poses after a motion that free space does not contradict. Above, equal parts do not differ
# enough, and a whole layout may be wrong.
MAX_EQUAL = 0.3
_MIN_PAIRS = 3  # whose candidates differ by a motion: then the place repeats
_MIN_SHARE = 0.04  # of the pairs of a group, too
_MAX_PAIRS = 150  # from which motions are taken
_MAX_CANDIDATES = 6  # of a pair, whose differences propose motions
_MAX_MOTIONS = 12  # that are compared, those of most pairs

REPEATS = f"{MAY_REPEAT}: its scans fit as well at another position"


def challenge(
    pairs: Sequence[Sequence[Edge]],
    accepted: Mapping[int, Edge],
    components: Sequence[Sequence[int]],
    T_world_scan: Floats,
    radii: Floats,
    check: Checker,
) -> dict[int, str]:
    """Find accepted edges that connect parts of a group that fit as well at another position.

    Args:
        pairs: Candidate edges of each pair.
        accepted: Accepted edges, by the number of their pair.
        components: Groups of scans that the edges connect.
        T_world_scan: (N, 4, 4) poses of the scans, in the frame of their group.
        radii: (N,) of the scans.
        check: Checks poses by free space.

    Returns:
        Edges to reject, by the number of their pair, with reasons.
    """
    rejected: dict[int, str] = {}
    for scans in (own for own in components if len(own) > 1):
        motions = repeating_motions(pairs, scans, T_world_scan, radii)
        rivals = find_rivals(motions, scans, T_world_scan, radii, check)
        equal = max((rival.equal for rival in rivals), default=0.0)
        if equal > MAX_EQUAL:
            groups = [[scan] for scan in scans]
            reason = f"{MAY_REPEAT}: {equal:.0%} of its scans fit as well at another position"
        else:
            groups, reason = _certain_parts(rivals, scans), REPEATS
        number = group_numbers(groups)
        for p, edge in accepted.items():
            if edge.source in number and number[edge.source] != number[edge.target]:
                rejected[p] = reason
    return rejected


def _certain_parts(rivals: Sequence[Rival], scans: Sequence[int]) -> list[list[int]]:
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
    group = group_numbers(components)
    inside: list[list[Sequence[Edge]]] = [[] for _ in components]
    for candidates in pairs:
        if candidates and group[candidates[0].source] == group[candidates[0].target]:
            inside[group[candidates[0].source]].append(candidates)
    return inside


def repeating_motions(
    pairs: Sequence[Sequence[Edge]], scans: Sequence[int], T: Floats, radii: Floats
) -> list[Floats]:
    """Find motions (4, 4) under which the place of a group repeats, and their powers.

    Two candidates of a pair differ by a motion that moves what one of its scans shows onto something similar.
    Where the place repeats, candidates of many pairs differ by the same motion, also of pairs with scans that
    are not placed. Of a motion and its inverse, one is returned; those of most pairs come first.
    """
    inside = set(scans)
    of_group = [own for own in pairs if own and inside & {own[0].target, own[0].source}]
    of_group = of_group[:: max(1, -(-len(of_group) // _MAX_PAIRS))]
    if not of_group:
        return []
    differences = [_differences(candidates, inside, T) for candidates in of_group]
    owner = np.repeat(np.arange(len(of_group)), [len(own) for own in differences])
    group = GroupMotions(T[list(scans)], radii[list(scans)])
    least = max(_MIN_PAIRS, _MIN_SHARE * len(of_group))
    return group.with_powers(group.common(np.concatenate(differences), owner, least)[:_MAX_MOTIONS])


def _differences(candidates: Sequence[Edge], inside: Set[int], T: Floats) -> Floats:
    """Return the motions (M, 4, 4) by which the best candidates of a pair differ, seen from a placed scan."""
    poses = np.stack([edge.T_target_source for edge in candidates[:_MAX_CANDIDATES]])
    base = candidates[0].target
    if base not in inside:
        base, poses = candidates[0].source, inverse(poses)
    first, second = np.triu_indices(len(poses), 1)
    return np.asarray(T[base] @ poses[first] @ inverse(poses[second]) @ inverse(T[base]))
