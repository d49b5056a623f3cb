"""Confidences of candidates, updated by the free space that is usual at a place."""

import numpy as np
import pytest

from wsdesc.alignment.information import Information
from wsdesc.reconstruction.jobs import CandidatePose
from wsdesc.reconstruction.pair_selection import RegisteredPair
from wsdesc.reconstruction.usual_violation import update_confidences

INFORMATION = Information(0.3 * np.eye(6), np.zeros(3), 1.0, 0.5, 2000)


def registered(*pairs):
    """Make pairs of candidates with a confidence and a number of violating points of 10 000."""
    made = {}
    for k, candidates in enumerate(pairs):
        poses = tuple(
            CandidatePose(np.eye(4), confidence, False, 0.5, 0.01, INFORMATION, 10_000, violating)
            for confidence, violating in candidates
        )
        made[k, k + 1] = RegisteredPair.of(k, k + 1, poses, 2000)
    return made


def confidences(pairs):
    return [[edge.confidence for edge in pair.edges] for pair in update_confidences(pairs).values()]


@pytest.mark.parametrize("usual", [0, 100])
def test_violations_count_relative_to_the_usual_ones(usual):
    quiet = [[(0.9, usual)]] * 4
    updated = confidences(registered(*quiet, [(0.6, 2 * usual + 50), (0.3, usual)]))
    np.testing.assert_allclose(updated[:4], 0.9)
    assert updated[4][0] < 0.2 < 0.6 < updated[4][1]


def test_without_free_space_nothing_changes():
    candidate = CandidatePose(np.eye(4), 0.7, False, 0.5, 0.01, INFORMATION)
    pairs = {(0, 1): RegisteredPair.of(0, 1, (candidate,), 2000), (1, 2): RegisteredPair.of(1, 2, (), 2000)}
    np.testing.assert_allclose(confidences(pairs)[0], [0.7])


def test_update_is_made_once_and_tells_which_candidates_are_ambiguous():
    pairs = registered([(0.5, 0), (0.4, 0)], [(0.5, 0), (0.4, 2000)])
    once = update_confidences(pairs)
    twice = update_confidences(once)
    assert [e.confidence for p in once.values() for e in p.edges] == [
        e.confidence for p in twice.values() for e in p.edges
    ]
    assert [edge.ambiguous for edge in once[0, 1].edges] == [True, True]
    assert not once[1, 2].edges[0].ambiguous
