"""Synthetic scenes, and a browser that shows them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from poses import pose_of
from view_helpers import SIZE, T_TARGET_SOURCE, Browser, corner
from wsdesc.core.geometry import inverse, transform
from wsdesc.view.build import multi_scan_scene, pair_scene
from wsdesc.view.scene import MatchLines, SceneView, Supports


@pytest.fixture(scope="session")
def pair() -> SceneView:
    """Two scans of the same corner, with 30 inliers, 20 outliers, and supports whose lowest layer is full."""
    target = corner(seed=1)
    source = transform(corner(seed=2), inverse(T_TARGET_SOURCE))
    keypoints = corner(50, seed=3)
    inlier = np.arange(50) < 30
    wrong = np.roll(keypoints, 7, axis=0)
    matches = MatchLines(
        transform(keypoints, inverse(T_TARGET_SOURCE)), np.where(inlier[:, None], keypoints, wrong), inlier
    )
    grids = np.zeros((50, 8, 8, 8), np.uint8)
    grids[:, :, :, 0] = 255
    axes, sides = np.tile(np.eye(3), (50, 1, 1)), np.full(50, 0.8)
    rotated = np.tile(T_TARGET_SOURCE[:3, :3].T, (50, 1, 1))
    supports = (Supports(matches.source, rotated, sides, grids), Supports(keypoints, axes, sides, grids))
    scene = pair_scene(
        source, target, T_TARGET_SOURCE, names=("a.ply", "b.ply"), title="a pair", facts=["overlap 50%"],
        matches=matches, supports=supports, unit="m",
    )  # fmt: skip
    return replace(scene, success=True, verdict="confidence 0.970 (success)", warnings=["Check the scale."])


@pytest.fixture(scope="session")
def many_scans() -> SceneView:
    """Four scans of a corner; three of them are connected by accepted edges."""
    clouds = {f"s{k}.ply": corner(1500, seed=k) + np.array([k, 0, 0]) for k in range(4)}
    poses = {name: pose_of((0, 0, 0), (0.8 * k, 0.6 * k * k, 0)) for k, name in enumerate(clouds)}
    edges = [
        ("s0.ply", "s1.ply", 1.0, True),
        ("s1.ply", "s2.ply", 0.5, True),
        ("s0.ply", "s3.ply", 0.0, False),
    ]
    return multi_scan_scene(clouds, poses, edges=edges, title="four scans")


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    chromium = next(filter(None, map(shutil.which, names)), None)
    driver = shutil.which("chromedriver")
    if not (chromium and driver):
        pytest.skip("Chromium is not installed: apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    flags = [
        "headless=new",
        "no-sandbox",
        "disable-dev-shm-usage",
        "hide-scrollbars",
        "use-angle=swiftshader",
    ]
    for flag in [*flags, "enable-unsafe-swiftshader", "force-device-scale-factor=1"]:
        options.add_argument(f"--{flag}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    started = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    try:
        started.set_window_size(*SIZE)
        yield Browser(started)
    finally:
        started.quit()
