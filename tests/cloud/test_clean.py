"""Cleaning keeps every point once, in order, with the precision of float32 in the local frame."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from wsdesc.cloud import clean as cleaning
from wsdesc.cloud.clean import clean, first_occurrences
from wsdesc.cloud.local_frame import in_scan_frames
from wsdesc.core.errors import InputError
from wsdesc.core.geometry import transform

UTM = np.array([5e5, 5e6, 300])


def plain_first_occurrences(points: np.ndarray) -> list[int]:
    seen: set[tuple[float, ...]] = set()
    first = []
    for i, point in enumerate(map(tuple, points.tolist())):
        if point not in seen:
            seen.add(point)
            first.append(i)
    return first


few_values = st.sampled_from([0.0, -0.0, 1.0, -1.0, 1e-300, 5e6, 5e6 + 1e-9])


@settings(deadline=None)
@given(hnp.arrays(np.float64, st.tuples(st.integers(1, 60), st.just(3)), elements=few_values))
def test_duplicates_equal_those_of_a_set(points):
    assert first_occurrences(points).tolist() == plain_first_occurrences(points)


@pytest.mark.parametrize("bits", [0, 1, 3])
def test_duplicates_are_right_when_hashes_collide(monkeypatch, bits):
    points = np.random.default_rng(0).integers(-2, 3, (400, 3)) * 0.5
    monkeypatch.setattr(
        cleaning, "_hash", lambda p: (np.arange(len(p)) * 0 + (p[:, 0] > 0) * bits).astype(np.uint64)
    )
    assert first_occurrences(points).tolist() == plain_first_occurrences(points)


def test_order_index_and_types():
    nan, inf = np.nan, np.inf
    points = np.array([[3, 0, 0], [nan, 0, 0], [1, 2, 0], [3, -0.0, 0], [0, 0, inf], [1, 2, 0], [-1, 4, 8]])
    cleaned = clean(points)
    assert cleaned.index.tolist() == [0, 2, 6]
    assert cleaned.index.dtype == np.int64
    assert cleaned.T_scan_local.dtype == np.float64
    assert cleaned.points.dtype == np.float32
    np.testing.assert_allclose(
        transform(cleaned.points, cleaned.T_scan_local), points[cleaned.index], atol=1e-6
    )


def test_tensors_are_accepted_and_unchanged():
    points = torch.randn(20, 3, dtype=torch.float64)
    before = points.clone()
    cleaned = clean(points)
    assert torch.equal(points, before)
    np.testing.assert_allclose(transform(cleaned.points, cleaned.T_scan_local), points.numpy(), atol=1e-6)


def test_points_at_a_distance_of_a_micrometre_are_not_duplicates():
    points = UTM + np.array([[0, 0, 0], [1e-6, 0, 0], [0, 0, 0]])
    assert len(clean(points).points) == 2


@pytest.mark.parametrize(
    "bad", [np.empty((0, 3)), np.full((5, 3), np.nan), np.zeros((4, 2)), [[-1e300] * 3, [1e300] * 3]]
)
def test_no_usable_points_is_an_error(bad):
    with pytest.raises(InputError):
        clean(bad)


def rigid(angle: float, axis: list[float], shift: list[float]) -> np.ndarray:
    a = np.array(axis) / np.linalg.norm(axis)
    cross = np.array([[0, -a[2], a[1]], [a[2], 0, -a[0]], [-a[1], a[0], 0]])
    T = np.eye(4)
    T[:3, :3] += np.sin(angle) * cross + (1 - np.cos(angle)) * cross @ cross
    T[:3, 3] = shift
    return T


def test_a_float32_alignment_is_accurate_in_survey_coordinates():
    rng = np.random.default_rng(1)
    local = rng.uniform(-20, 20, (2000, 3)).round(3)  # millimetres
    T_true = rigid(0.7, [0.2, -0.1, 1], [3, -2, 0.5])
    source = local + UTM
    target = local @ T_true[:3, :3].T + T_true[:3, 3] + UTM + [1000, -2000, 10]
    a, b = clean(source), clean(target)
    # Least squares between the cleaned clouds, rounded to float32.
    p, q = a.points.astype(np.float64), b.points.astype(np.float64)
    u, _, vt = np.linalg.svd((q - q.mean(0)).T @ (p - p.mean(0)))
    T_local = np.eye(4)
    T_local[:3, :3] = u @ np.diag([1, 1, np.linalg.det(u @ vt)]) @ vt
    T_local[:3, 3] = q.mean(0) - T_local[:3, :3] @ p.mean(0)
    T_float32 = torch.tensor(T_local, dtype=torch.float32)
    T_target_source = in_scan_frames(T_float32, a.T_scan_local, b.T_scan_local)
    assert T_target_source.dtype == np.float64
    mapped = source @ T_target_source[:3, :3].T + T_target_source[:3, 3]
    assert np.abs(mapped - target).max() < 2e-5
    with pytest.raises(InputError, match=r"\(3, 3\)"):
        in_scan_frames(np.eye(3), a.T_scan_local, b.T_scan_local)


def test_a_million_points_with_duplicates():
    rng = np.random.default_rng(2)
    points = rng.uniform(-50, 50, (1_000_000, 3))
    points[500_000:] = points[rng.permutation(500_000)]
    cleaned = clean(points)
    assert len(cleaned.points) == 500_000
    np.testing.assert_array_equal(cleaned.index, np.arange(500_000))
