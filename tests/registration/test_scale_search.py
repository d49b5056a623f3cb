"""Parts of the search for the factor between two scans."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from wsdesc.alignment.scale import fit_similarity
from wsdesc.alignment.surface import CpuSurface, CudaSurface, Surface
from wsdesc.alignment.verify import verify
from wsdesc.registration.scale_search import STEP, STEPS, ScaleHypothesis, _distinct, rank

RESOLUTION = 0.025


def box_corner(seed: int) -> np.ndarray:
    """Sample three sides of a box and one parallel to the first, 1 500 points each."""
    rng = np.random.default_rng(seed)
    points = rng.uniform(size=(6000, 3)) * [1.0, 1.2, 1.5]
    for part, (axis, value) in enumerate([(0, 0.0), (1, 0.0), (2, 0.0), (0, 1.0)]):
        points[1500 * part : 1500 * (part + 1), axis] = value
    return points


@pytest.fixture(params=["cpu", "cuda code"])
def make(request):
    def surface(points: np.ndarray) -> Surface:
        on_cpu = request.param == "cpu"
        return CpuSurface.of(points) if on_cpu else CudaSurface.of(torch.from_numpy(points).float())

    return surface


def test_scaled_surface_is_the_surface_of_scaled_points(make):
    points, target = box_corner(0), make(box_corner(1))
    pose = np.eye(4)[None]
    expected = verify(make(points), target, pose, 2 * RESOLUTION)[0]
    scaled = make(points / 1.25).scaled(1.25)
    score = verify(scaled, target, pose, 2 * RESOLUTION)[0]
    assert score.overlap_source == pytest.approx(expected.overlap_source, abs=0.02)
    assert score.rmse_plane == pytest.approx(expected.rmse_plane, abs=1e-3)
    assert rank(score) == pytest.approx(rank(expected), rel=0.1)


def test_similarity_is_fitted_on_both_backends(make):
    fit = fit_similarity(make(box_corner(0) / 1.03), make(box_corner(1)), np.eye(4), RESOLUTION)
    assert fit is not None
    assert fit.factor == pytest.approx(1.03, rel=0.003)


def test_a_tiny_source_ranks_below_the_right_one(make):
    target = make(box_corner(1))
    pose = np.eye(4)[None]
    right, tiny = (
        verify(make(box_corner(0)).scaled(factor), target, pose, 2 * RESOLUTION)[0] for factor in (1.0, 0.1)
    )
    assert tiny.overlap_source > 0.5
    assert rank(tiny) < 0.3 * rank(right)


def test_factors_are_distinct_and_best_first():
    hypotheses = [ScaleHypothesis(1.0, 0.1), ScaleHypothesis(1.02, 0.3), ScaleHypothesis(1.5, 0.2)]
    assert [hypothesis.factor for hypothesis in _distinct(hypotheses)] == [1.02, 1.5]


def test_the_ladder_has_no_gaps():
    """Descriptors tolerate 15 %, and the extents of scans that overlap seldom differ by more than 2.8."""
    assert STEP**0.5 < 1.15
    assert STEP**STEPS > 2.8
