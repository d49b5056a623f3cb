"""The live page: what a browser shows of it, and what happens where it cannot be served."""

import socket

import numpy as np
import pytest
from looking import SIZE, count, count_exact

from wsdesc.core.errors import InputError, MissingExtraError
from wsdesc.view import server
from wsdesc.view.geometry import between
from wsdesc.view.scene import confidence_colour

pytest.importorskip("viser", reason="there is no viser: pip install 'wsdesc[view]'")


@pytest.fixture
def small(browser):
    """The browser with a small window, left in the end: the live page draws without a pause, on the CPU."""
    browser.driver.set_window_size(760, 520)
    yield browser
    browser.driver.get("about:blank")
    browser.driver.set_window_size(*SIZE)


@pytest.fixture
def live(pair):
    view = server.LiveView(pair, port=0)
    yield view
    view.stop()


def test_a_browser_shows_both_scans_the_slider_moves_them_and_a_click_shows_a_support(live, small):
    from selenium.webdriver import Keys

    small.errors()  # of pages before
    small.driver.get(live.address)
    small.wait(lambda: min(count(small.picture(), hue) for hue in ("orange", "blue")) > 400, 90)
    result = small.picture()
    text = small.driver.find_element("tag name", "body").text
    for part in ("a pair", "confidence 0.970", "all 8,000 points shown", "a.ply", "inliers: 30 of 30"):
        assert part in text
    slider = small.driver.find_elements("css selector", "[role=slider]")[0]
    slider.send_keys(Keys.HOME)
    small.wait(lambda: live.share == 0.0)
    small.wait(lambda: np.abs(small.picture() - result).mean() > 0.02)
    slider.send_keys(Keys.END)
    small.wait(lambda: live.share == 1.0)

    picture = small.picture()
    rows, columns = np.nonzero(
        (picture[..., 2] > 1.3 * picture[..., 1]) & (picture[..., 1] > 1.3 * picture[..., 0])
    )
    middle = np.argsort(rows)[len(rows) // 2]
    small.click(int(columns[middle]), int(rows[middle]))
    small.wait(lambda: live.picked is not None)
    small.wait(lambda: count(small.picture(), "violet") > count(picture, "violet") + 60)
    assert small.errors() == []


def test_scans_are_where_the_slider_says(live, pair):
    live._share.value = 0.25
    live.move()
    for cloud, scan in zip(live._clouds, pair.scans, strict=True):
        place = between(scan.start, scan.end, 0.25)
        np.testing.assert_allclose(cloud.position, place.position, atol=1e-6)
        np.testing.assert_allclose(cloud.wxyz, place.wxyz, atol=1e-6)
    live._shown[0].value = False
    live.move()
    assert [cloud.visible for cloud in live._clouds] == [False, True]


def test_a_ray_into_the_void_picks_nothing(live):
    live.click((0.0, 0.0, 50.0), (0.0, 0.0, 1.0))
    assert live.picked is None


def test_edges_of_a_model_are_lines_above_it_in_the_colours_of_their_confidence(model, small):
    view = server.LiveView(model, port=0)
    try:
        assert set(view._lines) == {"2 believed pairs", "1 rejected pairs"}
        middles = np.stack([scan.end.position for scan in model.scans])
        ends = view._lines["2 believed pairs"].handle.points
        np.testing.assert_allclose(ends[0, :, :2], middles[:2, :2], atol=1e-6)
        assert ends[..., 2].min() > max(scan.end.apply(scan.points)[:, 2].max() for scan in model.scans)
        small.driver.get(view.address)

        def yellow():  # no scan is
            return count_exact(small.picture(), confidence_colour(0.5), 0.2)

        small.wait(lambda: yellow() > 20, 90)
        view._line_boxes["2 believed pairs"].value = False
        small.wait(lambda: yellow() < 5)
    finally:
        view.stop()


def test_a_port_in_use_is_said():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(InputError, match="in use"):
            server.check_server("localhost", taken.getsockname()[1])


def test_a_host_that_is_not_here_is_said():
    with pytest.raises(InputError, match="no page can be served"):
        server.check_server("192.0.2.1")


def test_without_viser_the_line_to_type_is_said(monkeypatch):
    monkeypatch.setattr(server, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r'pip install "wsdesc\[view\]"'):
        server.check_server()
