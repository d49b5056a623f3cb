"""The saved page in a real browser: it loads, both scans are there, and its controls do what they say."""

import numpy as np
import pytest
from looking import corner, count, count_exact

from wsdesc.view.page import save_page
from wsdesc.view.scene import confidence_colour, pair_scene


@pytest.fixture
def opened(browser, pair, tmp_path):
    save_page(pair, tmp_path / "page.html")
    return open_page(browser, tmp_path / "page.html")


def open_page(browser, path):
    browser.errors()  # of pages before
    browser.driver.get(path.as_uri())
    browser.wait(lambda: count(browser.picture(), "orange") > 500)
    return browser


def press(browser, name, *keys):
    browser.driver.find_element("id", name).send_keys(*keys)


def toggle(browser, name):
    browser.driver.find_element("id", name).click()


def test_loads_without_errors_and_without_anything_from_elsewhere(opened):
    assert opened.errors() == []
    asked = opened.driver.execute_script("return performance.getEntriesByType('resource').map((e) => e.name)")
    assert asked == []
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


def test_both_scans_are_drawn_and_can_be_switched_off(opened):
    whole = opened.picture()
    assert count(whole, "orange") > 3000
    assert count(whole, "blue") > 3000
    toggle(opened, "scan0")
    opened.wait(lambda: count(opened.picture(), "orange") < 20)
    assert count(opened.picture(), "blue") > count(whole, "blue")
    toggle(opened, "scan1")
    opened.wait(lambda: count(opened.picture(), "blue") < 20)


def test_the_slider_takes_the_source_back_to_where_it_came_from(opened):
    from selenium.webdriver import Keys

    def where(colour_of):
        rows, columns = np.nonzero(colour_of[..., 0] > 1.35 * colour_of[..., 1])
        return np.array([rows.mean(), columns.mean()])

    result = opened.picture()
    press(opened, "share", Keys.HOME)
    opened.wait(lambda: np.abs(opened.picture() - result).mean() > 0.02)
    start = opened.picture()
    assert np.linalg.norm(where(start) - where(result)) > 30
    press(opened, "share", Keys.END)
    opened.wait(lambda: np.abs(opened.picture() - result).max() < 0.02)


def test_matches_are_green_and_red_lines(opened):
    from selenium.webdriver import Keys

    toggle(opened, "differ")
    press(opened, "size", Keys.HOME)
    press(opened, "share", Keys.HOME)  # at the result the lines of right matches are points
    opened.wait(lambda: count(opened.picture(), "green") > 200)
    opened.wait(lambda: count(opened.picture(), "red") < 20)
    toggle(opened, "agree")
    opened.wait(lambda: count(opened.picture(), "green") < 20)
    toggle(opened, "differ")
    opened.wait(lambda: count(opened.picture(), "red") > 100)


def test_a_click_shows_the_support_and_a_click_beside_hides_it(opened):
    toggle(opened, "differ")  # red on blue is violet
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


def test_points_can_be_made_larger(opened):
    from selenium.webdriver import Keys

    press(opened, "size", Keys.HOME)
    opened.wait(lambda: (opened.picture().min(axis=2) > 0.99).mean() > 0.8)
    small = (opened.picture().min(axis=2) < 0.99).sum()
    press(opened, "size", Keys.END)
    opened.wait(lambda: (opened.picture().min(axis=2) < 0.99).sum() > 2 * small)


def test_the_edges_of_a_model_have_the_colours_of_their_confidence(browser, model, tmp_path):
    save_page(model, tmp_path / "page.html")
    open_page(browser, tmp_path / "page.html")
    seen = [count_exact(browser.picture(), confidence_colour(sure)) for sure in (1.0, 0.5, 0.0)]
    assert min(seen[:2]) > 50
    assert seen[2] < 10  # rejected pairs are shown if one wants them
    toggle(browser, "rejected")
    browser.wait(lambda: count_exact(browser.picture(), confidence_colour(0.0)) > 50)
    toggle(browser, "believed")
    browser.wait(lambda: count_exact(browser.picture(), confidence_colour(1.0)) < 10)
    text = browser.driver.find_element("id", "panel").text
    assert "2 believed pairs" in text
    assert "1 rejected pair" in text
    assert browser.errors() == []


def test_names_are_text_and_nothing_else(browser, tmp_path):
    evil = "</script><img src=x onerror=console.error('run')>"
    scene = pair_scene(corner(), corner(seed=5), names=(evil, "{{script}}"), title=evil, facts=[evil])
    save_page(scene, tmp_path / "page.html")
    open_page(browser, tmp_path / "page.html")
    assert browser.errors() == []
    assert browser.driver.find_element("id", "panel").text.count("onerror") == 3
    assert not browser.driver.find_elements("id", "share")  # without a pose nothing moves
