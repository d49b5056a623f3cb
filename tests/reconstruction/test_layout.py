"""Layouts checked by free space: a row of equal bays whose true positions are known to the check."""

import numpy as np
import pytest

from wsdesc.alignment.information import Information
from wsdesc.core.geometry import inverse
from wsdesc.reconstruction.challenge import pairs_inside
from wsdesc.reconstruction.edge_result import MAY_REPEAT
from wsdesc.reconstruction.layout import Visibility, near_pairs, separate
from wsdesc.reconstruction.placement import place_scans
from wsdesc.reconstruction.pose_graph import Edge
from wsdesc.reconstruction.verified_layout import disagreement, verify_layout

INFORMATION = Information(0.3 * np.eye(6), np.zeros(3), 1.0, 0.5, 2000)
BAY = 3.0
COUNT = 5
RADII = np.full(COUNT, 2.0)


def at(x):
    T = np.eye(4)
    T[0, 3] = x
    return T


TRUE = np.stack([at(BAY * k) for k in range(COUNT)])


def edge(i, j, bays, confidence, ambiguous=False):
    """Edge from scan j to scan i that puts j so many bays from i."""
    return Edge(j, i, at(BAY * bays), confidence, INFORMATION, 0.008, ambiguous)


def check(poses):
    """Measure free space: a wrong pose puts a tenth of the points into it."""
    visibilities = {}
    for (i, j), stacked in poses.items():
        off = np.linalg.norm((stacked - inverse(TRUE[i]) @ TRUE[j])[:, :3, 3], axis=1)
        visibilities[i, j] = [
            Visibility(1000, 100, 0.1, 0.4) if d > 0.5 else Visibility(1000, 0, 0.0, 0.4) for d in off
        ]
    return visibilities


def blind(poses):
    """Measure nothing: no viewpoint is known."""
    return {pair: [Visibility(0, 0, 0.0, 0.4)] * len(stacked) for pair, stacked in poses.items()}


def right_chain(confidence=0.97):
    return [[edge(k, k + 1, 1, confidence)] for k in range(COUNT - 1)]


def accepted(placement):
    return [p for p, state in enumerate(placement.edges) if state.rejection is None]


def test_right_layout_stays():
    pairs = right_chain()
    placement = verify_layout(place_scans(pairs, RADII), pairs, RADII, check)
    assert accepted(placement) == [0, 1, 2, 3]
    np.testing.assert_allclose(placement.graph.T_world_scan, TRUE, atol=1e-6)


def test_stacked_bays_are_separated():
    """All scans lie on one bay, and all triangles close: only free space tells that this is wrong."""
    pairs = [[edge(i, j, 0, 0.95)] for i in range(COUNT) for j in range(i + 1, COUNT)]
    placement = place_scans(pairs, RADII)
    assert len(placement.graph.components) == 1
    verified = verify_layout(placement, pairs, RADII, check)
    assert accepted(verified) == []
    assert all("free space" in state.rejection for state in verified.edges)


def test_one_confident_wrong_edge_is_cut():
    pairs = [*right_chain()[:3], [edge(3, 4, 2, 0.99), edge(3, 4, 1, 0.01)]]
    verified = verify_layout(place_scans(pairs, RADII), pairs, RADII, check)
    assert accepted(verified) == [0, 1, 2]


def test_ambiguous_scan_is_joined_where_free_space_allows():
    pairs = [
        *right_chain()[:3],
        [edge(2, 4, 1, 0.5, True), edge(2, 4, 2, 0.4, True)],
        [edge(3, 4, 0, 0.5, True), edge(3, 4, 1, 0.4, True)],
    ]
    placement = place_scans(pairs, RADII)
    assert accepted(placement) == [0, 1, 2]
    verified = verify_layout(placement, pairs, RADII, check)
    assert accepted(verified) == [0, 1, 2, 3, 4]
    np.testing.assert_allclose(verified.graph.T_world_scan, TRUE, atol=1e-6)


def test_nothing_is_joined_without_free_space():
    pairs = [*right_chain()[:3], [edge(2, 4, 2, 0.5, True)], [edge(3, 4, 1, 0.5, True)]]
    placement = place_scans(pairs, RADII)
    assert accepted(verify_layout(placement, pairs, RADII, blind)) == accepted(placement) == [0, 1, 2]


def test_uncertain_edges_connect_a_scan_only_if_free_space_verified_them():
    """A wrong pose of scan 3 in a symmetric place would agree with all three scans of the group, too."""
    group = [[edge(0, 1, 1, 0.97)], [edge(1, 2, 1, 0.97)], [edge(0, 2, 2, 0.97)]]
    pairs = [*group, *([edge(k, 3, 3 - k, 0.6)] for k in range(3))]
    placement = place_scans(pairs, RADII)
    assert accepted(placement) == [0, 1, 2, 3, 4, 5]
    assert accepted(verify_layout(placement, pairs, RADII, check)) == [0, 1, 2, 3, 4, 5]
    unverified = verify_layout(placement, pairs, RADII, blind)
    assert accepted(unverified) == [0, 1, 2]
    assert "no edge with a confidence" in unverified.edges[3].rejection


@pytest.mark.parametrize(("confidence", "joined"), [(0.91, False), (0.95, True)])
def test_two_groups_need_a_better_edge_than_two_scans(confidence, joined):
    """Two similar rooms have many pairs, and the best of them easily reaches 0.9 at a wrong pose."""
    rooms = [[0, 1, 2], [3, 4, 5]]
    pairs = [[edge(i, j, j - i, 0.97)] for room in rooms for i in room for j in room if i < j]
    pairs += [[edge(i, j, j - i, confidence)] for i in rooms[0] for j in rooms[1]]
    radii = np.full(6, 10.0)
    verified = verify_layout(place_scans(pairs, radii), pairs, radii, blind)
    assert len(verified.graph.components) == (1 if joined else 2)


