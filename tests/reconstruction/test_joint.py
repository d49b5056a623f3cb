"""Layouts by all pairs together: better rivals replace them, rivals that are as good cut them."""

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.spatial.transform import Rotation

from wsdesc.alignment.information import Information
from wsdesc.core.geometry import inverse
from wsdesc.reconstruction.cuts import cheapest_part
from wsdesc.reconstruction.disambiguation import CandidatePoses
from wsdesc.reconstruction.joint import find_layout
from wsdesc.reconstruction.motions import GroupMotions
from wsdesc.reconstruction.pose_graph import Edge

INFORMATION = Information(0.3 * np.eye(6), np.zeros(3), 1.0, 0.5, 2000)
COUNT = 8
RADII = np.full(COUNT, 1.5)


def turn(quarters):
    T = np.eye(4)
    T[:3, :3] = Rotation.from_euler("z", 90 * quarters, degrees=True).as_matrix()
    return T


def shift(x):
    T = np.eye(4)
    T[0, 3] = x
    return T


def court(right, wrong, rng):
    """Make pairs in a court with four equal sides: the right pose, and poses after a quarter turn."""
    T = np.stack([turn(0) for _ in range(COUNT)])
    T[:, :3, :3] = Rotation.random(COUNT, random_state=rng).as_matrix()
    T[:, :3, 3] = rng.uniform(-2, 2, (COUNT, 3)) + np.array([3.0, 0, 0])
    pairs = []
    for i in range(COUNT):
        for j in range(i + 1, COUNT):
            poses = [inverse(T[i]) @ turn(k) @ T[j] for k in (0, 1, 3)]
            weights = (right, wrong, wrong)
            pairs.append([Edge(j, i, P, c, INFORMATION, 0.01) for P, c in zip(poses, weights, strict=True)])
    return T, CandidatePoses.of(pairs)


def test_parts_turn_until_most_candidates_agree():
    rng = np.random.default_rng(0)
    T, poses = court(0.5, 0.2, rng)
    turned = np.stack([turn(k) for k in rng.integers(0, 4, COUNT)]) @ T
    layout = find_layout(poses, RADII, turned)
    assert len(set(layout.group.tolist())) == 1
    relative = inverse(layout.T[0]) @ layout.T
    np.testing.assert_allclose(relative, inverse(T[0]) @ T, atol=1e-9)


def test_equal_rivals_separate_all_scans_and_say_why():
    T, poses = court(0.3, 0.3, np.random.default_rng(1))
    layout = find_layout(poses, RADII, T)
    assert len(set(layout.group.tolist())) == COUNT
    assert any("repeat" in reason for reason in layout.doubts.values())


@pytest.mark.parametrize("seed", range(5))
def test_cheapest_part_is_the_cheapest_of_all(seed):
    rng = np.random.default_rng(seed)
    losses = rng.uniform(0, 2, (6, 6)) * (rng.random((6, 6)) < 0.6)
    np.fill_diagonal(losses, 0)
    part, loss = cheapest_part(csr_array(losses), 100.0)
    all_parts = [np.array([n >> k & 1 for k in range(6)], dtype=bool) for n in range(1, 63)]
    best = min(losses[own][:, ~own].sum() for own in all_parts)
    assert loss == pytest.approx(best)
    assert loss == pytest.approx(losses[part][:, ~part].sum())


def test_motions_and_their_inverses_are_the_same():
    group = GroupMotions(np.stack([turn(0), turn(1)]), np.full(2, 2.0))
    motions = np.stack([turn(0), turn(1), turn(3), turn(2), turn(1)])
    assert [own.tolist() for own in group.distinct(motions)] == [[1, 2, 4], [3]]
    assert len(group.with_powers([turn(1)])) == 2
    assert len(group.with_powers([turn(2)])) == 1


def test_powers_end_where_they_leave_the_group():
    group = GroupMotions(np.stack([shift(0), shift(9)]), np.full(2, 1.0))
    np.testing.assert_allclose([M[0, 3] for M in group.with_powers([shift(4)])], [4, 8])


def test_motion_that_most_pairs_have_in_common_comes_first():
    rng = np.random.default_rng(0)
    bays = [shift(sign * 4 + rng.normal(0, 0.02)) for sign in (1, -1, 1, 1)]
    motions = np.stack([turn(1), *bays, turn(2), turn(2), shift(0.1)])
    owner = np.array([0, 0, 1, 2, 3, 4, 4, 4])
    group = GroupMotions(np.stack([shift(0), shift(9)]), np.full(2, 1.0))
    common = group.common(motions, owner, 3)
    assert len(common) == 1
    assert abs(common[0][0, 3]) == pytest.approx(4, abs=0.05)
