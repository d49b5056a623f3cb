"""Choice among the candidate poses of each pair."""

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from poses import random_motion
from wsdesc.alignment.information import Information
from wsdesc.core.geometry import inverse
from wsdesc.reconstruction.disambiguation import LOOP_TOLERANCE, displacements
from wsdesc.reconstruction.placement import place_scans
from wsdesc.reconstruction.pose_graph import Edge

INFORMATION = Information(0.3 * np.eye(6), np.zeros(3), 1.0, 0.5, 2000)
BAY = 1.2  # model metres between repeated parts of a building
RADIUS = 1.5


def pose(x=0.0, rotated=False):
    T = np.diag([-1.0, -1.0, 1.0, 1.0]) if rotated else np.eye(4)
    T[0, 3] = x
    return T


def corridor(count, reach, rng, uncertain=0.6):
    """Make pairs of scans along a corridor with repetitive structure, up to `reach` scans apart.

    Uncertain pairs have other candidates of about the same probability, shifted by a bay or rotated by 180°,
    and in half of these pairs a wrong candidate comes first. Return the pairs and the right candidates.
    """
    own = [Rotation.random(random_state=rng).as_matrix() for _ in range(count)]
    T_world_scan = []
    for k, R in enumerate(own):
        T = pose(0.7 * BAY * k)
        T[:3, :3] = R
        T_world_scan.append(T)
    pairs, right = [], []
    for i in range(count):
        for j in range(i + 1, min(i + 1 + reach, count)):
            noise = random_motion(rng, 0.004, 0.01)
            T_world_i, T_world_j = T_world_scan[i], T_world_scan[j]
            true = inverse(T_world_i) @ T_world_j @ noise
            if rng.random() > uncertain:
                poses, at = [(true, 0.95)], 0
            else:
                moved = (pose(rng.choice([-BAY, BAY])), pose(0.7 * BAY * (i + j), rotated=True))
                wrong = [inverse(T_world_i) @ T @ T_world_j @ noise for T in moved]
                poses = [(true, 0.5), (wrong[0], 0.45), (wrong[1], 0.45)]
                at = int(rng.integers(2)) if rng.random() < 0.5 else 0
                poses.insert(at, poses.pop(0))
            pairs.append([Edge(j, i, T, confidence, INFORMATION, 0.008) for T, confidence in poses])
            right.append(at)
    return pairs, right


def chosen_candidates(pairs, count):
    """Return the candidate of each pair that agrees with the layout; None if its scans are separate."""
    graph, states, _ = place_scans(pairs, np.full(count, RADIUS))
    group = {scan: n for n, scans in enumerate(graph.components) for scan in scans}
    return [
        next(k for k, edge in enumerate(edges) if edge is state.edge)
        if edges and group[edges[0].source] == group[edges[0].target]
        else None
        for state, edges in zip(states, pairs, strict=True)
    ]


@pytest.mark.parametrize("seed", range(6))
def test_right_candidates_are_chosen(seed):
    pairs, right = corridor(10, 4, np.random.default_rng(seed))
    assert any(right)  # in some pairs the best fit is wrong
    assert chosen_candidates(pairs, 10) == right


def test_majority_decides_if_all_pairs_are_uncertain():
    pairs, right = corridor(10, 5, np.random.default_rng(3), uncertain=1.0)
    chosen = chosen_candidates(pairs, 10)
    wrong = sum(p not in (r, None) for p, r in zip(chosen, right, strict=True))
    assert wrong <= 0.1 * len(right) < sum(r != 0 for r in right)


def test_uncertain_poses_do_not_outvote_confident_ones():
    """With repetitive structure, wrong poses agree with each other."""
    count, rng = 5, np.random.default_rng(0)
    T_world_scan = [pose(BAY * k) for k in range(count)]
    pairs, right = [], []
    for i in range(count):
        for j in range(i + 1, count):
            true = Edge(j, i, inverse(T_world_scan[i]) @ T_world_scan[j], 0.9, INFORMATION, 0.008)
            stacked = true._replace(T_target_source=pose(rng.normal(0, 0.01)), confidence=0.5, ambiguous=True)
            confident = j == i + 1
            pairs.append([true] if confident else [stacked])
            right.append(confident)
    edges = place_scans(pairs, np.full(count, RADIUS)).edges
    accepted = {p for p, edge in enumerate(edges) if edge.rejection is None}
    assert accepted
    assert accepted <= set(np.flatnonzero(right).tolist())


def test_single_pair_with_two_equal_candidates_is_rejected():
    one = Edge(1, 0, pose(0.5), 0.5, INFORMATION, 0.008)
    other = one._replace(T_target_source=pose(0.5 + BAY), confidence=0.5)
    assert chosen_candidates([[one, other]], 2) == [None]
    assert chosen_candidates([[one._replace(confidence=0.9)], []], 3) == [0, None]


def test_direction_and_order_of_pairs_do_not_matter():
    rng = np.random.default_rng(1)
    pairs, right = corridor(8, 3, rng)
    rotated = [
        [
            e._replace(source=e.target, target=e.source, T_target_source=inverse(e.T_target_source))
            for e in poses
        ]
        for poses in pairs
    ]
    order = rng.permutation(len(pairs))
    assert chosen_candidates([rotated[k] for k in order], 8) == [right[k] for k in order]


def test_displacements_bound_the_distance_of_points():
    rng = np.random.default_rng(2)
    T = pose(0.3)
    T[:3, :3] = Rotation.from_rotvec([0.1, -0.2, 0.05]).as_matrix()
    S = pose(0.35)
    points = rng.normal(size=(4000, 3))
    points *= RADIUS / np.linalg.norm(points, axis=1, keepdims=True)

    def apart(A, B):
        return np.linalg.norm(points @ (A - B)[:3, :3].T + (A - B)[:3, 3], axis=1).max()

    farthest = max(apart(T, S), apart(inverse(T), inverse(S)))
    assert 0.8 * displacements(T, S, RADIUS, RADIUS) < farthest <= displacements(T, S, RADIUS, RADIUS)
    assert displacements(T, T, 9.0, 9.0) < 1e-6 < LOOP_TOLERANCE
