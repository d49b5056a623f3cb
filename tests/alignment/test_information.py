"""Information matrices, and names of the motions that a geometry does not determine."""

from __future__ import annotations

import numpy as np
import pytest

from poses import random_pose
from shapes import RESOLUTION, scan
from wsdesc.alignment.information import Degeneracy, compute_information, find_degeneracy
from wsdesc.alignment.surface import CpuSurface
from wsdesc.core.geometry import inverse, transform

DISTANCE = 2 * RESOLUTION


def degeneracy_of(name: str, noise: float, seed: int) -> Degeneracy:
    """Find the degeneracy of two scans of a shape at their true pose."""
    T = random_pose(seed)
    source = transform(scan(name, 2 * seed, noise), inverse(T))
    target = CpuSurface.of(scan(name, 2 * seed + 1, noise))
    (information,) = compute_information(CpuSurface.of(source), target, T[None], DISTANCE)
    return find_degeneracy(information, DISTANCE)


@pytest.mark.parametrize("noise", [0, 0.5])
@pytest.mark.parametrize(
    ("name", "kind", "twists"),
    [
        ("plane", "plane", 3),
        ("parallel planes", "parallel planes", 3),
        ("two planes", "corridor", 1),
        ("corridor", "corridor", 1),
        ("cylinder", "cylinder", 2),
        ("half a cylinder", "cylinder", 2),
        ("sphere", "sphere", 3),
        ("half a sphere", "sphere", 3),
        ("cone", "revolution", 1),
        ("corner", None, 0),
        ("room", None, 0),
    ],
)
def test_degenerate_shapes_are_named(name: str, kind: str | None, twists: int, noise: float) -> None:
    for seed in (1, 2) if noise and kind else (3,):
        result = degeneracy_of(name, noise, seed)
        assert result.kind == kind
        assert result.twists.shape == (twists, 6)
        assert (result.warning is None) == (kind is None)
        assert 0 <= result.conditioning <= 1
        assert result.conditioning > 0.05 if kind is None else result.conditioning < 0.01


def test_undetermined_twists_are_those_of_the_shape() -> None:
    result = degeneracy_of("corridor", 0.25, 3)
    np.testing.assert_allclose(np.abs(result.twists[0]), (1, 0, 0, 0, 0, 0), atol=0.05)  # target's frame
    result = degeneracy_of("plane", 0.25, 3)
    np.testing.assert_allclose(result.twists[:, [2, 3, 4]], 0, atol=0.05)


def test_only_the_overlap_counts() -> None:
    """Two scans of a room of which only the floor overlaps."""
    source, target = scan("room", 0), scan("room", 1)
    source = source[(source[:, 2] < 0.1) | (source[:, 1] > 0.9)]
    x, y, z = target.T
    target = target[(z < 0.1) & (x > 0.1) & (x < 0.85) & (y < 0.1) | (z > 1.5)]
    target[:, 0] -= 3 * (target[:, 2] > 1)  # move its walls away
    surfaces = (CpuSurface.of(source), CpuSurface.of(target))
    (information,) = compute_information(*surfaces, np.eye(4)[None], DISTANCE)
    assert find_degeneracy(information, DISTANCE).kind == "plane"
