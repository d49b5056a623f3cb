"""Rounds of a registration: which of them is the thorough one, and at which resolution scans are aligned."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from wsdesc import register
from wsdesc.cloud.clean import clean
from wsdesc.core.geometry import make_pose
from wsdesc.descriptor.description import Description
from wsdesc.descriptor.preparation import prepare_scan
from wsdesc.evaluation import rotation_error_deg, translation_error
from wsdesc.registration import schedule


def sphere(points: int, seed: int) -> np.ndarray:
    """Points of a sphere: no pose of two of them can be a success."""
    x = np.random.default_rng(seed).normal(size=(points, 3))
    return np.asarray(x / np.linalg.norm(x, axis=1, keepdims=True))


def spy_on_rounds(
    monkeypatch: pytest.MonkeyPatch, spy: Callable[[Description, dict[str, Any]], None]
) -> None:
    """Call `spy` with the source and the options of each round."""
    real = schedule.register_round

    def called(p: Description, *arguments: Any, **options: Any) -> Any:
        spy(p, options)
        return real(p, *arguments, **options)

    monkeypatch.setattr(schedule, "register_round", called)


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
    thorough = []
    spy_on_rounds(monkeypatch, lambda p, options: thorough.append(options["thorough"]))
    monkeypatch.setattr(schedule, "coarsening", lambda p, q: 1.0)
    result = register(sphere(300, 0), sphere(300, 1), keypoints=keypoints, device="cpu")
    assert not result.success
    assert thorough == expected


def bumpy_shape(points: int, seed: int) -> np.ndarray:
    """Points of a box with a smaller box on it and a rod: a shape without symmetry."""
    rng = np.random.default_rng(seed)
    boxes = [
        ((0, 0, 0), (1.0, 0.6, 0.3)),
        ((0.1, 0.1, 0.3), (0.4, 0.3, 0.5)),
        ((0.8, 0.4, 0.3), (0.05, 0.05, 0.7)),
    ]
    areas = [2 * (x * y + y * z + z * x) for _, (x, y, z) in boxes]
    parts = []
    for (corner, size), count in zip(
        boxes, rng.multinomial(points, np.array(areas) / sum(areas)), strict=True
    ):
        x, y, z = size
        axis = rng.choice(3, count, p=np.array([y * z, x * z, x * y]) / (y * z + x * z + x * y))
        part = rng.uniform(size=(count, 3))
        part[np.arange(count), axis] = rng.integers(2, size=count)
        parts.append(np.array(corner) + part * size)
    return np.concatenate(parts) + rng.normal(0, 0.004, (points, 3))


def test_sparse_scans_are_aligned_at_the_distance_of_their_points() -> None:
    prepared = [
        prepare_scan(clean(bumpy_shape(count, seed)), 0.01, "", 0, 3)
        for count, seed in ((700, 0), (700, 1), (40_000, 2), (40_000, 3))
    ]
    factor = schedule.coarsening(*prepared[:2])
    assert factor > 1.5
    assert schedule.coarsening(*prepared[2:]) == 1
    fine = prepared[0]
    coarse = fine.coarser(factor)
    assert coarse.resolution == pytest.approx(factor * fine.resolution)
    np.testing.assert_allclose(
        coarse.in_scan_frame(coarse.points), fine.in_scan_frame(fine.points), atol=1e-6
    )


def test_sparse_scans_of_a_shape_are_registered() -> None:
    T = make_pose(Rotation.from_rotvec([0.7, -1.9, 0.4]).as_matrix(), (0.2, -0.4, 0.3))
    source, target = bumpy_shape(900, 4), bumpy_shape(900, 5) @ T[:3, :3].T + T[:3, 3]
    result = register(source, target, device="cpu")
    assert rotation_error_deg(result.T_target_source, T) < 5
    assert translation_error(result.T_target_source, T) < 0.05
    assert result.confidence > 0.5


def test_sparse_scans_without_success_are_also_aligned_at_the_fine_resolution(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    resolutions: list[float] = []
    spy_on_rounds(monkeypatch, lambda p, options: resolutions.append(p.resolution))
    result = register(sphere(300, 0), sphere(300, 1), keypoints=(100, 10_000), resolution=0.05, device="cpu")
    assert not result.success
    assert resolutions[0] == resolutions[1] > 0.06
    assert resolutions[2:] == [0.05]
