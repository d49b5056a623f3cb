"""Gaps between patches: noise of single points averages out, displaced surfaces do not."""

import numpy as np
import pytest
import torch

from wsdesc.alignment.patch_gaps import measure_large_gaps, measure_patch_gap
from wsdesc.alignment.surface import CudaSurface, make_surface
from wsdesc.core.geometry import inverse, make_pose, transform

RESOLUTION = 0.025
NOISE = 0.004


def corner(rng, moved=0.0):
    """Points of a floor and two walls, of which one is `moved`."""
    u, v = rng.uniform(0, 2, (2, 3, 9000))
    zero = rng.normal(0, NOISE, (3, 9000))
    floor, wall = np.stack([u[0], v[0], zero[0]], 1), np.stack([zero[1] + moved, u[1], v[1]], 1)
    return np.concatenate([floor, wall, np.stack([u[2], zero[2] - moved, v[2]], 1)]) + 0.07


def gap_of(moved, make=make_surface, T=None):
    T = np.eye(4) if T is None else T
    rng = np.random.default_rng(1)
    source, target = corner(rng), corner(rng, moved)
    first, second = make(torch.from_numpy(transform(source, inverse(T)))), make(torch.from_numpy(target))
    return measure_patch_gap(first, second, T, resolution=RESOLUTION)


def turned():
    return make_pose(np.array([[0.6, -0.8, 0], [0.8, 0.6, 0], [0, 0, 1]]), (0.3, -2.0, 0.7))


def test_small_displacement_shows_through_larger_noise():
    same, moved = gap_of(0.0), gap_of(0.006)
    assert same.distance < 0.4 * NOISE
    assert moved.distance > 1.5 * same.distance


def test_significance_tells_noise_from_displacement():
    same, moved = gap_of(0.0), gap_of(0.006)
    assert same.significance < 1.5
    assert moved.significance > 1.5 * same.significance


def test_gap_does_not_depend_on_the_frame_and_the_order():
    assert tuple(gap_of(0.006, T=turned())) == pytest.approx(tuple(gap_of(0.006)), rel=0.15)
    rng = np.random.default_rng(1)
    a, b = (make_surface(torch.from_numpy(corner(rng, m))) for m in (0.0, 0.006))
    forth, back = (measure_patch_gap(x, y, np.eye(4), resolution=RESOLUTION) for x, y in ((a, b), (b, a)))
    assert forth == back


def test_device_code_agrees_with_the_cpu():
    """The GPU code runs on any device of torch."""
    on_device = gap_of(0.006, CudaSurface.of, turned())
    assert tuple(on_device) == pytest.approx(tuple(gap_of(0.006, T=turned())), rel=0.05)


def test_scans_that_hardly_touch_have_no_gap():
    T = np.eye(4)
    T[0, 3] = 50.0
    rng = np.random.default_rng(1)
    a, b = (make_surface(torch.from_numpy(corner(rng))) for _ in range(2))
    assert measure_patch_gap(a, b, T, resolution=RESOLUTION) is None


def test_large_gaps_show_one_displaced_wall_of_many_surfaces():
    rng = np.random.default_rng(1)
    room = [corner(rng) + offset for offset in ((0, 0, 0), (5, 0, 0), (0, 5, 0))]
    same, moved = corner(rng), corner(rng, 0.006)
    source = make_surface(torch.from_numpy(np.concatenate(room)))
    gaps = [
        measure_large_gaps(
            source, make_surface(torch.from_numpy(np.concatenate([part, *room[1:]]))), np.eye(4)
        )
        for part in (same, moved)
    ]
    assert gaps[1] > 1.5 * gaps[0]
