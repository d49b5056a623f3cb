"""The HTML report is one valid file without a network that shows what a surveyor asks for."""

import re
from html.parser import HTMLParser

import numpy as np
import pytest

from wsdesc import write_points
from wsdesc.core.geometry import inverse, transform
from wsdesc.reconstruction.edge_result import EdgeResult
from wsdesc.reconstruction.known import KnownResult
from wsdesc.reconstruction.report_svg import deviation_colour
from wsdesc.reconstruction.result import Reconstruction

VOID = {"meta", "link", "br", "img", "input"}
STRANGE = 'a<script>alert("1")</script>&.ply'


class Checker(HTMLParser):
    """Checks that tags are closed in order, and collects text and addresses."""

    def __init__(self):
        super().__init__()
        self.open, self.text, self.addresses, self.count = [], "", [], {}

    def handle_starttag(self, tag, attributes):
        self.count[tag] = self.count.get(tag, 0) + 1
        self.addresses += [value for name, value in attributes if name in ("src", "href", "action")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.count[tag] = self.count.get(tag, 0) + 1

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def wavy(rng, centre, count=8000):
    """Make points of a wavy ground around a centre."""
    xy = rng.uniform(-4, 4, (count, 2)) + centre[:2]
    return np.c_[xy, 0.5 * np.sin(xy[:, 0]) + 0.3 * np.cos(1.3 * xy[:, 1])]


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    folder, rng = tmp_path_factory.mktemp("scans"), np.random.default_rng(0)
    poses, paths = {}, {}
    for k, name in enumerate((STRANGE, "b.ply", "c.ply", "d.ply")):
        T = np.eye(4)
        T[:3, 3] = [448_000 + 3.0 * k, 5_411_000 - 2.0 * (k % 2), 0]
        points = wavy(rng, T[:3, 3] - np.array([448_000, 5_411_000, 0]))
        points[:, :2] += [448_000, 5_411_000]
        poses[name], paths[name] = T, folder / f"{k}.ply"
        write_points(paths[name], transform(points, inverse(T)))
    names = list(poses)

    def edge(a, b, rejection, deviation):
        T = inverse(poses[names[b]]) @ poses[names[a]]
        return EdgeResult(names[a], names[b], T, 0.9, 0.4, 0, 2000, rejection, deviation, 0.004)

    edges = [edge(0, 1, None, 1.0), edge(1, 2, None, 4.0), edge(0, 3, "contradicts other edges", None)]
    known = [KnownResult("control", "c.ply", "P7", 3.2, 0.0, 400.0, "400 standard deviations off")]
    covariances = {name: np.diag([k * 1e-4] * 3 + [1e-8] * 3) for k, name in enumerate(names)}
    return Reconstruction(
        poses, [names], {"bad.ply": "has no points"}, edges, 0.025, paths,
        covariances=covariances, known=known, in_world=True,
    )  # fmt: skip


@pytest.fixture(scope="module")
def page(result, tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    result.save(folder)
    return (folder / "report.html").read_text(encoding="utf-8")


def test_page_is_valid_and_needs_no_network(page):
    checker = Checker()
    checker.feed(page)
    assert checker.open == []
    assert checker.addresses == []
    assert not re.search(r"https?://|@import|url\(", page)
    assert '<html lang="en">' in page


def test_page_shows_everything_and_escapes_names(page):
    checker = Checker()
    checker.feed(page)
    for text in ("4 of 5", "in the world", "contradicts other edges", "P7", "400 standard deviations off",
                 "bad.ply", "has no points", "position σ", "RMSE", "overlap", STRANGE):  # fmt: skip
        assert text in checker.text
    assert "<script>alert" not in page
    assert checker.count["circle"] == 4
    assert page.count('class="rejected"') == 1


def test_least_certain_scans_and_worst_edges_come_first(page):
    scans = page[page.index("<h2>Scans") : page.index("<h2>Accepted")]
    assert scans.index("d.ply") < scans.index("c.ply") < scans.index("b.ply")
    edges = page[page.index("<h2>Accepted") :]
    assert edges.index("4.0 σ") < edges.index("1.0 σ")


def test_distances_are_those_of_the_surfaces(page):
    """The surfaces coincide: distances are far below the distance between points."""
    median = float(re.search(r"median of ([\d.e-]+)\.", page)[1])
    assert 0 < median < 0.02


def test_colours_grow_with_the_deviation_and_end():
    colours = [deviation_colour(value) for value in (0, 1, 5, 10, 1000)]
    assert len(set(colours)) == 4
    assert colours[3] == colours[4]
    assert all(re.fullmatch("#[0-9a-f]{6}", colour) for colour in colours)


def test_a_result_without_scans_has_a_page(tmp_path):
    Reconstruction({}, [], {"a.ply": "no overlap"}, [], 0.1, {"a.ply": tmp_path / "a.ply"}).save(tmp_path)
    assert "0 of 1" in (tmp_path / "report.html").read_text(encoding="utf-8")
