"""Scenes of results, and their display in notebooks."""

import html
import re
from dataclasses import replace

import numpy as np
import pytest

from poses import pose_of
from view_helpers import corner, count
from wsdesc import write_points
from wsdesc.cloud.clean import clean
from wsdesc.core.geometry import transform
from wsdesc.datasets.synthetic import room_pair
from wsdesc.descriptor.describe import load_model
from wsdesc.descriptor.options import DEFAULT_MODEL
from wsdesc.descriptor.preparation import prepare_scan
from wsdesc.reconstruction.edge_result import EdgeResult
from wsdesc.reconstruction.result import Reconstruction
from wsdesc.registration.pipeline import register
from wsdesc.registration.result import AlternativePose, Registration
from wsdesc.view import keypoints, results
from wsdesc.view.demo import displace
from wsdesc.view.geometry import interpolate


@pytest.fixture(scope="module")
def room():
    return displace(room_pair(11), 11)


@pytest.fixture(scope="module")
def result(room):
    return register(room.source, room.target, keypoints=(700,))


@pytest.fixture(scope="module")
def reconstruction(tmp_path_factory):
    """Three scans of the same name in different folders; two of them are placed."""
    folder = tmp_path_factory.mktemp("scans")
    paths = {}
    for k in range(3):
        (folder / str(k)).mkdir()
        path = folder / str(k) / "scan.ply"
        write_points(path, corner(1000, seed=k))
        paths[str(path)] = path
    a, b, c = paths
    pairs = [
        pair_result(source=a, target=b, confidence=0.98, rejection=None),
        pair_result(source=a, target=c, confidence=0.2, rejection="confidence 0.20"),
    ]
    poses = {a: np.eye(4), b: pose_of((0, 0, 0.1), (0.5, 0, 0))}
    return Reconstruction(poses, [[a, b]], {c: "alone"}, pairs, 0.03, paths)


def pair_result(**values):
    """Return a pair with the given values; other fields are None."""
    defaults = {"T_target_source": np.eye(4), "overlap": 0.5, "rank": 0, "keypoints": 2000, "deviation": None}
    return EdgeResult(**(defaults | values))


def test_scene_of_a_registration(result, room):
    scene = results.registration_scene(result, (room.source, room.target), ("a.ply", "b.ply"))
    assert scene.title == "a.ply → b.ply"
    assert scene.scans[0].total == len(room.source)
    assert scene.match_counts == (result.inliers, result.matches - result.inliers)  # as in the terminal
    assert f"{result.inliers} inliers of {result.matches} matches" in scene.facts
    lines = scene.matches
    ends = [scan.end.apply(end) for scan, end in zip(scene.scans, lines, strict=False)]
    distance = np.linalg.norm(ends[0] - ends[1], axis=1)
    assert np.median(distance[lines.inlier]) < 0.5 * np.median(distance[~lines.inlier])
    assert scene.success
    assert "confidence" in scene.verdict
    (distances,) = scene.scans[0].distances
    assert distances.limit == pytest.approx(2 * result.resolution)
    assert distances.share == pytest.approx(result.overlap, abs=0.15)
    assert 0 < distances.median < distances.quantile(0.95) < result.resolution


def test_support_cells_are_occupied_at_points(room):
    model, name = load_model(DEFAULT_MODEL, "cpu")
    cleaned = clean(2.0 * room.source + 1000.0)  # another unit, another origin
    description = prepare_scan(cleaned, 0.06, name, 0, 40)
    supports = keypoints.supports(description, 40)
    points = transform(cleaned.points.astype(np.float64), cleaned.T_scan_local)
    h = supports.grids.shape[-1]
    side = 2.4 * model.support.size.item()  # 0.06 is 2.4 times the model's resolution
    np.testing.assert_allclose(supports.sides, side, rtol=1e-5)
    occupied = []
    for keypoint, axes, grid in zip(supports.keypoints, supports.axes, supports.grids, strict=True):
        cell = np.floor(((points - keypoint) @ axes / side + 0.5) * h).astype(int)
        inside = ((cell >= 0) & (cell < h)).all(axis=1)
        occupied.append(grid[tuple(cell[inside].T)] >= 64)
    assert np.concatenate(occupied).mean() > 0.95
    assert (supports.grids >= 64).mean() < 0.4


