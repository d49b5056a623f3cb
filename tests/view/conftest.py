"""Scenes made by code, and a real browser to look at them with."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import numpy as np
import pytest
from looking import SIZE, T_TARGET_SOURCE, Browser, apply, corner, motion

from wsdesc.view.scene import Matches, Scene, Supports, model_scene, pair_scene


@pytest.fixture(scope="session")
def pair() -> Scene:
    """The same corner twice, 30 right matches and 20 wrong ones, and supports whose lowest layer is full."""
    target = corner(seed=1)
    source = apply(np.linalg.inv(T_TARGET_SOURCE), corner(seed=2))
    places = corner(50, seed=3)
    agree = np.arange(50) < 30
    wrong = np.roll(places, 7, axis=0)
    matches = Matches(
        apply(np.linalg.inv(T_TARGET_SOURCE), places), np.where(agree[:, None], places, wrong), agree
    )
    grids = np.zeros((50, 8, 8, 8), np.uint8)
    grids[:, :, :, 0] = 255
    axes, sides = np.tile(np.eye(3), (50, 1, 1)), np.full(50, 0.8)
    turned = np.tile(T_TARGET_SOURCE[:3, :3].T, (50, 1, 1))
    supports = (Supports(matches.source, turned, sides, grids), Supports(places, axes, sides, grids))
    facts = ["confidence 0.970: trust it"]
    return pair_scene(
        source, target, T_TARGET_SOURCE, names=("a.ply", "b.ply"), title="a pair", facts=facts,
        matches=matches, supports=supports,
    )  # fmt: skip


@pytest.fixture(scope="session")
def model() -> Scene:
    """Four scans of a corner, three of which are connected, by edges of three confidences."""
    clouds = {f"s{k}.ply": corner(1500, seed=k) + np.array([k, 0, 0]) for k in range(4)}
    poses = {name: motion((0, 0, 0), (0.8 * k, 0.6 * k * k, 0)) for k, name in enumerate(clouds)}
    edges = [
        ("s0.ply", "s1.ply", 1.0, True),
        ("s1.ply", "s2.ply", 0.5, True),
        ("s0.ply", "s3.ply", 0.0, False),
    ]
    return model_scene(clouds, poses, edges=edges, title="four scans")


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    webdriver = pytest.importorskip("selenium.webdriver", reason="there is no selenium")
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    chromium = next(filter(None, map(shutil.which, names)), None)
    driver = shutil.which("chromedriver")
    if not (chromium and driver):
        pytest.skip("there is no Chromium with its driver: apt-get install chromium chromium-driver")
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
