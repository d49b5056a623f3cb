"""Similarity transformations that are fitted to an overlap, and overlaps that determine no scale."""

from __future__ import annotations

import numpy as np
import pytest

from wsdesc.alignment.scale import estimate_scale, fit_similarity
from wsdesc.alignment.surface import make_surface

RESOLUTION = 0.025


def planes(axes: str, sides: tuple[int, ...] = (0,), seed: int = 0, noise: float = 0.003) -> np.ndarray:
    """Sample planes of a box of 2 × 1.5 × 1.2 m, 1 000 points each: those across the axes, at these sides."""
    rng = np.random.default_rng(seed)
    size = np.array([2.0, 1.5, 1.2])
    parts = []
    for axis in ("xyz".index(name) for name in axes):
        for side in sides:
            points = size * rng.uniform(size=(1500, 3))
            points[:, axis] = side * size[axis] + noise * rng.normal(size=1500)
            parts.append(points)
    return np.concatenate(parts)


def test_fit_finds_factor_and_pose() -> None:
    target = planes("xyz", (0, 1))
    fit = fit_similarity(
        make_surface(planes("xyz", (0, 1), 1) / 1.04), make_surface(target), np.eye(4), RESOLUTION
    )
    assert fit is not None
    assert fit.factor == pytest.approx(1.04, rel=0.003)
    np.testing.assert_allclose(fit.S_target_source[:3, :3], fit.factor * np.eye(3), atol=0.005)
    assert fit.determinacy > 0.1


@pytest.mark.parametrize("axes", ["z", "xz", "xyz"])
def test_planes_that_meet_in_a_point_determine_no_scale(axes: str) -> None:
    surfaces = (make_surface(planes(axes)), make_surface(planes(axes, seed=1)))
    assert not estimate_scale(*surfaces, np.eye(4), RESOLUTION).determined


def test_a_room_determines_the_scale() -> None:
    surfaces = (make_surface(planes("xyz", (0, 1))), make_surface(planes("xyz", (0, 1), 1)))
    assert estimate_scale(*surfaces, np.eye(4), RESOLUTION).determined


def test_scans_apart_have_no_fit() -> None:
    source, target = make_surface(planes("xyz")), make_surface(planes("xyz") + 100.0)
    assert fit_similarity(source, target, np.eye(4), RESOLUTION) is None
    assert not estimate_scale(source, target, np.eye(4), RESOLUTION).determined
