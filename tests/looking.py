"""Clouds to look at, and a browser that tells in numbers what it shows."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from io import BytesIO
from typing import Any

import numpy as np
from matplotlib.image import imread
from scipy.spatial.transform import Rotation

SIZE = (1000, 700)
PANEL = 300  # pixels at the right, where controls have the colours of what they control


def corner(count: int = 4000, seed: int = 0) -> np.ndarray:
    """Points on three walls of a box of 4 × 3 × 2, (N, 3)."""
    rng = np.random.default_rng(seed)
    points = rng.uniform(0, 1, (count, 3)) * [4, 3, 2]
    points[np.arange(count), np.arange(count) % 3] = 0
    return points


def motion(turn: tuple[float, float, float], move: tuple[float, float, float]) -> np.ndarray:
    T = np.eye(4)
    T[:3, :3] = Rotation.from_rotvec(turn).as_matrix()
    T[:3, 3] = move
    return T


def apply(T: np.ndarray, points: np.ndarray) -> np.ndarray:
    return points @ T[:3, :3].T + T[:3, 3]


T_TARGET_SOURCE = motion((0.3, -0.5, 1.2), (3.0, -2.0, 1.0))


class Browser:
    """Chromium without a window; what is on its screen as numbers."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def picture(self) -> np.ndarray:
        """(H, W, 3) of 0 … 1: the page but for its panel."""
        shot = imread(BytesIO(self.driver.get_screenshot_as_png()))
        return np.asarray(shot[:, : shot.shape[1] - PANEL, :3])

    def wait(self, holds: Callable[[], Any], seconds: float = 60.0) -> Any:
        """Ask until the answer is true; it is returned. On a busy machine a page may be slow to answer."""
        from selenium.common import TimeoutException

        end = time.monotonic() + seconds
        while True:
            with suppress(TimeoutException):
                if answer := holds():
                    return answer
            assert time.monotonic() < end, "the page did not come to show it"
            time.sleep(0.1)

    def errors(self) -> list[str]:
        """What the console was told that is worse than a warning."""
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] == "SEVERE"]

    def click(self, x: int, y: int) -> None:
        from selenium.webdriver import ActionChains
        from selenium.webdriver.common.actions.action_builder import ActionBuilder

        actions = ActionBuilder(self.driver)
        actions.pointer_action.move_to_location(x, y).click()
        actions.perform()
        ActionChains(self.driver).pause(0.05).perform()


def count(picture: np.ndarray, colour: str) -> int:
    """How many pixels have this hue, be they lit or in shadow; white and grey have none."""
    r, g, b = picture[..., 0], picture[..., 1], picture[..., 2]
    kinds = {
        "orange": (r > 1.35 * g) & (g > 1.5 * b),
        "blue": (b > 1.3 * g) & (g > 1.3 * r),
        "green": (g > 1.8 * r) & (g > 1.5 * b),
        "red": (r > 1.5 * g) & (r > 1.5 * b) & (abs(g - b) < 0.1),
        "violet": (b > 1.3 * g) & (r > 1.15 * g) & (b > 1.1 * r),
        "yellow": (r > 0.6) & (g > 0.6) & (b < 0.35),
    }
    return int(kinds[colour].sum())


def count_exact(picture: np.ndarray, colour: tuple[int, int, int], tolerance: float = 0.02) -> int:
    """How many pixels have this colour."""
    return int((np.abs(picture - np.array(colour) / 255).max(axis=2) < tolerance).sum())
