"""Pose graph with noisy and wrong edges."""

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from poses import random_motion
from wsdesc.alignment.information import Information
from wsdesc.core.geometry import inverse
from wsdesc.reconstruction.least_squares import Problem, _exp, _loss
from wsdesc.reconstruction.pose_graph import OUTLIER, Edge, connected_scans, edge_factor, solve


def motion(rng, angle=3.0, shift=4.0):
    return random_motion(rng, angle / np.sqrt(3), shift)


def random_information(rng):
    """Make the information of an overlap that determines all directions, some better than others."""
    frame = np.linalg.qr(rng.normal(size=(6, 6)))[0]
    matrix = (frame * rng.uniform(0.05, 0.6, 6)) @ frame.T
    return Information(matrix, rng.normal(0, 0.5, 3), 1.0, 0.5, 2000)


def graph(rng, count, links, noise=0.002, wrong=0):
    """Make poses, edges between scans up to `links` apart, and the set of wrong edges; the chain is right."""
    T_world_scan = np.stack([np.eye(4), *(motion(rng) for _ in range(count - 1))])
    pairs = [(i, i + d) for d in range(1, links + 1) for i in range(count - d)]
    bad = set(rng.choice(np.arange(count - 1, len(pairs)), wrong, replace=False)) if wrong else set()
    edges = []
    for k, (i, j) in enumerate(pairs):
        T = inverse(T_world_scan[i]) @ T_world_scan[j] @ motion(rng, noise, noise)
        T = motion(rng) if k in bad else T
        confidence = rng.uniform(0.5, 0.8) if k in bad else rng.uniform(0.8, 1.0)
        edges.append(Edge(j, i, T, confidence, random_information(rng), 0.008))
    return T_world_scan, edges, bad


def largest_errors(T, T_true):
    error = np.linalg.inv(T) @ T_true
    turn = Rotation.from_matrix(error[:, :3, :3]).magnitude()
    return np.degrees(turn).max(), np.linalg.norm(error[:, :3, 3], axis=1).max()


def test_exact_edges_give_the_exact_poses():
    T_true, edges, _ = graph(np.random.default_rng(0), 12, 3, noise=0)
    result = solve(12, edges)
    np.testing.assert_allclose(result.T_world_scan, T_true, atol=1e-9)
    assert result.deviations.max() < 1e-5
    assert result.components == [list(range(12))]


@pytest.mark.parametrize("seed", range(4))
def test_wrong_edges_are_ignored_and_reported(seed):
    T_true, edges, bad = graph(np.random.default_rng(seed), 20, 4, wrong=12)
    result = solve(20, edges)
    right = [edge for k, edge in enumerate(edges) if k not in bad]
    degrees, metres = largest_errors(result.T_world_scan, solve(20, right).T_world_scan)
    assert degrees < 0.05
    assert metres < 0.005  # as good as without the wrong edges
    degrees, metres = largest_errors(result.T_world_scan, T_true)
    assert degrees < 0.5
    assert metres < 0.08
    assert set(np.flatnonzero(result.deviations > OUTLIER)) == bad


def test_most_confident_edges_are_ignored_if_wrong():
    T_true, edges, bad = graph(np.random.default_rng(7), 20, 5, wrong=8)
    edges = [e._replace(confidence=1.0 if k in bad else 0.9) for k, e in enumerate(edges)]
    result = solve(20, edges)
    assert largest_errors(result.T_world_scan, T_true)[1] < 0.08


def test_redundant_edges_reduce_the_noise_of_a_chain():
    rng = np.random.default_rng(3)
    T_true, edges, _ = graph(rng, 30, 6, noise=0.004)
    alone = solve(30, edges[:29])
    together = solve(30, edges)
    assert (
        largest_errors(together.T_world_scan, T_true)[1] < 0.6 * largest_errors(alone.T_world_scan, T_true)[1]
    )


def test_undetermined_direction_follows_the_edges_that_determine_it():
    along = np.diag([0.0, 0.4, 0.4, 0.3, 0.3, 0.3])  # a corridor: x is undetermined
    corridor = Information(along, np.zeros(3), 1.0, 0.5, 2000)
    full = Information(0.3 * np.eye(6), np.zeros(3), 1.0, 0.5, 2000)
    T_shifted = np.eye(4)
    T_shifted[0, 3] = 0.1
    edges = [Edge(1, 0, T_shifted, 0.9, corridor, 0.02), Edge(1, 0, np.eye(4), 0.9, full, 0.02)]
    assert abs(solve(2, edges).T_world_scan[1, 0, 3]) < 0.02


def test_derivatives_are_right():
    rng = np.random.default_rng(1)
    T, edges, _ = graph(rng, 4, 3, noise=0.1)
    problem = Problem([edge_factor(edge) for edge in edges], fixed=np.array([0]), count=4)
    scale = np.full(len(edges), 50.0)

    def loss(step):
        moved = T.copy()
        moved[problem.free] = T[problem.free] @ _exp(step.reshape(-1, 6))
        return _loss(problem.squared_errors(moved), scale)

    h = 1e-6
    numeric = [(loss(h * u) - loss(-h * u)) / (2 * h) for u in np.eye(18)]
    gradient, hessian = problem.normal_equations(T, scale)
    np.testing.assert_allclose(2 * gradient, numeric, rtol=1e-4, atol=1e-4 * np.abs(numeric).max())
    assert np.abs(hessian.toarray() - hessian.toarray().T).max() < 1e-6 * np.abs(hessian.toarray()).max()


def test_each_component_has_its_own_frame():
    T_true, edges, _ = graph(np.random.default_rng(2), 9, 2, noise=0)
    cut = [e for e in edges if (e.source < 6) == (e.target < 6) and 8 not in (e.source, e.target)]
    result = solve(9, cut)
    assert result.components == [[0, 1, 2, 3, 4, 5], [6, 7], [8]]
    np.testing.assert_array_equal(result.T_world_scan[6], np.eye(4))
    np.testing.assert_allclose(result.T_world_scan[7], np.linalg.inv(T_true[6]) @ T_true[7], atol=1e-9)
    assert connected_scans(3, []) == [[0], [1], [2]]
    assert len(solve(3, []).deviations) == 0


def test_result_is_deterministic():
    _, edges, _ = graph(np.random.default_rng(5), 15, 3, wrong=5)
    assert (solve(15, edges).T_world_scan == solve(15, edges).T_world_scan).all()


def test_eighty_scans_with_eighty_wrong_edges():
    T_true, edges, _ = graph(np.random.default_rng(6), 80, 8, wrong=80)
    result = solve(80, edges)
    assert largest_errors(result.T_world_scan, T_true)[1] < 0.08
