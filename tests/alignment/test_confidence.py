"""Confidence: the effect of the evidence, other poses, and the fit of the model."""

import numpy as np
import pytest

from wsdesc.alignment.confidence import Alternative, Calibration, Evidence, confidence
from wsdesc.alignment.information import Degeneracy
from wsdesc.alignment.verify import PoseScore


def pose_score(**changes):
    shares = (0.5, 0.45, 0.5, 0.45, 0.95, 0.97, 0.93, 0.55, 0.4, 0.75)  # in the order of the fields
    return PoseScore(*shares, rmse_plane=0.01, rmse_point=0.02, misfit=0.004)._replace(**changes)


def evidence(a, inliers=150, matches=2000, alternatives=()):
    degeneracy = Degeneracy(None, 0.2, np.zeros((0, 6)), None)
    return Evidence.of(
        a, degeneracy, inliers=inliers, matches=matches, votes=100.0, alternatives=alternatives
    )


def test_good_and_bad_poses_have_high_and_low_confidence():
    bad = pose_score(
        overlap_source=0.15,
        overlap_target=0.1,
        weighted_overlap_source=0.1,
        weighted_overlap_target=0.1,
        aligned_normals=0.6,
        uncrossed=0.6,
        free_space=0.4,
        curvature_similarity=0.2,
        detail_similarity=0.1,
        tightness=0.35,
    )
    assert confidence(evidence(pose_score())) > 0.9
    assert confidence(evidence(bad, inliers=9)) < 0.1


@pytest.mark.parametrize("name", ["free_space", "detail_similarity"])
def test_contrary_evidence_lowers_the_confidence(name):
    before = confidence(evidence(pose_score()))
    assert confidence(evidence(pose_score(**{name: 0.1}))) < before


def test_swapping_the_scans_keeps_the_evidence():
    a = pose_score(overlap_source=0.2, overlap_target=0.6)
    b = pose_score(
        overlap_source=0.6, overlap_target=0.2, weighted_overlap_source=0.45, weighted_overlap_target=0.5
    )
    assert evidence(a) == evidence(b)


def test_an_equal_alternative_makes_a_pose_ambiguous():
    alone, contested = (
        evidence(pose_score()),
        evidence(pose_score(), alternatives=[Alternative(pose_score(), 90.0, 0.1)]),
    )
    assert alone.alternative_score == 0
    assert contested.alternative_score == pytest.approx(1)
    assert contested.alternative_votes == pytest.approx(0.9)
    assert contested.ambiguous
    assert confidence(contested) <= 0.5 < confidence(alone)


def test_only_details_count_in_repetitive_structure():
    """Evidence that both poses share does not distinguish them."""

    def beside(share, alone, **changes):
        other = pose_score(detail_similarity=0.4 * share)
        return confidence(evidence(pose_score(**changes), alternatives=[Alternative(other, 50.0, alone)]))

    assert beside(0.5, alone=0.1) > 0.9
    assert beside(0.5, alone=0.99) < beside(0.3, alone=0.99)
    assert beside(0.3, alone=0.99, detail_similarity=0.3) < beside(0.3, alone=0.99)
    assert beside(1.0, alone=0.99) <= 0.5


def test_the_smaller_misfit_is_likelier_in_repetitive_structure():
    """Equal bays differ by millimetres, so that a wrong pose has a larger misfit."""

    def beside(misfit, alone=0.99):
        other = pose_score(detail_similarity=0.2, misfit=misfit)
        return confidence(evidence(pose_score(), alternatives=[Alternative(other, 50.0, alone)]))

    assert beside(0.002) < beside(0.004) < beside(0.016)
    assert beside(0.002, alone=0.1) == beside(0.016, alone=0.1), "an implausible alternative does not matter"
    assert 0 <= beside(np.inf) <= 1


def test_evidence_without_overlap_is_finite():
    nothing = PoseScore(*[0.0] * 10, np.inf, np.inf, np.inf)
    degeneracy = Degeneracy("empty", 0.0, np.eye(6), "empty")
    e = Evidence.of(nothing, degeneracy, inliers=0, matches=0, votes=0.0)
    assert np.isfinite(e.features()).all()
    assert 0 <= confidence(e) < 0.5


def test_fit_recovers_the_probabilities_of_a_model(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(20_000, 3))
    p = 1 / (1 + np.exp(-(2 * x[:, 0] - x[:, 1])))
    fitted = Calibration.fit(x, rng.random(len(x)) < p)
    assert np.abs(fitted.probability(x) - p).mean() < 0.02
    fitted.save(tmp_path / "c.json")
    back = Calibration.load(tmp_path / "c.json")
    np.testing.assert_allclose(back.probability(x), fitted.probability(x), atol=1e-4)
    assert back.poses == 20_000
