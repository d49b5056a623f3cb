"""Confidence: the effect of the evidence, other poses, and the shipped model."""

import numpy as np
import pytest

from alignment.test_evidence import evidence
from wsdesc.alignment.confidence import ConfidenceModel, confidences
from wsdesc.alignment.evidence import FEATURES, features

BAD = {
    "overlap_source": 0.15,
    "overlap_target": 0.1,
    "weighted_overlap_source": 0.1,
    "weighted_overlap_target": 0.1,
    "aligned_normals": 0.6,
    "uncrossed": 0.6,
    "not_hovering": 0.4,
    "curvature_similarity": 0.2,
    "detail_similarity": 0.1,
    "tightness": 0.35,
}


def test_good_and_bad_poses_have_high_and_low_confidence():
    assert confidences([evidence()])[0] > 0.9
    assert confidences([evidence(inliers=9, **BAD)])[0] < 0.1


@pytest.mark.parametrize("name", ["not_hovering", "detail_similarity"])
def test_contrary_evidence_lowers_the_confidence(name):
    assert confidences([evidence(**{name: 0.1})])[0] < confidences([evidence()])[0]


def test_of_two_equal_poses_none_is_a_success():
    a, b = confidences([evidence(), evidence()])
    assert a == b <= 0.5


def test_confidences_of_a_pair_sum_to_at_most_one():
    rng = np.random.default_rng(0)
    for count in range(6):
        poses = [evidence(detail_similarity=rng.random(), votes=rng.random()) for _ in range(count)]
        total = confidences(poses)
        assert total.shape == (count,)
        assert 0 <= total.sum() <= 1


def test_what_is_known_beforehand_raises_all_poses_alike():
    poses = [evidence(), evidence(detail_similarity=0.1)]
    alone, known = confidences(poses), confidences(poses, prior=2.0)
    assert (known > alone).all()
    assert known.sum() <= 1
    np.testing.assert_allclose(known[0] / known[1], alone[0] / alone[1])


def test_points_in_free_space_lower_the_confidence():
    clean, contradicted = (evidence()._replace(in_view=2000, violation=v) for v in (0.0, 0.05))
    assert confidences([contradicted])[0] < 0.9 < confidences([clean])[0]


def test_every_function_of_the_model_is_monotone():
    model = ConfidenceModel.load()
    assert (np.diff(model.knots) > 0).all()
    for sign, values in zip(FEATURES.values(), model.log_odds, strict=True):
        assert (sign * np.diff(values) >= 0).all()


def test_models_are_saved_and_loaded(tmp_path):
    model = ConfidenceModel.load()
    model.save(tmp_path / "model.json")
    again = ConfidenceModel.load(tmp_path / "model.json")
    x = features([evidence(), evidence(votes=30.0)])
    np.testing.assert_array_equal(again.probabilities(x), model.probabilities(x))
