"""Confidence of poses of a scan in a map: what raises and lowers it."""

import numpy as np
import pytest

from wsdesc.alignment.evidence import Evidence
from wsdesc.mapping.evidence import FEATURES, MapEvidence, confidences, features
from wsdesc.registration.result import SUCCESS

PAIR = Evidence(
    overlap_min=0.6,
    overlap_max=0.99,
    weighted_overlap=0.6,
    aligned_normals=0.9,
    uncrossed=0.99,
    not_hovering=0.95,
    curvature_similarity=0.5,
    detail_similarity=0.5,
    tightness=0.85,
    misfit=0.001,
    conditioning=0.1,
    inliers=60,
    matches=600,
    votes=50.0,
    score=0.1,
    in_view=2000,
    visible=1500,
    violation=0.0,
    dense_violation=0.001,
)
RIGHT = MapEvidence(PAIR, explained=0.99, large_gaps=2.0)
OTHER = RIGHT._replace(large_gaps=8.0, explained=0.95, pair=PAIR._replace(tightness=0.8))  # a similar place
BLIND = PAIR._replace(violation=None, dense_violation=None)


def test_a_scan_that_the_map_explains_is_located():
    assert confidences([RIGHT])[0] >= SUCCESS
    assert confidences([RIGHT._replace(pair=BLIND)])[0] >= SUCCESS


@pytest.mark.parametrize(
    "worse",
    [
        RIGHT._replace(explained=0.3, pair=PAIR._replace(overlap_min=0.2, weighted_overlap=0.2, inliers=20)),
        RIGHT._replace(large_gaps=20.0),
        RIGHT._replace(pair=PAIR._replace(violation=0.15, dense_violation=0.2)),
    ],
    ids=["unexplained", "displaced", "free space"],
)
def test_a_scan_that_the_map_contradicts_is_not_located(worse):
    assert confidences([worse, OTHER])[0] < SUCCESS


def test_equal_places_share_the_probability():
    first, second = confidences([RIGHT, RIGHT])
    assert first == second < 0.5


def test_small_differences_choose_among_similar_places():
    first, second = confidences([RIGHT, OTHER])
    assert first >= SUCCESS
    assert second < 0.05


def test_features_of_unknown_figures_are_not_a_number():
    blind = RIGHT._replace(large_gaps=None, pair=BLIND)
    x = features([blind, blind])
    assert x.shape == (2, len(FEATURES))
    assert np.isnan(x).sum(axis=1).tolist() == [1, 1]
    assert features([]).shape == (0, len(FEATURES))