def test_doubtful_group_is_not_placed():
    """Without free space, confident edges are not enough if the other candidates disagree."""
    pairs = [[edge(i, i + 1, 0, 0.92)] for i in range(3)]
    placement = place_scans([*pairs, [], []], RADII)
    assert accepted(placement) == [0, 1, 2]
    pairs += [[edge(0, 2, 2, 0.5, True), edge(0, 2, 1, 0.4, True)], [edge(1, 3, 2, 0.9, True)]]
    inside = pairs_inside(pairs, placement.graph.components)[0]
    assert disagreement(inside, placement.graph.T_world_scan, RADII) > 0.3
    doubtful = verify_layout(placement, pairs, RADII, blind)
    assert accepted(doubtful) == []
    assert "repeat" in " ".join(state.rejection for state in doubtful.edges)


def test_low_violations_everywhere_are_usual():
    """In a street with moving things, all right poses violate free space a little."""

    def busy(poses):
        return {pair: [Visibility(1000, 10, 0.01, 0.4)] * len(T) for pair, T in poses.items()}

    pairs = right_chain()
    assert accepted(verify_layout(place_scans(pairs, RADII), pairs, RADII, busy)) == [0, 1, 2, 3]


def test_cheapest_edge_is_cut():
    edges = [edge(0, 1, 1, 0.99), edge(1, 2, 0, 0.91), edge(2, 3, 1, 0.99), edge(3, 4, 1, 0.99)]
    T = np.stack([at(BAY * x) for x in (0, 1, 1, 2, 3)])
    assert list(separate(edges, [list(range(COUNT))], T, RADII, check)) == [1]


def weak_check(contradicts):
    """Measure overlaps: that of scan 4 is small at every bay; free space may contradict wrong bays."""

    def check(poses):
        visibilities = {}
        for (i, j), stacked in poses.items():
            weak = 4 in (i, j)
            off = np.linalg.norm((stacked - inverse(TRUE[i]) @ TRUE[j])[:, :3, 3], axis=1) > 0.5
            shares = [0.05 if wrong and contradicts else 0.0 for wrong in off]
            visibilities[i, j] = [Visibility(1000, int(1000 * s), s, 0.2 if weak else 0.5) for s in shares]
        return visibilities

    return check


@pytest.mark.parametrize("contradicts", [True, False])
def test_place_that_repeats_is_placed_only_if_free_space_contradicts_other_bays(contradicts):
    pairs = [[*own, edge(k, k + 1, 2, 0.02, True)] for k, own in enumerate(right_chain())]
    placement = place_scans(pairs, RADII)
    assert accepted(placement) == [0, 1, 2, 3]
    verified = verify_layout(placement, pairs, RADII, weak_check(contradicts))
    assert accepted(verified) == ([0, 1, 2, 3] if contradicts else [])
    assert contradicts or all(state.rejection.startswith(MAY_REPEAT) for state in verified.edges)
    distinct = verify_layout(placement, pairs, RADII, weak_check(contradicts), distinct=True)
    assert accepted(distinct) == [0, 1, 2, 3]


def corridor_check(fits_at):
    """Measure free space: scan 4, of a room, violates nothing at some bays; other wrong poses violate it."""

    def check(poses):
        visibilities = {}
        for (i, j), stacked in poses.items():
            bays = np.round((stacked - inverse(TRUE[i]) @ TRUE[j])[:, 0, 3] / BAY)
            if 4 in (i, j):
                visibilities[i, j] = [Visibility(4000, 0 if b in fits_at else 400, 0.0, 0.2) for b in bays]
            else:
                visibilities[i, j] = [Visibility(20000, 4000 if b else 0, 0.0, 0.7) for b in bays]
        return visibilities

    return check


@pytest.mark.parametrize("fits_at", [(0,), (-1, 0), (0, 3)])
def test_room_is_left_out_if_it_fits_at_another_bay_that_none_of_its_candidates_has(fits_at):
    pairs = [
        [*own, *(edge(k, k + 1, 1 + b, 0.001, True) for b in (1, 2))] for k, own in enumerate(right_chain())
    ]
    pairs[3] = [edge(3, 4, 1, 0.99)]
    placement = place_scans(pairs, RADII)
    assert accepted(placement) == [0, 1, 2, 3]
    verified = verify_layout(placement, pairs, RADII, corridor_check(fits_at))
    assert accepted(verified) == ([0, 1, 2, 3] if fits_at == (0,) else [0, 1, 2])
    assert fits_at == (0,) or "fit as well at another position" in verified.edges[3].rejection


def test_a_few_stray_points_do_not_separate_scans():
    def stray(poses):
        return {pair: [Visibility(1100, 8, 0.007, 0.4)] * len(T) for pair, T in poses.items()}

    edges = [own[0] for own in right_chain()]
    assert separate(edges, [list(range(COUNT))], TRUE, RADII, stray) == {}


@pytest.mark.parametrize("count", [1, 2, 30])
def test_near_pairs_are_near(count):
    rng = np.random.default_rng(count)
    T = np.tile(np.eye(4), (count, 1, 1))
    T[:, :3, 3] = rng.uniform(0, 20, (count, 3))
    pairs = near_pairs(range(count), range(count), T, np.ones(count))
    expected = [
        (i, j)
        for i in range(count)
        for j in range(i + 1, count)
        if np.linalg.norm(T[i, :3, 3] - T[j, :3, 3]) < 4
    ]
    assert pairs == expected
