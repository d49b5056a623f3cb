"""Verification from the object's side: contacts, free space, planes that are left out."""

import numpy as np

from object_scenes import VIEWPOINT, bracket, pose, sampled, scene
from wsdesc.cloud.clean import clean, clean_cloud
from wsdesc.cloud.cloud import Cloud
from wsdesc.core.geometry import inverse
from wsdesc.finding.improve import improve
from wsdesc.finding.prepare import prepare_object, prepare_scene
from wsdesc.finding.surfels import ball_normals
from wsdesc.finding.verify import QuickScore, measure, quick_features, surroundings
from wsdesc.finding.view import View

RESOLUTION = 0.0028
UNIT = RESOLUTION / 0.025


def prepared(truth):
    thing = clean(sampled(bracket(), 0.0025))
    surroundings = clean_cloud(Cloud(scene(truth)), VIEWPOINT)
    p = prepare_object(thing, RESOLUTION)
    q = prepare_scene(surroundings, RESOLUTION, p.diameter)
    T = inverse(surroundings.T_scan_local) @ truth @ thing.T_scan_local
    T[:3, 3] /= UNIT
    return p, q, View(q.points, surroundings.local_viewpoint / UNIT), T


def test_right_pose_has_contacts_and_violates_no_free_space():
    p, q, view, T = prepared(pose(0.1, -0.15, yaw=0.4))
    above = T.copy()
    above[:3, 3] += 0.5 * (view.viewpoint - T[:3, 3]) / np.linalg.norm(view.viewpoint - T[:3, 3])
    poses = np.stack([T, above])
    contact, violating = quick_features(p, q.surfels, view, poses, p.coarse)
    beside = surroundings(p, q.surfels.points, q.surfels.normals, poses)
    ranks = QuickScore(contact, violating, *beside, np.ones(2)).rank(improved=True)
    assert contact[0] > 0.3
    assert violating[0] < 0.02
    assert violating[1] > 0.3
    assert beside.explained[0] > 0.7
    assert beside.continued[0] < 0.1
    assert ranks[0] > ranks[1] + 0.4


def test_a_larger_surface_continues_that_of_a_plate():
    plate = np.random.default_rng(0).uniform((-0.07, -0.05, 0), (0.07, 0.05, 0), (4000, 3))
    thing = clean(plate)
    p = prepare_object(thing, RESOLUTION)
    T = np.array(thing.T_scan_local)
    T[:3, 3] /= UNIT
    steps = np.arange(-2, 2, 0.03)
    plane = np.stack([*np.meshgrid(steps, steps), np.zeros((len(steps), len(steps)))], -1).reshape(-1, 3)
    same_size = plane[(np.abs(plane[:, :2]) < np.array([0.07, 0.05]) / UNIT).all(axis=1)]
    larger, alone = (
        surroundings(p, points, np.tile([0.0, 0.0, 1.0], (len(points), 1)), T[None])
        for points in (plane, same_size)
    )
    assert larger.explained[0] < 0.8 < alone.explained[0]
    assert larger.continued[0] > 0.2
    assert alone.continued[0] < 0.05


def test_figures_of_the_right_pose():
    p, q, view, T = prepared(pose(0.1, -0.15, yaw=0.4))
    part = q.around(T[None, :3, :3] @ p.centre + T[:3, 3], 1.2 * p.radius)
    measured = measure(p, q, part, view, T)
    assert 0.3 < measured.visible < 0.8
    assert measured.explained > 0.6
    assert measured.violation < 0.02
    assert measured.shown > 0.6
    assert measured.side > measured.visible
    assert measure(p, q, part, None, T).violation is None


def test_poses_improve_alone_and_together():
    p, q, _, T = prepared(pose(0.1, -0.15, yaw=0.4))
    off = T.copy()
    off[:3, 3] += (0.04, -0.03, 0.04)  # of an object of 1.25
    far = T.copy()
    far[:3, 3] += 100.0  # without contacts a pose stays as it is
    better, stays = improve(p, q.surfels, np.stack([off, far]), p.coarse)
    np.testing.assert_allclose(stays, far)
    np.testing.assert_allclose(better, improve(p, q.surfels, off[None], p.coarse)[0], atol=1e-9)
    assert np.linalg.norm(better[:3, 3] - T[:3, 3]) < 0.3 * np.linalg.norm(off[:3, 3] - T[:3, 3])


def test_planes_larger_than_the_object_are_left_out():
    p, q, _, T = prepared(pose(0.2, -0.15, yaw=0.4))
    normals = ball_normals(q.points, 0.1, 0.7)
    flat = q.planes.contain(q.points, normals)
    away = np.linalg.norm(q.points - T[:3, 3], axis=1) > 2 * p.diameter
    assert flat[away].mean() > 0.5
    near = np.linalg.norm(q.points - T[:3, 3], axis=1) < 0.4 * p.diameter
    assert flat[near].mean() < 0.3
