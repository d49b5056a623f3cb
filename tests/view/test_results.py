"""Results become scenes, and show themselves in a notebook."""

import html
import re

import numpy as np
import pytest

from looking import corner, count, motion
from wsdesc import write_points
from wsdesc.cloud.clean import clean
from wsdesc.datasets.synthetic import room_pair
from wsdesc.descriptor.description import load_model, prepare_scan
from wsdesc.descriptor.options import DEFAULT_MODEL
from wsdesc.reconstruction.pipeline import PairResult, Reconstruction
from wsdesc.registration.pipeline import register
from wsdesc.registration.result import Registration
from wsdesc.view import results as show
from wsdesc.view.demo import displaced
from wsdesc.view.geometry import between


@pytest.fixture(scope="module")
def room():
    return displaced(room_pair(11), 11)


@pytest.fixture(scope="module")
def result(room):
    return register(room.source, room.target, keypoints=(700,))


@pytest.fixture(scope="module")
def model_files(tmp_path_factory):
    """Three scans with the same name in different folders, two of them with a place."""
    folder = tmp_path_factory.mktemp("scans")
    paths = {}
    for k in range(3):
        (folder / str(k)).mkdir()
        path = folder / str(k) / "scan.ply"
        write_points(path, corner(1000, seed=k))
        paths[str(path)] = path
    a, b, c = paths
    pairs = [
        pair_result(source=a, target=b, confidence=0.98, rejected=None),
        pair_result(source=a, target=c, confidence=0.2, rejected="confidence 0.20"),
    ]
    poses = {a: np.eye(4), b: motion((0, 0, 0.1), (0.5, 0, 0))}
    return Reconstruction(poses, [[a, b]], {c: "alone"}, pairs, 0.03, paths)


def pair_result(**known):
    """A pair of which only some is told."""
    told = dict.fromkeys(PairResult._fields) | {"T_target_source": np.eye(4), "overlap": 0.5} | known
    return PairResult(**told)


def test_a_registration_becomes_a_scene_with_matches_that_meet(result, room):
    scene = show.registration_scene(result, (room.source, room.target), ("a.ply", "b.ply"))
    assert scene.title == "a.ply → b.ply"
    assert scene.scans[0].total == len(room.source)
    assert scene.found[0] > 20
    lines = scene.matches
    ends = [scan.end.apply(end) for scan, end in zip(scene.scans, lines, strict=False)]
    apart = np.linalg.norm(ends[0] - ends[1], axis=1)
    assert apart[lines.agree].max() < apart[~lines.agree].min()
    assert any("confidence" in fact for fact in scene.facts)


def test_cells_of_a_support_are_full_where_the_scan_is(room):
    model, name = load_model(DEFAULT_MODEL, "cpu")
    cleaned = clean(2.0 * room.source + 1000.0)  # another unit, another origin
    description = prepare_scan(cleaned, 0.06, name, 0, 40)
    found = show.supports(description, 40)
    points = cleaned.points.astype(np.float64) + cleaned.offset
    h = found.grids.shape[-1]
    side = 2.4 * model.support.size.item()  # 0.06 is 2.4 times the model's resolution
    np.testing.assert_allclose(found.sides, side, rtol=1e-5)
    full = []
    for place, axes, grid in zip(found.keypoints, found.axes, found.grids, strict=True):
        cell = np.floor(((points - place) @ axes / side + 0.5) * h).astype(int)
        inside = ((cell >= 0) & (cell < h)).all(axis=1)
        full.append(grid[tuple(cell[inside].T)] >= 64)
    assert np.concatenate(full).mean() > 0.95
    assert (found.grids >= 64).mean() < 0.4


def test_a_model_that_is_not_at_hand_has_no_supports(room):
    assert show.supports(prepare_scan(clean(room.source), 0.05, "somebody's", 0, 40), 40) is None


def test_clouds_too_small_to_be_described_are_shown_all_the_same():
    scene = show.files_scene((corner(20), corner(20, seed=1)), motion((0, 0, 1), (1, 0, 0)))
    assert [len(scan.points) for scan in scene.scans] == [20, 20]
    assert "supports" in scene.facts[0]
    assert scene.moves


def test_files_have_supports_and_if_wanted_matches(room):
    scene = show.files_scene((room.source, room.target), room.T_target_source, keypoints=0)
    assert scene.matches is None
    assert all(len(scan.supports.keypoints) > 100 for scan in scene.scans)
    with_matches = show.files_scene((room.source, room.target), room.T_target_source, keypoints=300)
    assert with_matches.found[0] > 10


def test_a_reconstruction_becomes_a_scene_without_the_folders_of_this_machine(model_files):
    scene = show.reconstruction_scene(model_files)
    assert [scan.name for scan in scene.scans] == ["0/scan.ply", "1/scan.ply"]
    assert [(e.source, e.target, e.believed) for e in scene.edges] == [(0, 1, True)]
    assert "not placed: scan.ply" in scene.facts
    moved = between(scene.scans[1].start, scene.scans[1].end, 1.0).position - scene.scans[1].start.position
    assert np.linalg.norm(moved) > 0.05


def test_short_names():
    assert show.short_names(["/x/a.ply", "/y/b.ply"]) == ["a.ply", "b.ply"]
    assert show.short_names(["/x/a.ply", "/y/a.ply"]) == ["x/a.ply", "y/a.ply"]
    assert show.short_names(["a.ply", "a.ply"]) == ["a.ply", "a.ply"]
    assert show.short_names([]) == []


def test_a_notebook_shows_a_registration(result, browser, tmp_path):
    shown = result._repr_html_()
    assert 'sandbox="allow-scripts"' in shown
    assert len(shown) < 1_200_000  # it is kept in the notebook's file
    browser.errors()
    (tmp_path / "cell.html").write_text(f"<!doctype html><body>{shown}</body>", encoding="utf-8")
    browser.driver.get((tmp_path / "cell.html").as_uri())
    browser.wait(lambda: min(count(browser.picture(), hue) for hue in ("orange", "blue")) > 1000)
    assert browser.errors() == []


def test_a_notebook_shows_a_reconstruction(model_files):
    document = html.unescape(re.search('srcdoc="(.*?)"', model_files._repr_html_(), re.S)[1])
    assert "1/scan.ply" in document
    assert str(next(iter(model_files.paths.values())).parent.parent) not in document
    assert model_files._repr_png_().startswith(b"\x89PNG")


def test_pictures_for_readers_without_scripts(result):
    assert result._repr_png_().startswith(b"\x89PNG")


def test_where_there_is_nothing_to_see_a_notebook_prints_the_words(model_files, tmp_path):
    nothing = Registration(np.eye(4), False, 0.0, 0.0, float("inf"), 0, 0, 0.03)
    gone = Reconstruction({"a": np.eye(4)}, [["a"]], {}, [], 0.03, {"a": tmp_path / "gone.ply"})
    for value in (nothing, gone):
        assert value._repr_html_() is None
        assert value._repr_png_() is None


def test_results_stay_small(result, room):
    assert "described" not in repr(result)
    parts = [
        getattr(d, name) for d in result.described for name in ("points", "order", "descriptors", "frames")
    ]
    assert sum(part.nbytes for part in parts) < 2_000_000
    assert sum(len(d.points) for d in result.described) < len(room.source) + len(room.target)
