"""`wsdesc.show`: what the command `view` does, in Python."""

from dataclasses import replace

import numpy as np
import pytest

import wsdesc
from poses import pose_of
from view_helpers import T_TARGET_SOURCE, corner
from wsdesc.core.errors import FileFormatError, InputError
from wsdesc.core.geometry import inverse, transform
from wsdesc.finding.result import Finding, Instance
from wsdesc.reconstruction.result import Reconstruction
from wsdesc.registration.result import AlternativePose, Registration
from wsdesc.view.open_scene import open_scene

SOURCE, TARGET = transform(corner(), inverse(T_TARGET_SOURCE)), corner(seed=1)


@pytest.fixture
def result():
    return Registration(T_TARGET_SOURCE, True, 0.97, 0.5, 0.01, 30, 300, 0.1)


def test_scans_in_memory_are_shown_with_a_pose(tmp_path):
    scene = wsdesc.show(SOURCE, TARGET, pose=T_TARGET_SOURCE, unit="m", save=tmp_path / "page.html")
    assert (tmp_path / "page.html").stat().st_size > 50_000
    assert [scan.name for scan in scene.scans] == ["scan 1", "scan 2"]
    assert scene.unit == "m"
    assert scene.moves
    assert scene.scans[0].distances[0].quantile(0.8) < 1e-6


def test_pose_can_be_a_file(tmp_path):
    np.savetxt(tmp_path / "T.txt", T_TARGET_SOURCE)
    for scene in (
        open_scene(SOURCE, TARGET, pose=tmp_path / "T.txt"),
        open_scene(SOURCE, TARGET, tmp_path / "T.txt"),
    ):
        assert scene.moves


def test_results_are_shown(result, tmp_path):
    for name, points in (("a.ply", SOURCE), ("b.ply", TARGET)):
        wsdesc.write_points(tmp_path / name, points)
    named = result.of_files(tmp_path / "a.ply", tmp_path / "b.ply")
    scene = open_scene(replace(named, alternatives=[AlternativePose(np.eye(4), 0.02, 0.1, 0.03)]))
    assert scene.title == "a.ply → b.ply"
    assert [choice.probability for choice in scene.scans[0].choices] == [0.97, 0.02]
    paths = {"a": tmp_path / "a.ply", "b": tmp_path / "b.ply"}
    poses = {"a": T_TARGET_SOURCE, "b": np.eye(4)}
    scene = open_scene(Reconstruction(poses, [["b", "a"]], {}, [], 0.1, paths))
    assert [scan.name for scan in scene.scans] == ["b", "a"]


def test_instances_of_an_object_are_shown(tmp_path):
    poses = [pose_of((0, 0, 0.5), (1, 1, 0)), pose_of((0, 0, 2.0), (3, 2, 0))]
    finding = Finding(
        [Instance(T, 0.95, 0.4, 0.01) for T in poses], [], 1.0, 0.05, warnings=["Check the scale."]
    )
    finding.save(tmp_path / "found.json")
    thing = 0.2 * corner(500)
    place = np.concatenate([corner(4000, seed=1), *(transform(thing, T) for T in poses)])
    for scene in (
        open_scene(thing, place, pose=finding),
        open_scene(thing, place, tmp_path / "found.json"),
    ):
        assert (scene.success, scene.verdict) == (True, "2 instances found")
        assert [scan.name for scan in scene.scans] == ["scan 2", "scan 1 1", "scan 1 2"]
        assert scene.warnings == ["Check the scale."]
        assert all(scan.distances[0].median < 1e-3 for scan in scene.scans[1:])
    empty = open_scene(thing, place, pose=Finding([], [], 1.0, 0.05))
    assert (empty.success, empty.verdict) == (False, "no instance found")


def test_poses_file_of_a_reconstruction_stands_for_its_folder(tmp_path):
    wsdesc.write_points(tmp_path / "a.ply", TARGET)
    Reconstruction({"a": np.eye(4)}, [["a"]], {}, [], 0.1, {"a": tmp_path / "a.ply"}).save(tmp_path / "model")
    assert open_scene(tmp_path / "model" / "poses.json").title == "1 scan"


def test_matches_of_few_points_are_not_shown():
    scene = open_scene(SOURCE[:20], TARGET[:20], pose=T_TARGET_SOURCE, matches=True)
    assert scene.facts[0].startswith("matches are not shown: ")
    assert scene.matches is None


@pytest.mark.slow
def test_matches_are_computed_on_request():
    scene = open_scene(SOURCE, TARGET, pose=T_TARGET_SOURCE, matches=True)
    assert scene.matches is not None
    assert sum(scene.match_counts) > 10


@pytest.mark.parametrize(
    ("items", "options", "message"),
    [
        ((), {}, "nothing to show: give at least one scan"),
        ((SOURCE,), {"pose": np.eye(4)}, "a pose needs two scans, source and target, found 1"),
        ((SOURCE, TARGET), {"pose": np.eye(3)}, "pose must be a 4 × 4 matrix"),
        ((SOURCE, TARGET), {"matches": True}, "matches need a pose"),
        ((SOURCE,), {"max_points": 0}, "max_points must be a whole number of at least 1, not 0"),
        ((SOURCE,), {"max_points": True}, "max_points must be a whole number of at least 1, not True"),
        ((SOURCE,), {"max_points": None}, "max_points must be a whole number of at least 1, not None"),
        ((SOURCE,), {"up": "north"}, "up must be one of"),
        ((np.full((9, 3), np.nan),), {}, "none of the 9 points is finite"),
        ((None,), {}, "NoneType"),
    ],
)
def test_bad_input_is_explained(items, options, message):
    with pytest.raises(InputError, match=message):
        open_scene(*items, **options)


def test_a_pair_is_drawn_with_one_point_requested():
    assert all(len(scan.points) for scan in open_scene(SOURCE, TARGET, max_points=1).scans)


def test_text_of_an_invalid_pose_is_not_drawn_as_a_scan(tmp_path):
    np.savetxt(tmp_path / "T.txt", np.full((4, 4), np.nan))
    with pytest.raises(FileFormatError, match=r"T\.txt: contains no pose: .* NaN"):
        open_scene(SOURCE, TARGET, tmp_path / "T.txt")


def test_a_map_is_no_folder_of_scans(tmp_path):
    (tmp_path / "map.json").write_text("{}")
    np.save(tmp_path / "points.npy", SOURCE)
    with pytest.raises(InputError, match="a map cannot be shown: give the scans"):
        open_scene(tmp_path)


def test_a_result_is_not_shown_with_scans(result):
    with pytest.raises(InputError, match="a result cannot be shown with other items"):
        open_scene(result, SOURCE)
    with pytest.raises(InputError, match="neither a pose nor the scans"):
        open_scene(result)
    with pytest.raises(FileFormatError, match=r"gone\.ply"):
        open_scene(result.of_files("gone.ply", "b.ply"))


def test_a_page_is_an_html_file(tmp_path):
    with pytest.raises(FileFormatError, match=r"page\.png: the name must end in \.html"):
        wsdesc.show(SOURCE, save=tmp_path / "page.png")
    assert list(tmp_path.iterdir()) == []
