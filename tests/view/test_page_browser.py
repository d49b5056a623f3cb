"""The saved page in a browser: it loads, shows both scans, and its controls work."""

import numpy as np
import pytest

from view_helpers import corner, count, count_exact, pose
from wsdesc.view.page import save_page
from wsdesc.view.scene import confidence_colour, pair_scene

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
        "confidence 0.970",
        "all 8,000 points shown",
        "a.ply",
        "b.ply",
        "30 of 30",
        "20 of 20",
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

    toggle(opened, "outliers")
    press(opened, "size", Keys.HOME)
    press(opened, "share", Keys.HOME)  # at the result, the lines of inliers have no length
    opened.wait(lambda: count(opened.picture(), "green") > 200)
    opened.wait(lambda: count(opened.picture(), "red") < 20)
    toggle(opened, "inliers")
    opened.wait(lambda: count(opened.picture(), "green") < 20)
    toggle(opened, "outliers")
    opened.wait(lambda: count(opened.picture(), "red") > 100)


def test_click_shows_a_support_and_click_beside_hides_it(opened):
    toggle(opened, "outliers")  # red on blue is violet
    opened.wait(lambda: count(opened.picture(), "violet") < 50)
    before = opened.picture()
    rows, columns = np.nonzero(
        (before[..., 2] > 1.3 * before[..., 1]) & (before[..., 1] > 1.3 * before[..., 0])
    )
    middle = np.argsort(rows)[len(rows) // 2]
    opened.click(int(columns[middle]), int(rows[middle]))
    opened.wait(lambda: count(opened.picture(), "violet") > 300)
    opened.click(5, 5)
    opened.wait(lambda: count(opened.picture(), "violet") < 50)
    assert opened.errors() == []


def test_slider_enlarges_points(opened):
    from selenium.webdriver import Keys

    press(opened, "size", Keys.HOME)
    opened.wait(lambda: (opened.picture().min(axis=2) > 0.99).mean() > 0.8)
    small = (opened.picture().min(axis=2) < 0.99).sum()
    press(opened, "size", Keys.END)
    opened.wait(lambda: (opened.picture().min(axis=2) < 0.99).sum() > 2 * small)


def test_alternative_pose_is_drawn_when_it_is_chosen(browser, tmp_path):
    from selenium.webdriver.support.select import Select

    choices = [("1: probability 0.60", np.eye(4)), ("2: probability 0.30", pose((0, 0, 2), (2, 3, 0)))]
    scene = pair_scene(corner(seed=2), corner(seed=1), np.eye(4), choices=choices)
    save_page(scene, tmp_path / "page.html")
    open_page(browser, tmp_path / "page.html")
    first = browser.picture()
    chooser = Select(browser.driver.find_element("id", "pose0"))
    assert [option.text for option in chooser.options] == [name for name, _ in choices]
    chooser.select_by_index(1)
    browser.wait(lambda: np.abs(browser.picture() - first).mean() > 0.02)
    chooser.select_by_index(0)
    browser.wait(lambda: np.abs(browser.picture() - first).max() < 0.02)
    assert not browser.driver.find_elements("id", "pose1")
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
