"""Known poses, control points and up in a pose graph; some of them are wrong."""

import math

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from poses import random_motion
from reconstruction_sites import UTM, make_site
from wsdesc.alignment.information import Information
from wsdesc.core.geometry import inverse, transform
from wsdesc.reconstruction.control import ControlPoint
from wsdesc.reconstruction.covariance import diagonal_blocks_of_inverse
from wsdesc.reconstruction.georeference import georeference
from wsdesc.reconstruction.known import Known, PosePrior
from wsdesc.reconstruction.least_squares import Problem, _exp
from wsdesc.reconstruction.options import KnownOptions
from wsdesc.reconstruction.placement import PlacedEdge, Placement
from wsdesc.reconstruction.pose_graph import Edge, edge_factor, solve

RESOLUTION = 0.025  # so that a model metre is a metre


def make_control(rng, site, scans, per_scan=1, noise=0.003, sigma=0.005):
    """Simulate control points within 2 m of the centres of scans."""
    names, T_world_scan, T_scan_local, _ = site
    points = []
    for k in scans:
        for p in T_scan_local[k][:3, 3] + rng.uniform(-2, 2, (per_scan, 3)):
            world = transform(p[None], T_world_scan[k])[0] + rng.normal(0, noise, 3)
            points.append(ControlPoint(names[k], tuple(p), tuple(world), sigma, f"T{len(points)}"))
    return points


def errors(result, site, scans=None):
    """Return the distance of each scan's centre from its true position."""
    _, T_world_scan, T_scan_local, _ = site
    centres = [T[:3, 3] for T in T_scan_local]
    return np.array([
        np.linalg.norm(transform(c[None], result.T_world_scan[k])[0] - transform(c[None], T_world_scan[k])[0])
        for k, c in enumerate(centres) if scans is None or k in scans
    ])  # fmt: skip


def run(site, known):
    names, _, T_scan_local, placement = site
    return georeference(names, placement, T_scan_local, RESOLUTION, known)


def rejected(result):
    return {(item.kind, item.scan, item.name) for item in result.known if not item.accepted}


def test_control_points_give_poses_in_utm():
    rng = np.random.default_rng(0)
    site = make_site(rng)
    result = run(site, Known(control=make_control(rng, site, [0, 4, 7, 11])))
    assert result.in_world
    assert result.components == [list(range(12))]
    sigma = np.sqrt(np.einsum("nii->n", result.covariances[:, :3, :3]))
    assert (errors(result, site) < 4 * sigma).all()
    assert sigma.max() < 0.05
    assert all(item.accepted and item.distance < 0.02 for item in result.known)
    assert result.T_world_scan[3][0, 3] > 400_000


@pytest.mark.parametrize("seed", range(4))
def test_wrong_control_points_are_left_out_and_named(seed):
    rng = np.random.default_rng(seed)
    site = make_site(rng)
    control = make_control(rng, site, [0, 2, 4, 6, 8, 10])
    for k, shift in ((1, [0.0, 0.3, 0.0]), (4, [25.0, -3.0, 1.0])):
        control[k] = control[k]._replace(world=tuple(np.array(control[k].world) + shift))
    result = run(site, Known(control=control))
    assert rejected(result) == {("control", "scan_02.laz", "T1"), ("control", "scan_08.laz", "T4")}
    assert errors(result, site).max() < 0.05
    wrong = next(item for item in result.known if item.name == "T4")
    assert wrong.distance == pytest.approx(25.2, abs=0.3)
    assert "standard deviations" in wrong.rejection


@pytest.mark.parametrize("seed", range(4))
def test_a_prior_that_is_wrong_by_metres_is_left_out_and_named(seed):
    rng = np.random.default_rng(seed)
    site = make_site(rng)
    names, T_world_scan, T_scan_local, _ = site
    poses = {}
    for k, name in enumerate(names):
        T = T_world_scan[k].copy()
        T[:3, 3] += rng.normal(0, 0.05, 3)
        if k == 5:
            T[:3, 3] += [6.0, 0.0, 0.0]
        poses[name] = PosePrior(T, T_scan_local[k][:3, 3])
    options = KnownOptions(prior_sigma=0.1, prior_angle=2.0)
    result = run(site, Known(poses=poses, options=options))
    assert rejected(result) == {("pose", "scan_05.laz", "")}
    assert errors(result, site).max() < 0.12
    assert next(item for item in result.known if not item.accepted).distance == pytest.approx(6, abs=0.3)


