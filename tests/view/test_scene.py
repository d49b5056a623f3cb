"""Scenes: positions of scans, matches and edges, for any unit and origin."""

from dataclasses import replace

import numpy as np
import pytest

from poses import pose_of
from view_helpers import T_TARGET_SOURCE, corner
from wsdesc.core.errors import InputError
from wsdesc.core.geometry import inverse, transform
from wsdesc.view.build import NamedPose, multi_scan_scene, pair_scene
from wsdesc.view.frame import RADIUS
from wsdesc.view.geometry import interpolate
from wsdesc.view.scene import MatchLines


def drawn_points(scan, share):
    return interpolate(scan.start, scan.end, share).apply(scan.points)


def _with_choice(scene, scan, choice):
    """Return the scene with another one of the poses of a scan, as the page shows it."""
    scans = list(scene.scans)
    scans[scan] = replace(scans[scan], end=scans[scan].choices[choice].pose)
    return replace(scene, scans=scans)


def test_scans_coincide_at_the_end_and_not_at_the_start():
    target = corner()
    source = transform(target, inverse(T_TARGET_SOURCE))
    scene = pair_scene(source, target, T_TARGET_SOURCE)
    a, b = scene.scans
    np.testing.assert_allclose(drawn_points(a, 1.0), drawn_points(b, 1.0), atol=1e-9)
    assert np.linalg.norm(drawn_points(a, 0.0) - drawn_points(b, 0.0), axis=1).mean() > 0.5
    # At the start, the distances are those of the files.
    scale = np.linalg.norm(np.ptp(a.points, axis=0)) / np.linalg.norm(np.ptp(source, axis=0))
    distance = np.linalg.norm(drawn_points(a, 0.0) - drawn_points(b, 0.0), axis=1)
    np.testing.assert_allclose(distance, scale * np.linalg.norm(source - target, axis=1), rtol=1e-6)
    assert scene.moves


@pytest.mark.parametrize("unit", [1e-3, 1.0, 1e4])
@pytest.mark.parametrize("offset", [0.0, 4e6])
def test_scene_has_the_same_size_for_any_unit_and_origin(unit, offset):
    target = unit * corner() + offset
    T = pose_of((0.0, 0.0, 0.4), (0, 0, 0))
    T[:3, 3] = target.mean(axis=0) - T[:3, :3] @ target.mean(axis=0) + unit
    source = transform(target, inverse(T))
    scene = pair_scene(source, target, T)
    np.testing.assert_allclose(
        drawn_points(scene.scans[0], 1.0), drawn_points(scene.scans[1], 1.0), atol=1e-3
    )
    assert 0.8 * RADIUS < np.linalg.norm(drawn_points(scene.scans[1], 1.0), axis=1).max() < 1.3 * RADIUS


def test_distant_scans_start_within_sight():
    scene = pair_scene(corner() + 1e5, corner(), pose_of((0, 0, 0), (-1e5, -1e5, -1e5)))
    distance = np.linalg.norm(scene.scans[0].start.position - scene.scans[0].end.position)
    assert distance == pytest.approx(1.5 * RADIUS)


def test_another_pose_of_the_source_can_be_chosen():
    source, target = corner(seed=2), corner(seed=1)
    poses = [pose_of((0, 0, 0), (0, 0, 0)), pose_of((0, 0, 1), (1, 0, 0))]
    named = [NamedPose("first", poses[0], 0.7), NamedPose("second", poses[1], 0.2)]
    scene = pair_scene(source, target, poses[0], choices=named)
    assert [choice.probability for choice in scene.scans[0].choices] == [0.7, 0.2]
    assert [choice.name for choice in scene.scans[0].choices] == ["first", "second"]
    assert scene.scans[1].choices == ()
    other, alone = _with_choice(scene, 0, 1).scans, pair_scene(transform(source, poses[1]), target).scans
    assert other[1] is scene.scans[1]
    # Distances between both scans do not depend on the frame of the scene, up to its scale.
    distance = [
        np.linalg.norm(scans[0].end.apply(scans[0].points) - scans[1].end.apply(scans[1].points), axis=1)
        for scans in (other, alone)
    ]
    np.testing.assert_allclose(distance[0] / distance[0].mean(), distance[1] / distance[1].mean(), rtol=1e-6)
    assert np.allclose(_with_choice(scene, 0, 0).scans[0].end.position, scene.scans[0].end.position)


def test_nothing_moves_without_a_pose():
    assert not pair_scene(corner(), corner(seed=1)).moves


