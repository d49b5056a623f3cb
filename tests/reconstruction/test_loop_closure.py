"""Wrong relative poses are found out by the others."""

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from wsdesc.alignment.observability import Information
from wsdesc.core.geometry import inverse
from wsdesc.reconstruction.loop_closure import (
    CONFIRMED,
    CONFIRMED_ALIKE,
    LOOP_TOLERANCE,
    MIN_CONFIDENCE_UNCONFIRMED,
    Loop,
    displacement,
    find_loops,
    judge_edges,
    place,
    reject_contradictions,
)
from wsdesc.reconstruction.pose_graph import Edge

FIRM = Information(0.3 * np.eye(6), np.zeros(3), 1.0, 0.5, 2000)


def motion(rng, angle=2.0, shift=2.0):
    T = np.eye(4)
    T[:3, :3] = Rotation.from_rotvec(rng.normal(0, angle, 3)).as_matrix()
    T[:3, 3] = rng.normal(0, shift, 3)
    return T


def edges_between(pairs, count, confidence=0.95, seed=0):
    """Right edges, but for a few millimetres, alternating in direction."""
    rng = np.random.default_rng(seed)
    T_world_scan = [motion(rng) for _ in range(count)]
    edges = []
    for k, (i, j) in enumerate(pairs):
        i, j = (i, j) if k % 2 else (j, i)
        T = inverse(T_world_scan[i]) @ T_world_scan[j] @ motion(rng, 0.002, 0.005)
        edges.append(Edge(j, i, T, confidence, FIRM, 0.008))
    return edges


ALL_OF_FOUR = [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]


def test_right_edges_are_believed():
    edges = edges_between(ALL_OF_FOUR, 4)
    assert judge_edges(edges, np.full(4, 1.5)) == [None] * 6
    loops = find_loops(range(6), edges, np.full(4, 1.5))
    assert len(loops) == 4
    assert all(loop.closed for loop in loops)


@pytest.mark.parametrize("wrong", range(6))
@pytest.mark.parametrize("how", ["turned", "slid"])
def test_a_wrong_edge_is_found_however_sure_it_is(wrong, how):
    edges = edges_between(ALL_OF_FOUR, 4)
    T_wrong = np.eye(4)
    if how == "turned":
        T_wrong[:3, :3] = Rotation.from_rotvec([0, 0, np.pi]).as_matrix()
    else:
        T_wrong[0, 3] = 0.3
    edges[wrong] = edges[wrong]._replace(
        T_target_source=edges[wrong].T_target_source @ T_wrong, confidence=0.999
    )
    verdicts = judge_edges(edges, np.full(4, 1.5))
    assert [k for k, verdict in enumerate(verdicts) if verdict] == [wrong]
    assert "contradicts" in verdicts[wrong]


@pytest.mark.parametrize("seed", range(20))
def test_edges_go_one_by_one_the_least_supported_first(seed):
    rng = np.random.default_rng(seed)
    loops = [
        Loop(tuple(rng.choice(12, 3, replace=False).tolist()), bool(rng.random() < 0.6)) for _ in range(25)
    ]
    confidence = rng.integers(0, 4, 12).astype(float)
    against, left = {}, loops
    while any(not loop.closed for loop in left):  # the definition
        votes = {k: sum((1 if loop.closed else -1) for loop in left if k in loop.edges) for k in range(12)}
        accused = {k for loop in left if not loop.closed for k in loop.edges}
        worst = min(
            accused, key=lambda k: (confidence[k] >= MIN_CONFIDENCE_UNCONFIRMED, votes[k], confidence[k], k)
        )
        against[worst] = sum(worst in loop.edges and not loop.closed for loop in left)
        left = [loop for loop in left if worst not in loop.edges]
    assert reject_contradictions(loops, confidence) == (against, {k for loop in left for k in loop.edges})


def test_in_a_single_triangle_the_least_sure_edge_goes():
    edges = edges_between([(0, 1), (1, 2), (0, 2)], 3)
    edges[1] = edges[1]._replace(T_target_source=motion(np.random.default_rng(9)), confidence=0.85)
    assert [bool(v) for v in judge_edges(edges, np.ones(3))] == [False, True, False]


