"""Priors: a right one never loses a right pose or match, and others are dropped."""

import math

import numpy as np
import pytest
import torch
from scipy.spatial.transform import Rotation
from tests.poses import perturbed, random_pose

from wsdesc.alignment.consensus import consensus, cuda
from wsdesc.alignment.hypotheses import ransac_hypotheses
from wsdesc.alignment.information import Information
from wsdesc.alignment.prior import Near, PosePrior, Upright
from wsdesc.core.geometry import make_pose, transform

Z = np.array([0.0, 0.0, 1.0])


def poses_near(guess, radius, angle, count, seed=0):
    """Draw poses whose origin moves by up to `radius` and whose rotation changes by up to `angle`."""
    rng = np.random.default_rng(seed)
    poses = np.stack([guess] * count)
    for T in poses:
        shift, turn = (v / np.linalg.norm(v) for v in rng.normal(size=(2, 3)))
        T[:3, :3] = Rotation.from_rotvec(rng.random() * angle * turn).as_matrix() @ T[:3, :3]
        T[:3, 3] += rng.random() * radius * shift
    return poses


def tilted(T, degrees):
    T = T.copy()
    T[:3, :3] = Rotation.from_euler("x", degrees, degrees=True).as_matrix() @ T[:3, :3]
    return T


@pytest.mark.parametrize(("radius", "degrees"), [(0.0, 0.0), (0.5, 10), (3.0, 90), (math.inf, 180)])
def test_near_keeps_every_pose_and_match_within_its_limits(radius, degrees):
    guess = random_pose(3)
    near = Near(guess, radius, math.radians(degrees), size=2.0)
    poses = poses_near(guess, min(radius, 50.0), math.radians(degrees), 200)
    assert near.allows(poses, refined=True).all()
    assert near.allows(poses, refined=False).all()
    points = np.random.default_rng(1).normal(size=(30, 3)) * 3
    for T in poses[:40]:
        possible = near.possible_matches(torch.from_numpy(points), torch.from_numpy(transform(points, T)))
        assert possible.diagonal().all()


def test_near_drops_poses_and_matches_outside():
    guess = random_pose(3)
    near = Near(guess, 0.5, math.radians(20), size=1.0)
    far, rotated = guess.copy(), guess.copy()
    far[:3, 3] += [2.0, 0, 0]
    rotated[:3, :3] = rotated[:3, :3] @ Rotation.from_euler("y", 60, degrees=True).as_matrix()
    for refined in (False, True):
        assert not near.allows(np.stack([far, rotated]), refined=refined).any()
    point = torch.tensor([[1.0, 0, 0]])
    moved = torch.from_numpy(transform(point.numpy(), guess)).float()
    assert near.possible_matches(point, moved)[0, 0]
    assert not near.possible_matches(point, moved + torch.tensor([0, 0, 3.0]))[0, 0]


def test_limits_of_zero_let_refinement_work():
    near = Near(np.eye(4), 0.0, 0.0, size=1.0)
    assert near.allows(perturbed(np.eye(4), np.zeros((1, 3)), 3, 0.1, 0)[None], refined=True).all()
    assert not near.allows(perturbed(np.eye(4), np.zeros((1, 3)), 30, 1.5, 0)[None], refined=False).any()


def test_upright_measures_the_tilt_and_ignores_the_heading():
    upright = Upright(Z, Z, math.radians(5))
    heading = np.eye(4)
    heading[:3, :3] = Rotation.from_euler("z", 137, degrees=True).as_matrix()
    poses = np.stack([heading, tilted(heading, 3), tilted(heading, 8), tilted(heading, 180)])
    np.testing.assert_allclose(np.degrees(upright.tilts(poses)), [0, 3, 8, 180], atol=1e-6)
    assert upright.allows(poses, refined=True).tolist() == [True, True, False, False]
    assert upright.allows(poses, refined=False).tolist() == [True, True, True, False]


def test_upright_keeps_right_matches_and_drops_those_that_tilt():
    T = random_pose(5)
    frames = torch.from_numpy(Rotation.random(20, random_state=0).as_matrix())
    upright = Upright(Z, T[:3, :3] @ Z, math.radians(5))
    moved = torch.from_numpy(T[:3, :3]) @ frames
    possible = upright.possible_matches(frames, moved)
    assert possible.diagonal().all()
    assert not possible.all()
    turned = torch.from_numpy(tilted(np.eye(4), 90)[:3, :3]) @ frames
    assert not Upright(Z, Z, math.radians(5)).possible_matches(frames, turned).diagonal().any()


