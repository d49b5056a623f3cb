"""The report of a reconstruction in a browser."""

import numpy as np
import pytest

from view_helpers import corner
from wsdesc import write_points
from wsdesc.reconstruction.edge_result import EdgeResult
from wsdesc.reconstruction.result import Reconstruction


@pytest.mark.slow
def test_report_shows_a_plan_and_sorts_tables(browser, tmp_path):
    names = ["a.ply", "b.ply", "c.ply"]
    paths = {name: tmp_path / name for name in names}
    poses = {}
    for k, (name, path) in enumerate(paths.items()):
        write_points(path, corner(2000, seed=k))
        poses[name] = np.eye(4)
        poses[name][:3, 3] = [k, k % 2, 0]
    edges = [
        EdgeResult("a.ply", "b.ply", np.eye(4), 0.97, 0.5, 0, 2000, None, 1.5, 0.01),
        EdgeResult("b.ply", "c.ply", np.eye(4), 0.91, 0.7, 0, 2000, None, 0.5, 0.02),
    ]
    Reconstruction(poses, [names], {}, edges, 0.05, paths).save(tmp_path / "model")
    from selenium.webdriver.common.by import By  # installed where there is a browser

    driver = browser.driver
    driver.get((tmp_path / "model" / "report.html").as_uri())
    assert not browser.errors()
    lines = driver.find_elements(By.CSS_SELECTOR, ".plan line[stroke]")
    assert len(lines) == 2
    assert all(line.rect["width"] > 50 for line in lines)

    def overlaps():
        rows = driver.find_elements(By.CSS_SELECTOR, "h2 + .table tbody tr")
        return [row.text.split()[4] for row in rows if "σ" in row.text]

    assert overlaps() == ["50%", "70%"]
    heading = next(h for h in driver.find_elements(By.CSS_SELECTOR, "th button") if h.text == "overlap")
    driver.execute_script("arguments[0].click()", heading)
    assert overlaps() == ["70%", "50%"]
    driver.execute_script("arguments[0].click()", heading)
    assert overlaps() == ["50%", "70%"]
    assert not browser.errors()