def test_a_prior_with_a_wrong_rotation_is_left_out():
    rng = np.random.default_rng(3)
    site = make_site(rng)
    names, T_world_scan, T_scan_local, _ = site
    poses = {n: PosePrior(T, L[:3, 3]) for n, T, L in zip(names, T_world_scan, T_scan_local, strict=True)}
    turned = np.eye(4)
    turned[:3, :3] = Rotation.from_rotvec([0, 0, math.pi / 2]).as_matrix()
    centre = T_scan_local[2][:3, 3]
    turned[:3, 3] = centre - turned[:3, :3] @ centre
    poses[names[2]] = PosePrior(T_world_scan[2] @ turned, centre)
    result = run(site, Known(poses=poses))
    assert rejected(result) == {("pose", names[2], "")}
    assert errors(result, site).max() < 0.05


def test_two_priors_that_contradict_are_undecided():
    rng = np.random.default_rng(4)
    site = make_site(rng)
    names, T_world_scan, _, _ = site
    wrong = T_world_scan[7].copy()
    wrong[:3, 3] += 10.0
    poses = {names[1]: PosePrior(T_world_scan[1]), names[7]: PosePrior(wrong)}
    result = run(site, Known(poses=poses))
    assert len(rejected(result)) == 1
    assert "as many agree" in next(item.rejection for item in result.known if not item.accepted)


def test_known_items_join_components():
    rng = np.random.default_rng(5)
    site = make_site(rng, cut=6)
    assert len(site[3].graph.components) == 2
    result = run(site, Known(control=make_control(rng, site, [0, 2, 5, 6, 8, 11], per_scan=2)))
    assert result.components == [list(range(12))]
    assert errors(result, site).max() < 0.05


def test_a_component_without_control_keeps_its_own_frame():
    rng = np.random.default_rng(6)
    site = make_site(rng, cut=4)
    result = run(site, Known(control=make_control(rng, site, [0, 1, 2, 3])))
    assert result.components == [list(range(4)), list(range(4, 12))]
    assert result.in_world
    assert errors(result, site, range(4)).max() < 0.05
    np.testing.assert_allclose(result.T_world_scan[4], np.eye(4), atol=1e-9)


@pytest.mark.parametrize("scans", [[3], [3, 8]])
def test_too_few_control_points_are_reported(scans):
    rng = np.random.default_rng(7)
    site = make_site(rng)
    result = run(site, Known(control=make_control(rng, site, scans)))
    assert not result.in_world
    assert len(rejected(result)) == len(scans)
    assert all("three control points" in item.rejection for item in result.known)


def test_collinear_control_points_do_not_determine_a_frame():
    rng = np.random.default_rng(8)
    site = make_site(rng, noise=0)
    names, T_world_scan, _, _ = site
    control = []
    for k in (0, 5, 11):
        world = UTM + np.array([3.0 * k, 0.0, 0.0])
        point = transform(world[None], inverse(T_world_scan[k]))[0]
        control.append(ControlPoint(names[k], tuple(point), tuple(world)))
    assert not run(site, Known(control=control)).in_world
    up = {n: tuple(T[:3, :3].T @ [0, 0, 1]) for n, T in zip(names, T_world_scan, strict=True)}
    result = run(site, Known(control=control, up=up))
    assert result.in_world
    assert errors(result, site).max() < 0.02


def test_up_makes_the_result_level_and_a_wrong_one_is_left_out():
    rng = np.random.default_rng(9)
    site = make_site(rng)
    names, T_world_scan, _, _ = site
    up = {n: tuple(T[:3, :3].T @ [0, 0, 1]) for n, T in zip(names, T_world_scan, strict=True)}
    up[names[4]] = tuple(T_world_scan[4][:3, :3].T @ [0, 1, 0])
    result = run(site, Known(up=up))
    assert rejected(result) == {("up", names[4], "")}
    assert not result.in_world
    for k, T in enumerate(T_world_scan):
        leveled = result.T_world_scan[k][:3, :3] @ T[:3, :3].T @ [0, 0, 1]
        assert math.degrees(math.acos(min(1.0, leveled[2]))) < 0.5


