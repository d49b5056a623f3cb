"""The saved page in a browser: it loads, shows both scans, and its controls work."""

import re

import numpy as np
import pytest

from poses import pose_of
from view_helpers import corner, count, count_exact
from wsdesc import Cloud
from wsdesc.view.build import NamedPose, multi_scan_scene, pair_scene
from wsdesc.view.colours import HEAT, confidence_colour
from wsdesc.view.page import save_page

pytestmark = pytest.mark.slow


@pytest.fixture
def opened(browser, pair, tmp_path):
    save_page(pair, tmp_path / "page.html")
    return open_page(browser, tmp_path / "page.html")


def open_page(browser, path):
    browser.errors()  # forget those of earlier pages
    browser.driver.get(path.as_uri())
    browser.wait(lambda: count(browser.picture(), "orange") > 500)
    return browser


def press(browser, name, *keys):
    browser.driver.find_element("id", name).send_keys(*keys)


def toggle(browser, name):
    browser.driver.find_element("id", name).click()


def test_page_loads_without_errors_and_requests(opened):
    assert opened.errors() == []
    requests = opened.driver.execute_script(
        "return performance.getEntriesByType('resource').map((e) => e.name)"
    )
    assert requests == []
    text = opened.driver.find_element("id", "panel").text
    for part in (
        "a pair",
        "confidence 0.970 (success)",
        "overlap 50%",
        "Check the scale.",
        "all 8,000 points shown",
        "a.ply",
        "b.ply",
        "30 inliers",
        "20 outliers",
    ):
        assert part in text


def test_scans_are_drawn_and_can_be_hidden(opened):
    whole = opened.picture()
    assert count(whole, "orange") > 3000
    assert count(whole, "blue") > 3000
    toggle(opened, "scan0")
    opened.wait(lambda: count(opened.picture(), "orange") < 20)
    assert count(opened.picture(), "blue") > count(whole, "blue")
    toggle(opened, "scan1")
    opened.wait(lambda: count(opened.picture(), "blue") < 20)


def test_slider_moves_the_source_to_its_input_pose(opened):
    from selenium.webdriver import Keys

    def orange_centre(picture):
        rows, columns = np.nonzero(picture[..., 0] > 1.35 * picture[..., 1])
        return np.array([rows.mean(), columns.mean()])

    result = opened.picture()
    press(opened, "share", Keys.HOME)
    opened.wait(lambda: np.abs(opened.picture() - result).mean() > 0.02)
    start = opened.picture()
    assert np.linalg.norm(orange_centre(start) - orange_centre(result)) > 30
    press(opened, "share", Keys.END)
    opened.wait(lambda: np.abs(opened.picture() - result).max() < 0.02)


def test_inliers_are_green_and_outliers_red(opened):
    from selenium.webdriver import Keys

    opened.wait(lambda: count(opened.picture(), "red") < 20)  # outliers are hidden at first
    press(opened, "size", Keys.HOME)
    press(opened, "share", Keys.HOME)  # at the result, the lines of inliers have no length
    opened.wait(lambda: count(opened.picture(), "green") > 200)
    opened.wait(lambda: count(opened.picture(), "red") < 20)
    toggle(opened, "inliers")
    opened.wait(lambda: count(opened.picture(), "green") < 20)
    toggle(opened, "outliers")
    opened.wait(lambda: count(opened.picture(), "red") > 100)


