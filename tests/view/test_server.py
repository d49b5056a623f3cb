"""The page of the server: what a browser shows, and errors when it cannot be served."""

import socket
from dataclasses import replace

import numpy as np
import pytest

from view_helpers import SIZE, count, count_exact
from wsdesc.core.errors import InputError, MissingExtraError
from wsdesc.view import server
from wsdesc.view.geometry import interpolate
from wsdesc.view.scene import PoseChoice, confidence_colour

pytest.importorskip("viser", reason="viser is not installed: pip install viser")


@pytest.fixture
def small_browser(browser):
    """The browser with a small window: the page of the server draws continuously, on the CPU."""
    browser.driver.set_window_size(760, 520)
    yield browser
    browser.driver.get("about:blank")
    browser.driver.set_window_size(*SIZE)


@pytest.fixture
def live(pair):
    view = server.LiveView(pair, port=0)
    yield view
    view.stop()


@pytest.mark.slow
def test_browser_shows_scans_slider_and_support(live, small_browser):
    from selenium.webdriver import Keys

    small_browser.errors()  # forget those of earlier pages
    small_browser.driver.get(live.address)
    small_browser.wait(
        lambda: min(count(small_browser.picture(), hue) for hue in ("orange", "blue")) > 400, 90
    )
    result = small_browser.picture()
    text = small_browser.driver.find_element("tag name", "body").text
    for part in ("a pair", "confidence 0.970", "all 8,000 points shown", "a.ply", "inliers: 30 of 30"):
        assert part in text
    slider = small_browser.driver.find_elements("css selector", "[role=slider]")[0]
    slider.send_keys(Keys.HOME)
    small_browser.wait(lambda: live.share == 0.0)
    small_browser.wait(lambda: np.abs(small_browser.picture() - result).mean() > 0.02)
    slider.send_keys(Keys.END)
    small_browser.wait(lambda: live.share == 1.0)

    picture = small_browser.picture()
    rows, columns = np.nonzero(
        (picture[..., 2] > 1.3 * picture[..., 1]) & (picture[..., 1] > 1.3 * picture[..., 0])
    )
    middle = np.argsort(rows)[len(rows) // 2]
    small_browser.click(int(columns[middle]), int(rows[middle]))
    small_browser.wait(lambda: live.picked is not None)
    small_browser.wait(lambda: count(small_browser.picture(), "violet") > count(picture, "violet") + 60)
    assert small_browser.errors() == []


def test_slider_moves_scans(live, pair):
    live._share.value = 0.25
    live.update()
    for cloud, scan in zip(live._clouds, pair.scans, strict=True):
        pose = interpolate(scan.start, scan.end, 0.25)
        np.testing.assert_allclose(cloud.position, pose.position, atol=1e-6)
        np.testing.assert_allclose(cloud.wxyz, pose.wxyz, atol=1e-6)
    live._scan_boxes[0].value = False
    live.update()
    assert [cloud.visible for cloud in live._clouds] == [False, True]


def test_list_of_poses_moves_the_source(pair):
    choices = tuple(PoseChoice(name, scan.end) for name, scan in zip("ab", pair.scans, strict=True))
    scans = [replace(pair.scans[0], choices=choices), pair.scans[1]]
    view = server.LiveView(replace(pair, scans=scans), port=0)
    try:
        view.update()
        chooser = next(h for h in view.server.gui._gui_input_handle_from_uuid.values() if h.value == "a")
        chooser.value = "b"
        np.testing.assert_allclose(view.scene.scans[0].end.position, pair.scans[1].end.position)
        np.testing.assert_allclose(view._clouds[0].position, pair.scans[1].end.position, atol=1e-6)
    finally:
        view.stop()


def test_ray_that_hits_nothing_picks_nothing(live):
    live.pick((0.0, 0.0, 50.0), (0.0, 0.0, 1.0))
    assert live.picked is None


@pytest.mark.slow
def test_edges_are_lines_above_the_scans(many_scans, small_browser):
    view = server.LiveView(many_scans, port=0)
    try:
        assert set(view._lines) == {"2 accepted edges", "1 rejected edges"}
        middles = np.stack([scan.end.position for scan in many_scans.scans])
        ends = view._lines["2 accepted edges"].handle.points
        np.testing.assert_allclose(ends[0, :, :2], middles[:2, :2], atol=1e-6)
        assert ends[..., 2].min() > max(scan.end.apply(scan.points)[:, 2].max() for scan in many_scans.scans)
        small_browser.driver.get(view.address)

        def yellow():  # no scan has this colour
            return count_exact(small_browser.picture(), confidence_colour(0.5), 0.2)

        small_browser.wait(lambda: yellow() > 20, 90)
        view._line_boxes["2 accepted edges"].value = False
        small_browser.wait(lambda: yellow() < 5)
    finally:
        view.stop()


def test_port_in_use():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(InputError, match="in use"):
            server.check_server("localhost", taken.getsockname()[1])


def test_unknown_host():
    with pytest.raises(InputError, match="cannot serve a page"):
        server.check_server("192.0.2.1")


def test_without_viser_the_error_names_the_install_command(monkeypatch):
    monkeypatch.setattr(server, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match='pip install "viser'):
        server.check_server()