def test_level_scans_keep_the_axes_of_the_first():
    rng = np.random.default_rng(10)
    site = make_site(rng, level=True, noise=0)
    names = site[0]
    result = run(site, Known(up=dict.fromkeys(names, (0.0, 0.0, 1.0))))
    np.testing.assert_allclose(result.T_world_scan[0], np.eye(4), atol=1e-6)


def test_reference_gives_its_frame():
    site = make_site(np.random.default_rng(11))
    result = run(site, Known(reference="scan_05.laz"))
    np.testing.assert_allclose(result.T_world_scan[5], np.eye(4), atol=1e-9)
    assert result.components[0][0] == 5
    assert sorted(result.components[0]) == list(range(12))


def test_a_wrong_edge_yields_to_many_known_poses():
    rng = np.random.default_rng(12)
    site = make_site(rng, cut=6)
    names, T_world_scan, T_scan_local, placement = site
    edges = [pair.edge for pair in placement.edges]
    bridge = edges[0]._replace(source=6, target=5, T_target_source=random_motion(rng, 1.0, 5.0))
    joined = [*edges, bridge]
    placement = Placement(solve(12, joined), [PlacedEdge(e, None, 0.0) for e in joined], {})
    site = (names, T_world_scan, T_scan_local, placement)
    poses = {n: PosePrior(T, L[:3, 3]) for n, T, L in zip(names, T_world_scan, T_scan_local, strict=True)}
    options = KnownOptions(prior_sigma=0.05, prior_angle=1.0)
    result = run(site, Known(poses=poses, options=options))
    assert rejected(result) == set()
    assert "what is known" in result.placement.edges[-1].rejection
    assert errors(result, site).max() < 0.05


def test_without_known_items_poses_stay_the_same():
    site = make_site(np.random.default_rng(13))
    names, _, T_scan_local, placement = site
    result = georeference(names, placement, T_scan_local, RESOLUTION, Known())
    expected = T_scan_local[0] @ placement.graph.T_world_scan[7] @ inverse(T_scan_local[7])
    np.testing.assert_allclose(result.T_world_scan[7], expected, atol=1e-9)
    assert not result.in_world
    assert result.known == []
    assert np.all(result.covariances[0] == 0)
    sigma = np.sqrt(np.einsum("nii->ni", result.covariances)[:, :3]).max(axis=1)
    assert sigma[11] > sigma[2] > 0  # far from the reference


def test_covariances_are_those_of_simulated_errors():
    """Draw errors of edges from their covariances: errors of poses must have the reported ones."""
    rng = np.random.default_rng(14)
    information = Information(np.diag([0.3, 0.2, 0.05, 0.3, 0.1, 0.3]), np.ones(3), 1.0, 0.5, 2000)
    T_true = np.stack([np.eye(4), *(random_motion(rng, 1.0, 2.0) for _ in range(5))])
    pairs = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (0, 5), (1, 4)]
    exact = [Edge(j, i, inverse(T_true[i]) @ T_true[j], 0.9, information, 0.01) for i, j in pairs]
    problem = Problem([edge_factor(e) for e in exact], np.array([0]), 6)
    covariance = diagonal_blocks_of_inverse(problem.normal_equations(T_true, problem.limit)[1])
    squared = []
    for _ in range(150):
        noisy = []
        for edge in exact:
            factor = edge_factor(edge)
            twist = np.linalg.solve(factor.root, rng.normal(size=6))
            twist[3:] /= factor.extent
            E = _exp(twist[None])[0]
            E[:3, 3] += factor.centre - E[:3, :3] @ factor.centre
            noisy.append(edge._replace(T_target_source=E @ edge.T_target_source))
        T = solve(6, noisy).T_world_scan
        for k in range(1, 6):
            error = inverse(T_true[k]) @ T[k]
            step = np.concatenate([error[:3, 3], Rotation.from_matrix(error[:3, :3]).as_rotvec()])
            squared.append(step @ np.linalg.solve(covariance[k - 1], step))
    assert np.mean(squared) == pytest.approx(6, rel=0.15)
