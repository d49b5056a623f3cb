"""Jobs and results: hashable, picklable, and unchanged by the journal."""

import json
import pickle

import numpy as np
import pytest

from wsdesc.alignment.information import Information
from wsdesc.reconstruction.jobs import (
    CandidatePose,
    DescribedScan,
    DescribeJob,
    DescribeSettings,
    FailedScan,
    HashedScan,
    PairRegistration,
    ScanSurvey,
    decode,
    encode,
)

SETTINGS = DescribeSettings("indoor-fast", "hash", 0.025, 400, 2000, "cpu", 0)


def through_json(result):
    return decode(json.loads(json.dumps(encode(result), allow_nan=False)))


@pytest.mark.parametrize(
    "result",
    [
        FailedScan("a.ply: no points"),
        ScanSurvey(0.1 + 0.2, 1 / 3),
        DescribedScan(((0.6, -0.8, 0.0, 0.1), (0.8, 0.6, 0.0, 1 / 3), (0.0, 0.0, 1.0, 1e6)), 2 / 3),
    ],
)
def test_scan_results_survive_json(result):
    assert through_json(result) == result


@pytest.mark.parametrize(("rmse", "gap"), [(1 / 7, 1e-3 / 3), (None, None)])
def test_candidates_keep_their_bits_in_json(rmse, gap):
    rng = np.random.default_rng(0)
    information = Information(rng.normal(size=(6, 6)), rng.normal(size=3), 1 / 3, 0.1, 77)
    candidate = CandidatePose(rng.normal(size=(4, 4)), 1 / 3, True, 0.7, rmse, information, 5, 3, gap)
    (back,) = through_json(PairRegistration((candidate,))).candidates
    np.testing.assert_array_equal(back.T_target_source, candidate.T_target_source)
    for a, b in zip(back.information, information, strict=True):
        np.testing.assert_array_equal(a, b)
    assert (back.confidence, back.ambiguous, back.overlap, back.rmse) == (1 / 3, True, 0.7, rmse)
    assert (back.visible, back.violating, back.patch_gap) == (5, 3, gap)


def test_pair_without_candidates():
    assert through_json(PairRegistration(())).candidates == ()


def test_jobs_are_small_and_hashable():
    job = DescribeJob(HashedScan("/scans/a.ply", "hash"), SETTINGS, "/cache/a.npz")
    assert pickle.loads(pickle.dumps(job)) == job
    assert len({job, pickle.loads(pickle.dumps(job))}) == 1


def test_identity_does_not_depend_on_the_number_of_selected_keypoints():
    from dataclasses import replace

    assert replace(SETTINGS, max_keypoints=9).identity() == SETTINGS.identity()
    assert replace(SETTINGS, keypoints=9).identity() != SETTINGS.identity()
    assert replace(SETTINGS, device="auto").identity()["device"] in ("cpu", "cuda")
