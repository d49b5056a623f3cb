"""Synthetic scans for tests of the view, and a browser whose screen is read as an array."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from io import BytesIO
from typing import Any

import numpy as np
from matplotlib.image import imread

from poses import pose_of

SIZE = (1000, 700)
AXES = (115, 150)  # width and height of the axes in the lower left corner
PANEL = 300  # pixels of the control panel at the right, which repeats the colours of the scans


def corner(count: int = 4000, seed: int = 0) -> np.ndarray:
    """Return points (N, 3) on three walls of a box of 4 × 3 × 2."""
    rng = np.random.default_rng(seed)
    points = rng.uniform(0, 1, (count, 3)) * [4, 3, 2]
    points[np.arange(count), np.arange(count) % 3] = 0
    return points


T_TARGET_SOURCE = pose_of((0.3, -0.5, 1.2), (3.0, -2.0, 1.0))


class Browser:
    """Chromium without a window."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def picture(self) -> np.ndarray:
        """Return the page without its panel and its coloured axes: (H, W, 3), 0 … 1."""
        shot = imread(BytesIO(self.driver.get_screenshot_as_png()))
        shot = shot[:, : shot.shape[1] - PANEL, :3].copy()
        shot[-AXES[1] :, : AXES[0]] = 1.0
        return np.asarray(shot)

    def wait(self, condition: Callable[[], Any], seconds: float = 60.0) -> Any:
        """Wait until a condition is true, and return its value."""
        from selenium.common import TimeoutException

        end = time.monotonic() + seconds
        while True:
            with suppress(TimeoutException):  # a busy machine answers slowly
                if value := condition():
                    return value
            assert time.monotonic() < end, "the page did not change as expected"
            time.sleep(0.1)

    def errors(self) -> list[str]:
        """Return the errors of the browser's console since the last call."""
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] == "SEVERE"]

    def click(self, x: int, y: int) -> None:
        from selenium.webdriver import ActionChains
        from selenium.webdriver.common.actions.action_builder import ActionBuilder

        actions = ActionBuilder(self.driver)
        actions.pointer_action.move_to_location(x, y).click()
        actions.perform()
        ActionChains(self.driver).pause(0.05).perform()


def count(picture: np.ndarray, colour: str) -> int:
    """Count the pixels of a hue, whatever their brightness."""
    r, g, b = picture[..., 0], picture[..., 1], picture[..., 2]
    masks = {
        "orange": (r > 1.35 * g) & (g > 1.5 * b),
        "blue": (b > 1.3 * g) & (g > 1.3 * r),
        "green": (g > 1.8 * r) & (g > 1.5 * b),
        "red": (r > 1.5 * g) & (r > 1.5 * b) & (abs(g - b) < 0.1),
        "violet": (b > 1.3 * g) & (r > 1.15 * g) & (b > 1.1 * r),
        "yellow": (r > 0.6) & (g > 0.6) & (b < 0.35),
    }
    return int(masks[colour].sum())


def count_exact(picture: np.ndarray, colour: tuple[int, int, int], tolerance: float = 0.02) -> int:
    """Count the pixels of a colour."""
    return int((np.abs(picture - np.array(colour) / 255).max(axis=2) < tolerance).sum())
