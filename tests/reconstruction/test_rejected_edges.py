"""Rejection of edges that contradict others, and of those that too few others confirm."""

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from poses import random_motion
from wsdesc.alignment.information import Information
from wsdesc.core.geometry import inverse
from wsdesc.reconstruction.disambiguation import MIN_CONFIDENCE
from wsdesc.reconstruction.placement import place_scans
from wsdesc.reconstruction.pose_graph import Edge

INFORMATION = Information(0.3 * np.eye(6), np.zeros(3), 1.0, 0.5, 2000)


def edges_between(pairs, count, confidence=0.95, seed=0):
    """Make right edges with a noise of some millimetres, in alternating directions."""
    rng = np.random.default_rng(seed)
    T_world_scan = [random_motion(rng, 2.0, 2.0) for _ in range(count)]
    edges = []
    for k, (i, j) in enumerate(pairs):
        i, j = (i, j) if k % 2 else (j, i)
        T = inverse(T_world_scan[i]) @ T_world_scan[j] @ random_motion(rng, 0.002, 0.005)
        edges.append(Edge(j, i, T, confidence, INFORMATION, 0.008))
    return edges


def check_edges(edges, radii):
    """Return why each edge is rejected, or None."""
    return [state.rejection for state in place_scans([[edge] for edge in edges], radii).edges]


ALL_OF_FOUR = [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]


def test_right_edges_are_accepted():
    edges = edges_between(ALL_OF_FOUR, 4)
    assert check_edges(edges, np.full(4, 1.5)) == [None] * 6


@pytest.mark.parametrize("wrong", range(6))
@pytest.mark.parametrize("how", ["rotated", "shifted"])
def test_wrong_edge_is_rejected_at_any_confidence(wrong, how):
    edges = edges_between(ALL_OF_FOUR, 4)
    T_wrong = np.eye(4)
    if how == "rotated":
        T_wrong[:3, :3] = Rotation.from_rotvec([0, 0, np.pi]).as_matrix()
    else:
        T_wrong[0, 3] = 0.3
    edges[wrong] = edges[wrong]._replace(
        T_target_source=edges[wrong].T_target_source @ T_wrong, confidence=0.999
    )
    rejections = check_edges(edges, np.full(4, 1.5))
    assert [k for k, rejection in enumerate(rejections) if rejection] == [wrong]


def test_single_triangle_loses_its_least_confident_edge():
    edges = edges_between([(0, 1), (1, 2), (0, 2)], 3)
    edges[1] = edges[1]._replace(
        T_target_source=random_motion(np.random.default_rng(9), 2.0, 2.0), confidence=0.5
    )
    assert [bool(v) for v in check_edges(edges, np.ones(3))] == [False, True, False]


def test_uncertain_edges_need_a_closed_loop():
    pairs = [(0, 1), (1, 2), (0, 2), (2, 3)]
    uncertain = edges_between(pairs, 4, confidence=0.5)
    rejections = check_edges(uncertain, np.ones(4))
    assert rejections[:3] == [None] * 3
    assert "too few" in rejections[3]
    confident = [*uncertain[:3], uncertain[3]._replace(confidence=MIN_CONFIDENCE)]
    assert check_edges(confident, np.ones(4))[3] is None
    doubtful = [e._replace(confidence=0.1) for e in uncertain]
    assert all("confidence" in rejection for rejection in check_edges(doubtful, np.ones(4)))


def test_ambiguous_edges_need_more_confidence():
    """With repetitive structure, wrong poses close triangles, too."""
    edges = edges_between([(0, 1), (1, 2), (0, 2)], 3, confidence=0.5)
    assert check_edges(edges, np.ones(3)) == [None] * 3
    ambiguous = [edge._replace(ambiguous=True) for edge in edges]
    assert all("confidence" in rejection for rejection in check_edges(ambiguous, np.ones(3)))


def test_ambiguous_edges_do_not_confirm_each_other():
    edges = edges_between([(0, 1), (1, 2), (0, 2)], 3, confidence=0.6)
    one = [edges[0]._replace(ambiguous=True), *edges[1:]]
    assert check_edges(one, np.ones(3)) == [None] * 3
    two = [edge._replace(ambiguous=True) for edge in edges[:2]] + edges[2:]
    assert all("confidence" in rejection for rejection in check_edges(two, np.ones(3)))


@pytest.mark.parametrize("wrong", [2, 7, 10])
def test_without_triangles_longer_loops_reject_the_wrong_edge(wrong):
    rows = [(3 * y + x, 3 * y + x + 1) for y in range(3) for x in range(2)]
    columns = [(3 * y + x, 3 * y + x + 3) for y in range(2) for x in range(3)]
    edges = edges_between(rows + columns, 9)  # a grid of squares
    right = place_scans([[edge] for edge in edges], np.ones(9))
    assert [edge.rejection for edge in right.edges] == [None] * 12
    edges[wrong] = edges[wrong]._replace(T_target_source=random_motion(np.random.default_rng(8), 2.0, 2.0))
    graph, placed, _ = place_scans([[edge] for edge in edges], np.ones(9))
    assert all(p.edge is edge for p, edge in zip(placed, edges, strict=True))
    assert [k for k, edge in enumerate(placed) if edge.rejection] == [wrong]
    assert "contradicts" in placed[wrong].rejection
    assert placed[wrong].deviation is None
    np.testing.assert_allclose(graph.T_world_scan, right.graph.T_world_scan, atol=0.05)


def test_no_edges():
    graph, edges, _ = place_scans([], np.ones(2))
    assert graph.components == [[0], [1]]
    assert edges == []
    assert place_scans([[]], np.ones(2)).edges == [(None, "no alignment found", None)]


def test_scan_with_two_equal_positions_is_not_placed():
    edges = edges_between([(0, 1), (0, 2), (1, 2)], 3)
    turn = np.diag([-1.0, -1.0, 1.0, 1.0])  # of the third scan, in its own frame
    pairs = [[edges[0]]]
    for edge in edges[1:]:
        T = edge.T_target_source @ turn if edge.source == 2 else turn @ edge.T_target_source
        pairs.append([edge._replace(confidence=0.5), edge._replace(T_target_source=T, confidence=0.5)])
    graph, placed, _ = place_scans(pairs, np.ones(3))
    assert graph.components == [[0, 1], [2]]
    assert placed[0].rejection is None
    assert all("another position" in edge.rejection for edge in placed[1:])
    clear = [poses if len(poses) == 1 else [poses[0], poses[1]._replace(confidence=0.05)] for poses in pairs]
    assert place_scans(clear, np.ones(3)).graph.components == [[0, 1, 2]]