def test_unknown_model_has_no_supports(room):
    assert keypoints.supports(prepare_scan(clean(room.source), 0.05, "unknown", 0, 40), 40) is None


def test_scene_of_a_reconstruction_has_short_names(reconstruction):
    scene = results.reconstruction_scene(reconstruction)
    assert [scan.name for scan in scene.scans] == ["0/scan.ply", "1/scan.ply"]
    assert [(e.source, e.target, e.accepted) for e in scene.edges] == [(0, 1, True)]
    assert scene.warnings == ["scan.ply was not placed: alone"]
    assert scene.success is False
    assert all(scan.distances[0].share > 0.05 for scan in scene.scans)
    moved = (
        interpolate(scene.scans[1].start, scene.scans[1].end, 1.0).position - scene.scans[1].start.position
    )
    assert np.linalg.norm(moved) > 0.05


def test_alternatives_can_be_chosen_with_their_distances(result):
    other = AlternativePose(pose_of((0, 0, 1), (1, 0, 0)), 0.04, 0.3, 0.02)
    scan = results.registration_scene(replace(result, alternatives=[other])).scans[0]
    assert [choice.probability for choice in scan.choices] == [result.confidence, 0.04]
    assert scan.choices[1].name == "overlap 30%, rmse 0.02"
    assert scan.distances[0].share > scan.distances[1].share


def test_scene_of_a_failure_says_what_to_try(room):
    failed = Registration(np.eye(4), False, 0.0, 0.0, float("inf"), 0, 300, 0.03, ["Do the scans overlap?"])
    scene = results.registration_scene(failed, (room.source, room.target))
    assert (scene.success, scene.verdict) == (False, "no alignment found")
    assert scene.warnings == ["Do the scans overlap?"]
    assert not scene.moves
    assert scene.scans[0].choices == ()


def test_short_names():
    assert results.short_names(["/x/a.ply", "/y/b.ply"]) == ["a.ply", "b.ply"]
    assert results.short_names(["/x/a.ply", "/y/a.ply"]) == ["x/a.ply", "y/a.ply"]
    assert results.short_names(["a.ply", "a.ply"]) == ["a.ply", "a.ply"]
    assert results.short_names(["/x/a.ply", "/x/a.ply", "/x/b.ply"]) == ["a.ply", "a.ply", "b.ply"]
    assert results.short_names([]) == []


@pytest.mark.slow
def test_notebook_page_of_a_registration(result, browser, tmp_path):
    page = result._repr_html_()
    assert 'sandbox="allow-scripts"' in page
    assert len(page) < 1_200_000  # the notebook stores it
    browser.errors()
    (tmp_path / "cell.html").write_text(f"<!doctype html><body>{page}</body>", encoding="utf-8")
    browser.driver.get((tmp_path / "cell.html").as_uri())
    browser.wait(lambda: min(count(browser.picture(), hue) for hue in ("orange", "blue")) > 1000)
    assert browser.errors() == []


def test_notebook_page_of_a_reconstruction(reconstruction):
    document = html.unescape(re.search('srcdoc="(.*?)"', reconstruction._repr_html_(), re.S)[1])
    assert "1/scan.ply" in document
    assert str(next(iter(reconstruction.paths.values())).parent.parent) not in document
    assert reconstruction._repr_png_().startswith(b"\x89PNG")


def test_notebook_picture_of_a_registration(result):
    assert result._repr_png_().startswith(b"\x89PNG")


def test_notebook_display_is_absent_without_scans(reconstruction, tmp_path):
    without_scans = Registration(np.eye(4), False, 0.0, 0.0, float("inf"), 0, 0, 0.03)
    without_files = Reconstruction({"a": np.eye(4)}, [["a"]], {}, [], 0.03, {"a": tmp_path / "gone.ply"})
    for value in (without_scans, without_files):
        assert value._repr_html_() is None
        assert value._repr_png_() is None


def test_registration_holds_little_memory(result, room):
    assert "described" not in repr(result)
    parts = [
        getattr(d, name) for d in result.described for name in ("points", "order", "descriptors", "frames")
    ]
    assert sum(part.nbytes for part in parts) < 2_000_000
    assert sum(len(d.points) for d in result.described) < len(room.source) + len(room.target)