def test_click_shows_a_support_and_click_beside_hides_it(opened):
    toggle(opened, "supports")
    before = opened.picture()
    rows, columns = np.nonzero(
        (before[..., 2] > 1.3 * before[..., 1]) & (before[..., 1] > 1.3 * before[..., 0])
    )
    middle = np.argsort(rows)[len(rows) // 2]
    hint = opened.driver.find_element("id", "hint")
    opened.click(int(columns[middle]), int(rows[middle]))
    opened.wait(lambda: count(opened.picture(), "violet") > 300)
    assert re.search(r"[ab]\.ply: x -?[\d.]+, y -?[\d.]+, z -?[\d.]+", hint.text)
    opened.click(5, 5)
    opened.wait(lambda: count(opened.picture(), "violet") < 50)
    assert "drag: rotate" in hint.text
    assert opened.errors() == []


def test_slider_enlarges_points(opened):
    from selenium.webdriver import Keys

    press(opened, "size", Keys.HOME)
    opened.wait(lambda: (opened.picture().min(axis=2) > 0.99).mean() > 0.8)
    small = (opened.picture().min(axis=2) < 0.99).sum()
    press(opened, "size", Keys.END)
    opened.wait(lambda: (opened.picture().min(axis=2) < 0.99).sum() > 2 * small)


def test_alternative_pose_is_drawn_when_it_is_chosen(browser, tmp_path):
    other = pose_of((0, 0, 2), (2, 3, 0))
    choices = [NamedPose("overlap 60%", np.eye(4), 0.6), NamedPose("overlap 30%", other, 0.3)]
    scene = pair_scene(corner(seed=2), corner(seed=1), np.eye(4), choices=choices)
    save_page(scene, tmp_path / "page.html")
    open_page(browser, tmp_path / "page.html")
    first = browser.picture()
    assert "2: probability 0.30\noverlap 30%" in browser.driver.find_element("id", "poses").text
    toggle(browser, "pose0-1")
    browser.wait(lambda: np.abs(browser.picture() - first).mean() > 0.02)
    toggle(browser, "pose0-0")
    browser.wait(lambda: np.abs(browser.picture() - first).max() < 0.02)
    assert not browser.driver.find_elements("id", "pose1-0")
    assert browser.errors() == []


def choose(browser, name, value):
    from selenium.webdriver.support.select import Select

    Select(browser.driver.find_element("id", name)).select_by_value(value)


def test_heat_map_has_a_histogram_with_the_median(browser, tmp_path):
    noise = np.random.default_rng(0).normal(0, 0.004, (8000, 3))
    scene = pair_scene(corner(8000) + noise, corner(8000, seed=1), np.eye(4), resolution=0.1, unit="m")
    save_page(scene, tmp_path / "page.html")
    opened = open_page(browser, tmp_path / "page.html")
    panel = opened.driver.find_element("id", "panel")
    assert "median" not in panel.text
    choose(opened, "mode", "distance")
    opened.wait(lambda: "median" in panel.text)
    low = np.array(HEAT[0])
    opened.wait(lambda: count_hue(opened.picture(), low) > 3000)
    assert re.search(
        r"median [2-4]\.\d* mm, 95 % below .* the source's points have a partner within 20 cm", panel.text
    )
    histogram = opened.driver.execute_script(
        "const c = document.getElementById('histogram');"
        "return Array.from(c.getContext('2d').getImageData(0, 0, c.width, c.height).data)"
    )
    assert np.count_nonzero(histogram) > 1000
    choose(opened, "mode", "height")
    opened.wait(lambda: count(opened.picture(), "red") > 200)
    choose(opened, "mode", "scans")
    opened.wait(lambda: count(opened.picture(), "orange") > 3000)
    assert opened.errors() == []


def count_hue(picture, colour):
    """Count the pixels of a hue, shaded or faded."""
    saturated = np.ptp(picture, axis=2) > 0.25
    a = picture - picture.mean(axis=2, keepdims=True)
    b = colour / 255 - colour.mean() / 255
    cosine = (a @ b) / (np.linalg.norm(a, axis=2) * np.linalg.norm(b) + 1e-9)
    return int((saturated & (cosine > 0.95)).sum())


def test_scale_bar_has_the_length_it_states(opened):
    """Two points 4 m apart are as many bars apart on the screen, in the parallel projection."""
    toggle(opened, "parallel")
    toggle(opened, "top")
    script = (
        "draw(); const text = document.getElementById('scalebar').textContent, f = pixelsPerUnit();"
        "const place = (x) => onScreen(projection(), scene.axes[0].map((v) => v * x * scene.scale));"
        "const [a, b] = [place(0), place(4)]; return [text, f, Math.hypot(a[0] - b[0], a[1] - b[1])]"
    )
    text, pixels, apart = opened.driver.execute_script(script)
    assert re.fullmatch(r"[125]0* (m|cm)", text)
    assert apart == pytest.approx(4 * pixels, rel=1e-3)


def test_view_can_be_reset_and_up_can_be_chosen(opened):
    first = opened.picture()
    toggle(opened, "top")
    opened.wait(lambda: np.abs(opened.picture() - first).mean() > 0.01)
    choose(opened, "up", "x")
    above = opened.picture()
    toggle(opened, "front")
    opened.wait(lambda: np.abs(opened.picture() - above).mean() > 0.01)
    choose(opened, "up", "z")
    toggle(opened, "reset")
    opened.wait(lambda: np.abs(opened.picture() - first).max() < 0.02)
    assert opened.errors() == []


def test_points_above_the_cut_are_hidden(opened):
    from selenium.webdriver import Keys

    whole = count(opened.picture(), "orange")
    press(opened, "cut", Keys.HOME, Keys.PAGE_UP)
    opened.wait(lambda: 0 < count(opened.picture(), "orange") < 0.7 * whole)


def test_one_scan_shows_its_own_colours(browser, tmp_path):
    points = corner(6000)
    red = np.where(points[:, 0] < 2, 230, 20).astype(np.uint8)
    colours = {"red": red, "green": np.full(6000, 20, np.uint8), "blue": (250 - red).astype(np.uint8)}
    scene = multi_scan_scene({"a.ply": Cloud(points, colours)}, {"a.ply": np.eye(4)}, title="a.ply")
    save_page(scene, tmp_path / "page.html")
    browser.errors()
    browser.driver.get((tmp_path / "page.html").as_uri())
    browser.wait(lambda: count(browser.picture(), "red") > 1000)
    choose(browser, "mode", "scans")
    browser.wait(lambda: count(browser.picture(), "red") < 50)
    assert not browser.driver.find_elements("id", "share")
    assert browser.errors() == []


def test_edges_are_coloured_by_confidence(browser, many_scans, tmp_path):
    save_page(many_scans, tmp_path / "page.html")
    open_page(browser, tmp_path / "page.html")
    pixels = [count_exact(browser.picture(), confidence_colour(c)) for c in (1.0, 0.5, 0.0)]
    assert min(pixels[:2]) > 50
    assert pixels[2] < 10  # rejected edges are hidden at first
    toggle(browser, "rejected")
    browser.wait(lambda: count_exact(browser.picture(), confidence_colour(0.0)) > 50)
    toggle(browser, "accepted")
    browser.wait(lambda: count_exact(browser.picture(), confidence_colour(1.0)) < 10)
    text = browser.driver.find_element("id", "panel").text
    assert "2 accepted edges" in text
    assert "1 rejected edge" in text
    assert browser.errors() == []


def test_names_are_escaped(browser, tmp_path):
    evil = "</script><img src=x onerror=console.error('run')>"
    scene = pair_scene(corner(), corner(seed=5), names=(evil, "{{script}}"), title=evil, facts=[evil])
    save_page(scene, tmp_path / "page.html")
    open_page(browser, tmp_path / "page.html")
    assert browser.errors() == []
    assert browser.driver.find_element("id", "panel").text.count("onerror") == 3
    assert not browser.driver.find_elements("id", "share")  # without a pose nothing moves
