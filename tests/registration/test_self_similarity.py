"""Self-motions of scans: found in repetitive structure, and combined with poses of a pair."""

from __future__ import annotations

import numpy as np
import pytest

import wsdesc
from wsdesc.alignment.surface import make_surface
from wsdesc.core.geometry import inverse, transform
from wsdesc.datasets.synthetic import RoomPair
from wsdesc.registration.candidates import Candidate, combine_with_motions
from wsdesc.registration.self_similarity import find_self_motions


def half_turn(shift: float) -> np.ndarray:
    T = np.diag([-1.0, -1.0, 1.0, 1.0])
    T[0, 3] = shift
    return T


def self_motions(points: np.ndarray) -> list[Candidate]:
    description = wsdesc.describe(points, keypoints=300, resolution=0.025, viewpoint="none", device="cpu")
    motions = find_self_motions(description, make_surface(description.points))
    local = description.T_scan_local
    for motion in motions:  # in the coordinates of the points
        T = motion.refined.T_target_source
        T[:] = local @ T @ inverse(local)
    return motions


@pytest.mark.slow
def test_a_scan_of_two_equal_parts_fits_onto_itself(room: RoomPair) -> None:
    half = np.asarray(room.source)
    T = half_turn(2 * half[:, 0].max() + 1.0)
    best = self_motions(np.concatenate([half, transform(half, T)]))[0]
    np.testing.assert_allclose(best.refined.T_target_source, T, atol=0.05)
    assert best.evidence.overlap_min > 0.9


@pytest.mark.slow
def test_a_plain_room_does_not(room: RoomPair) -> None:
    for motion in self_motions(np.asarray(room.source)):
        assert motion.evidence.detail_similarity < 0.3


def test_poses_are_combined_with_motions_of_both_scans_and_their_inverses() -> None:
    class Motion:
        def __init__(self, T: np.ndarray) -> None:
            self.refined = type("Refined", (), {"T_target_source": T})

    T, of_source, of_target = half_turn(0.3), half_turn(1.0), half_turn(2.0)
    of_source[2, 3] = 0.5
    combined = combine_with_motions([T], [Motion(of_source)], [Motion(of_target)])
    expected = [T @ of_source, T @ inverse(of_source), of_target @ T, inverse(of_target) @ T]
    for hypothesis, pose in zip(combined, expected, strict=True):
        np.testing.assert_allclose(hypothesis.T_target_source, pose, atol=1e-12)
