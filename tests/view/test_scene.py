"""Scenes: everything is where it belongs, in whatever coordinates it came."""

import numpy as np
import pytest
from looking import T_TARGET_SOURCE, apply, corner, motion

from wsdesc.core.errors import InputError
from wsdesc.view.geometry import between
from wsdesc.view.pick import cells, pick
from wsdesc.view.scene import RADIUS, Matches, Supports, confidence_colour, model_scene, pair_scene, rigid


def shown(scan, share):
    return between(scan.start, scan.end, share).apply(scan.points)


def test_scans_come_together_at_the_end_and_are_apart_at_the_start():
    target = corner()
    source = apply(np.linalg.inv(T_TARGET_SOURCE), target)
    scene = pair_scene(source, target, T_TARGET_SOURCE)
    a, b = scene.scans
    np.testing.assert_allclose(shown(a, 1.0), shown(b, 1.0), atol=1e-9)
    assert np.linalg.norm(shown(a, 0.0) - shown(b, 0.0), axis=1).mean() > 0.5
    # What it looks like at the start is how the files lie to each other.
    scale = np.linalg.norm(np.ptp(a.points, axis=0)) / np.linalg.norm(np.ptp(source, axis=0))
    apart = np.linalg.norm(shown(a, 0.0) - shown(b, 0.0), axis=1)
    np.testing.assert_allclose(apart, scale * np.linalg.norm(source - target, axis=1), rtol=1e-6)
    assert scene.moves


@pytest.mark.parametrize("unit", [1e-3, 1.0, 1e4])
@pytest.mark.parametrize("offset", [0.0, 4e6])
def test_any_unit_and_origin_gives_a_scene_of_the_same_size(unit, offset):
    target = unit * corner() + offset
    T = motion((0.0, 0.0, 0.4), (0, 0, 0))
    T[:3, 3] = target.mean(axis=0) - T[:3, :3] @ target.mean(axis=0) + unit
    source = apply(np.linalg.inv(T), target)
    scene = pair_scene(source, target, T)
    np.testing.assert_allclose(shown(scene.scans[0], 1.0), shown(scene.scans[1], 1.0), atol=1e-3)
    assert 0.8 * RADIUS < np.linalg.norm(shown(scene.scans[1], 1.0), axis=1).max() < 1.3 * RADIUS


def test_scans_that_come_from_far_away_begin_within_sight():
    scene = pair_scene(corner() + 1e5, corner(), motion((0, 0, 0), (-1e5, -1e5, -1e5)))
    away = np.linalg.norm(scene.scans[0].start.position - scene.scans[0].end.position)
    assert away == pytest.approx(3 * RADIUS)


def test_without_a_pose_nothing_moves():
    assert not pair_scene(corner(), corner(seed=1)).moves


def test_big_clouds_are_thinned_and_that_is_said():
    scene = pair_scene(corner(5000), corner(300), most=1000)
    assert len(scene.scans[0].points) <= 500
    assert len(scene.scans[1].points) == 300
    assert scene.counted == f"{len(scene.scans[0].points) + 300:,} of 5,300 points shown"


def test_matches_are_thinned_by_kind_and_lie_on_their_scans():
    places = corner(1000, seed=4)
    agree = np.arange(1000) < 400
    source = apply(np.linalg.inv(T_TARGET_SOURCE), corner())
    matches = Matches(apply(np.linalg.inv(T_TARGET_SOURCE), places), places, agree)
    scene = pair_scene(source, corner(), T_TARGET_SOURCE, matches=matches)
    lines = scene.matches
    assert scene.found == (400, 600)
    assert 0 < lines.agree.sum() < 400
    assert 0 < (~lines.agree).sum() < 600
    ends = [scan.end.apply(end) for scan, end in zip(scene.scans, lines, strict=False)]
    np.testing.assert_allclose(ends[0], ends[1], atol=1e-9)  # all of them are right ones


def test_frames_that_know_nothing_of_each_other_stand_side_by_side():
    clouds = {name: corner(500, seed=k) for k, name in enumerate("abc")}
    poses = {name: np.eye(4) for name in clouds}
    scene = model_scene(
        clouds, poses, frames=[["a", "b"], ["c"]], edges=[("a", "b", 0.9, True), ("a", "x", 0, False)]
    )
    a, b, c = (scan.end.position for scan in scene.scans)
    assert np.linalg.norm(a - b) < 0.3
    assert np.linalg.norm(a - c) > 1.0
    assert [(e.source, e.target) for e in scene.edges] == [(0, 1)]
    assert len({scan.colour for scan in scene.scans}) == 3


def test_confidence_goes_from_red_to_green():
    red, green = confidence_colour(0.0), confidence_colour(1.0)
    assert red[0] > 3 * red[1]
    assert green[1] > 3 * green[0]
    assert confidence_colour(-1.0) == red
    assert confidence_colour(2.0) == green


@pytest.mark.parametrize(
    "T",
    [np.eye(3), 2 * np.eye(4), np.diag([1.0, 1, -1, 1]), np.full((4, 4), np.nan), np.diag([1.0, 1, 1, 2])],
)
def test_what_is_no_rigid_motion_is_refused(T):
    with pytest.raises(InputError, match="pose"):
        rigid(T)


def test_nothing_placed_is_nothing_to_see():
    with pytest.raises(InputError, match="nothing to see"):
        model_scene({}, {})


def test_a_ray_finds_the_foremost_scan_and_its_nearest_keypoint():
    """Two walls one behind the other: which one is met depends on the side, and on what is shown."""
    wall = np.random.default_rng(0).uniform(-1, 1, (4000, 3)) * [1, 1, 0]
    keys = np.array([[-0.5, -0.5, 0.0], [0.5, 0.5, 0.0]])
    grids = np.zeros((2, 4, 4, 4), np.uint8)
    grids[1, 3, 0, 2] = 255
    behind = np.array([0, 0, 1.0])
    supports = [
        Supports(keys + k * behind, np.stack([np.eye(3)] * 2), np.full(2, 0.4), grids) for k in (0, 1)
    ]
    scene = pair_scene(wall, wall + behind, supports=tuple(supports))
    aim = scene.scans[0].end.apply(scene.scans[0].supports.keypoints[1:])[0]
    into = scene.scans[1].end.position - scene.scans[0].end.position
    into /= np.linalg.norm(into)
    assert pick(scene, 1.0, [True, True], aim - 9 * into, into) == (0, 1)
    assert pick(scene, 1.0, [False, True], aim - 9 * into, into) == (1, 1)
    assert pick(scene, 1.0, [True, True], aim + 9 * into, -into) == (1, 1)
    assert pick(scene, 1.0, [True, True], aim - 9 * into, -into) is None
    found = cells(scene, pick(scene, 1.0, [True, True], aim - 9 * into, into))
    scale = found.cube[1] / 0.4
    assert found.side == pytest.approx(0.1 * scale)
    np.testing.assert_allclose((found.centres[0] - found.cube[0]) / scale, [0.15, -0.15, 0.05], atol=1e-9)
