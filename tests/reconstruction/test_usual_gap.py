"""Confidences of candidates, updated by the gaps between patches that are usual for their scans."""

import numpy as np
import pytest

from wsdesc.alignment.information import Information
from wsdesc.reconstruction.jobs import CandidatePose
from wsdesc.reconstruction.pair_selection import RegisteredPair
from wsdesc.reconstruction.usual_violation import update_confidences

INFORMATION = Information(0.3 * np.eye(6), np.zeros(3), 1.0, 0.5, 2000)
RIGHT = {(0, 1): [(0.95, 0.001)], (1, 2): [(0.95, 0.0012)], (2, 3): [(0.9, 0.0011)]}


def updated(pairs):
    """Return the confidences of all candidates of pairs, given with their gaps in model metres."""
    registered = {
        ends: RegisteredPair.of(
            *ends,
            tuple(
                CandidatePose(np.eye(4), confidence, False, 0.5, 0.01, INFORMATION, patch_gap=gap)
                for confidence, gap in candidates
            ),
            2000,
        )
        for ends, candidates in pairs.items()
    }
    pairs_after = update_confidences(registered)
    return {ends: [edge.confidence for edge in pairs_after[ends].edges] for ends in pairs}


def test_pose_that_fits_more_loosely_than_others_of_its_scans_loses_confidence():
    confidences = updated({**RIGHT, (0, 3): [(0.8, 0.006), (0.15, 0.0012)]})
    assert confidences[0, 3][0] < 0.4 < confidences[0, 3][1]
    for ends, candidates in RIGHT.items():
        assert confidences[ends] == pytest.approx([confidence for confidence, _ in candidates])


@pytest.mark.parametrize(
    "candidates",
    [
        [(0.8, 0.0025)],  # bent scans
        [(0.8, None)],  # too little overlap
    ],
)
def test_usual_and_unknown_gaps_change_nothing(candidates):
    assert updated({**RIGHT, (0, 3): candidates})[0, 3] == pytest.approx([0.8])


def test_scans_without_another_probable_pose_are_not_compared():
    assert updated({**RIGHT, (0, 4): [(0.4, 0.02)]})[0, 4] == pytest.approx([0.4])


def test_gaps_of_scans_without_viewpoint_divide_no_group():
    """They may be fused, and bent: their edges carry no gap."""
    candidate = CandidatePose(np.eye(4), 0.9, False, 0.5, 0.01, INFORMATION, patch_gap=0.01)
    assert RegisteredPair.of(0, 1, (candidate,), 2000).edges[0].patch_gap is None