def test_weak_edges_need_a_loop():
    pairs = [(0, 1), (1, 2), (0, 2), (2, 3)]
    weak = edges_between(pairs, 4, confidence=0.5)
    verdicts = judge_edges(weak, np.ones(4))
    assert verdicts[:3] == [None] * 3
    assert "no loop" in verdicts[3]
    sure = [*weak[:3], weak[3]._replace(confidence=MIN_CONFIDENCE_UNCONFIRMED)]
    assert judge_edges(sure, np.ones(4))[3] is None
    hopeless = [e._replace(confidence=0.1) for e in weak]
    assert all("confidence" in verdict for verdict in judge_edges(hopeless, np.ones(4)))


def test_where_places_repeat_loops_say_less():
    """A bay further, wrong poses close their triangles as well."""
    edges = edges_between([(0, 1), (1, 2), (0, 2)], 3, confidence=0.5)
    assert judge_edges(edges, np.ones(3)) == [None] * 3
    alike = [edge._replace(alike=True) for edge in edges]
    assert all("confidence" in verdict for verdict in judge_edges(alike, np.ones(3)))
    surer = [edge._replace(confidence=CONFIRMED_ALIKE) for edge in alike]
    assert judge_edges(surer, np.ones(3)) == [None] * 3


def test_displacement_is_how_far_points_go():
    rng = np.random.default_rng(4)
    T = motion(rng, 0.3, 0.2)
    points = rng.normal(size=(2000, 3))
    points *= 1.5 / np.linalg.norm(points, axis=1, keepdims=True)
    farthest = np.linalg.norm(points @ T[:3, :3].T + T[:3, 3] - points, axis=1).max()
    assert 0.8 * displacement(T, 1.5) < farthest <= displacement(T, 1.5)
    assert displacement(np.eye(4), 9.0) < 1e-6 < LOOP_TOLERANCE


@pytest.mark.parametrize("wrong", [0, 5, 11])
def test_without_triangles_the_poses_of_all_find_the_wrong_edge(wrong):
    rows = [(3 * y + x, 3 * y + x + 1) for y in range(3) for x in range(2)]
    columns = [(3 * y + x, 3 * y + x + 3) for y in range(2) for x in range(3)]
    edges = edges_between(rows + columns, 9)  # a grid of squares
    right = place([[edge] for edge in edges], np.ones(9))
    assert right.verdicts == [None] * 12
    edges[wrong] = edges[wrong]._replace(T_target_source=motion(np.random.default_rng(8)))
    graph, chosen, verdicts, deviations = place([[edge] for edge in edges], np.ones(9))
    assert [edge is given for edge, given in zip(chosen, edges, strict=True)] == [True] * 12
    assert [k for k, verdict in enumerate(verdicts) if verdict] == [wrong]
    assert "standard deviations" in verdicts[wrong]
    assert deviations[wrong] is None
    np.testing.assert_allclose(graph.T_world_scan, right.graph.T_world_scan, atol=0.05)


def test_no_edges():
    assert judge_edges([], np.zeros(0)) == []
    graph, *rest = place([], np.ones(2))
    assert graph.components == [[0], [1]]
    assert rest == [[], [], []]
    assert place([[]], np.ones(2)).verdicts == ["no motion brings the scans together"]


def test_a_scan_that_fits_as_well_elsewhere_is_not_placed():
    edges = edges_between([(0, 1), (0, 2), (1, 2)], 3)
    turn = np.diag([-1.0, -1.0, 1.0, 1.0])  # of the third scan, in its own frame
    pairs = [[edges[0]]]
    for edge in edges[1:]:
        T = edge.T_target_source @ turn if edge.source == 2 else turn @ edge.T_target_source
        pairs.append([edge._replace(confidence=0.5), edge._replace(T_target_source=T, confidence=0.5)])
    graph, _, verdicts, _ = place(pairs, np.ones(3))
    assert graph.components == [[0, 1], [2]]
    assert verdicts[0] is None
    assert all("elsewhere" in verdict for verdict in verdicts[1:])
    sooner = [poses if len(poses) == 1 else [poses[0], poses[1]._replace(confidence=0.1)] for poses in pairs]
    assert place(sooner, np.ones(3)).graph.components == [[0, 1, 2]]
    assert CONFIRMED < 0.5 < MIN_CONFIDENCE_UNCONFIRMED