def test_levelling_removes_the_tilt_at_least_cost():
    rng = np.random.default_rng(0)
    half = rng.normal(size=(6, 6))
    information = Information(half @ half.T, rng.normal(size=3), 1.5, 1.0, 100)
    upright = Upright(Z, Z, math.radians(5), exact=True)
    T = tilted(np.eye(4), 0.5)
    level = upright.level(T, information)
    assert upright.tilts(level[None])[0] < 1e-9

    def cost(pose):
        step = pose @ np.linalg.inv(T)
        shift = step[:3, :3] @ information.centre + step[:3, 3] - information.centre
        turn = Rotation.from_matrix(step[:3, :3]).as_rotvec() * information.extent
        twist = np.concatenate([shift, turn])
        return twist @ information.matrix @ twist

    for _ in range(100):
        other = level.copy()
        other[:3, :3] = Rotation.from_rotvec(1e-3 * rng.normal() * Z).as_matrix() @ level[:3, :3]
        other[:3, 3] += 1e-3 * rng.normal(size=3)
        assert cost(level) <= cost(other) + 1e-7


def test_levelling_needs_no_information():
    nothing = Information(np.zeros((6, 6)), np.zeros(3), 0.0, 0.0, 0)
    upright = Upright(Z, Z, math.radians(5), exact=True)
    assert upright.tilts(upright.level(tilted(random_pose(0), 2), nothing)[None])[0] < 1e-9


def test_prior_combines_its_parts():
    prior = PosePrior(Near(np.eye(4), 1.0, math.pi, 1.0), Upright(Z, Z, math.radians(5)))
    far = np.eye(4)
    far[:3, 3] = 9.0
    poses = np.stack([np.eye(4), far, tilted(np.eye(4), 40)])
    assert prior.allows(poses, refined=True).tolist() == [True, False, False]
    assert PosePrior(overlap=0.5).allows(poses).all()
    assert (
        PosePrior(overlap=0.5).possible_matches((torch.zeros(2, 3),) * 2, (torch.zeros(2, 3, 3),) * 2) is None
    )


@pytest.fixture(scope="module")
def two_poses():
    """Matches of an upright pose, and more of one that tilts by 90°."""
    rng = np.random.default_rng(0)
    p = rng.uniform(-2, 2, (90, 3))
    upright = make_pose(Rotation.from_euler("z", 40, degrees=True).as_matrix(), [5, 1, 0])
    wrong = tilted(upright, 90)
    q = np.concatenate([transform(p[:30], upright), transform(p[30:], wrong)])
    return torch.from_numpy(p + 100), torch.from_numpy(q - 50), upright


@pytest.mark.parametrize("solver", ["consensus", "cuda", "ransac"])
def test_solvers_propose_only_allowed_poses(two_poses, solver):
    p, q, upright = two_poses
    weights = torch.ones(len(p), dtype=torch.float64)

    def solve(allow):
        if solver == "consensus":
            return consensus(p, q, threshold=0.05, hypotheses=1, allow=allow)
        if solver == "cuda":
            return cuda.consensus(p, q, weights, 0.05, 1, 5000, allow)
        return ransac_hypotheses(p, q, threshold=0.05, hypotheses=1, allow=allow)

    (free,) = solve(None)
    assert free.inliers.sum() >= 60
    (found,) = solve(PosePrior(upright=Upright(Z, Z, math.radians(5))).allows)
    np.testing.assert_allclose(found.T_target_source.numpy()[:3, :3], upright[:3, :3], atol=1e-6)
    assert found.inliers.sum() >= 30
    assert solve(lambda poses: np.zeros(len(poses), bool)) == []
    # A filter sees the poses of the given coordinates, not of centred ones.
    near = Near(found.T_target_source.numpy(), 0.1, math.radians(5), 0.0)
    (again,) = solve(PosePrior(near).allows)
    np.testing.assert_allclose(again.T_target_source, found.T_target_source, atol=1e-6)


@pytest.mark.parametrize(
    ("radius", "angle", "added"), [(0.0, 0.0, True), (0.4, 20.0, True), (0.5, 5.0, False), (0.1, 30.0, False)]
)
def test_only_narrow_limits_add_log_odds(radius, angle, added):
    near = Near(np.eye(4), radius, math.radians(angle), size=1.0)
    assert (PosePrior(near=near).log_odds > 0) == added


def test_directions_add_no_log_odds():
    assert PosePrior(upright=Upright(Z, Z, 0.1)).log_odds == 0