def test_large_clouds_are_thinned_and_counted():
    scene = pair_scene(corner(5000), corner(300), max_points=1000)
    assert len(scene.scans[0].points) <= 500
    assert len(scene.scans[1].points) == 300
    assert scene.point_count == f"{len(scene.scans[0].points) + 300:,} of 5,300 points shown"


def test_matches_are_sampled_by_kind():
    keypoints = corner(1000, seed=4)
    inlier = np.arange(1000) < 400
    source = transform(corner(), inverse(T_TARGET_SOURCE))
    matches = MatchLines(transform(keypoints, inverse(T_TARGET_SOURCE)), keypoints, inlier)
    scene = pair_scene(source, corner(), T_TARGET_SOURCE, matches=matches)
    lines = scene.matches
    assert scene.match_counts == (400, 600)
    assert 0 < lines.inlier.sum() < 400
    assert 0 < (~lines.inlier).sum() < 600
    ends = [scan.end.apply(end) for scan, end in zip(scene.scans, lines, strict=False)]
    np.testing.assert_allclose(ends[0], ends[1], atol=1e-9)  # all matches are right


def test_unconnected_frames_are_drawn_side_by_side():
    clouds = {name: corner(500, seed=k) for k, name in enumerate("abc")}
    poses = {name: np.eye(4) for name in clouds}
    scene = multi_scan_scene(
        clouds, poses, components=[["a", "b"], ["c"]], edges=[("a", "b", 0.9, True), ("a", "x", 0, False)]
    )
    a, b, c = (scan.end.position for scan in scene.scans)
    assert np.linalg.norm(a - b) < 0.3
    assert np.linalg.norm(a - c) > 1.0
    assert [(e.source, e.target) for e in scene.edges] == [(0, 1)]
    assert len({scan.colour for scan in scene.scans}) == 3


@pytest.mark.parametrize(
    "T",
    [np.eye(3), 2 * np.eye(4), np.diag([1.0, 1, -1, 1]), np.full((4, 4), np.nan), np.diag([1.0, 1, 1, 2])],
)
def test_pose_must_be_rigid(T):
    with pytest.raises(InputError, match="T_target_source"):
        pair_scene(corner(10), corner(10), T)


def test_scene_needs_a_placed_scan():
    with pytest.raises(InputError, match="no scan is placed"):
        multi_scan_scene({}, {})


def test_scans_without_a_pose_stand_side_by_side():
    scene = pair_scene(corner() + np.array([0, 1e6, 50]), corner(), side_by_side=True)
    low = [drawn_points(scan, 1.0)[:, 0].min() for scan in scene.scans]
    high = [drawn_points(scan, 1.0)[:, 0].max() for scan in scene.scans]
    assert low[0] > high[1] or low[1] > high[0]
    assert not scene.moves
    assert scene.scans[0].distances == ()


@pytest.mark.parametrize("count", [1, 2, 3])
def test_few_points_are_drawn(count):
    points = corner(count)
    assert [len(scan.points) for scan in pair_scene(points, points + 1.0).scans] == [count, count]
    assert len(multi_scan_scene({"a": points}, {"a": np.eye(4)}).scans) == 1
    assert np.isfinite(pair_scene(points, points).spacing)


def test_text_of_a_scene_is_one_line():
    scene = pair_scene(corner(), corner(seed=1), names=("a.ply", "b.ply"), title="two")
    assert repr(scene).startswith("SceneView('two': a.ply, b.ply; all ")
    assert len(repr(scene.scans)) < 100


def test_different_units_and_dropped_points_are_named():
    broken = corner()
    broken[:7] = np.nan
    scene = pair_scene(broken, 1000 * corner(seed=1), names=("a.ply", "b.ply"))
    assert scene.warnings[0] == "a.ply: 7 points that are not finite were ignored."
    assert "different units: the extent of a.ply is" in scene.warnings[1]
    assert pair_scene(corner(), corner(seed=1)).warnings == []


def test_scaled_scans_coincide_at_the_end_and_have_their_own_size_at_the_start():
    target, T = corner(), T_TARGET_SOURCE.copy()
    T[:3, :3] *= 0.3048
    source = transform(target, np.linalg.inv(T))
    scene = pair_scene(source, target, T)
    a, b = scene.scans
    np.testing.assert_allclose(drawn_points(a, 1.0), drawn_points(b, 1.0), atol=1e-9)
    sizes = [np.linalg.norm(drawn_points(a, share).std(axis=0)) for share in (0.0, 1.0)]
    assert sizes[0] == pytest.approx(sizes[1] / 0.3048)
    assert scene.warnings == []
