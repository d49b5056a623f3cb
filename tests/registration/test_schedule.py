"""Rounds of a registration: which of them is the thorough one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from wsdesc import register
from wsdesc.registration import schedule


def sphere(points: int, seed: int) -> np.ndarray:
    """Points of a sphere: no pose of two of them can be a success."""
    x = np.random.default_rng(seed).normal(size=(points, 3))
    return np.asarray(x / np.linalg.norm(x, axis=1, keepdims=True))


@pytest.mark.parametrize(
    ("keypoints", "expected"),
    [
        ((100, 10_000), [False, True]),
        ((100, 9_000, 10_000), [False, True]),  # all points are described in the second round
        ((10_000, 20_000), [True]),
        ((10_000,), [False]),
    ],
)
def test_the_last_round_is_thorough_also_for_small_scans(
    keypoints: tuple[int, ...], expected: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    real, thorough = schedule.register_round, []

    def spy(*arguments: Any, **options: Any) -> Any:
        thorough.append(options["thorough"])
        return real(*arguments, **options)

    monkeypatch.setattr(schedule, "register_round", spy)
    result = register(sphere(300, 0), sphere(300, 1), keypoints=keypoints, device="cpu")
    assert not result.success
    assert thorough == expected
