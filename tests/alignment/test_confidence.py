"""The judge: probabilities that mean what they say, and evidence that moves them the right way."""

import numpy as np
import pytest

from wsdesc.alignment.confidence import Calibration, Evidence, Rival, confidence
from wsdesc.alignment.observability import Degeneracy
from wsdesc.alignment.verify import Agreement


def agreement(**changes):
    shares = (0.5, 0.45, 0.5, 0.45, 0.95, 0.97, 0.93, 0.55, 0.4, 0.75)  # in the order of the fields
    return Agreement(*shares, rmse_plane=0.01, rmse_point=0.02, misfit=0.004)._replace(**changes)


def evidence(a, inliers=150, matches=2000, rivals=()):
    free = Degeneracy(None, 0.2, np.zeros((0, 6)), None)
    return Evidence.of(a, free, inliers=inliers, matches=matches, score=100.0, rivals=rivals)


def test_a_good_pose_is_trusted_and_a_bad_one_is_not():
    bad = agreement(overlap_source=0.15, overlap_target=0.1, informative_source=0.1, informative_target=0.1,
                    normals=0.6, uncrossed=0.6, clear=0.4, relief=0.2,
                    details=0.1, tight=0.35)  # fmt: skip
    assert confidence(evidence(agreement())) > 0.9
    assert confidence(evidence(bad, inliers=9)) < 0.1


@pytest.mark.parametrize("name", ["clear", "details"])
def test_evidence_against_a_pose_lowers_the_confidence(name):
    before = confidence(evidence(agreement()))
    assert confidence(evidence(agreement(**{name: 0.1}))) < before


def test_swapping_the_scans_changes_nothing():
    a = agreement(overlap_source=0.2, overlap_target=0.6)
    b = agreement(overlap_source=0.6, overlap_target=0.2, informative_source=0.45, informative_target=0.5)
    assert evidence(a) == evidence(b)


def test_a_rival_is_seen():
    alone, rivalled = evidence(agreement()), evidence(agreement(), rivals=[Rival(agreement(), 90.0, 0.1)])
    assert alone.rival == 0
    assert rivalled.rival == pytest.approx(1)
    assert rivalled.rival_score == pytest.approx(0.9)
    assert rivalled.ambiguous
    assert confidence(rivalled) <= 0.5 < confidence(alone)


def test_where_places_repeat_only_details_count():
    """Another pose would be believed, too: what speaks for both speaks for none."""

    def beside(share, alone, **changes):
        rival = agreement(details=0.4 * share)
        return confidence(evidence(agreement(**changes), rivals=[Rival(rival, 50.0, alone)]))

    assert beside(0.5, alone=0.1) > 0.9
    assert beside(0.5, alone=0.99) < beside(0.3, alone=0.99)
    assert beside(0.3, alone=0.99, details=0.3) < beside(0.3, alone=0.99)
    assert beside(1.0, alone=0.99) <= 0.5


def test_where_places_repeat_the_pose_that_fits_finer_is_likelier():
    """Equal bays differ by millimetres, which only the right pose does not show."""

    def beside(misfit, alone=0.99):
        rival = agreement(details=0.2, misfit=misfit)
        return confidence(evidence(agreement(), rivals=[Rival(rival, 50.0, alone)]))

    assert beside(0.002) < beside(0.004) < beside(0.016)
    assert beside(0.002, alone=0.1) == beside(0.016, alone=0.1), "nobody would believe it"
    assert 0 <= beside(np.inf) <= 1


def test_nothing_known_is_finite():
    nothing = Agreement(*[0.0] * 10, np.inf, np.inf, np.inf)
    free = Degeneracy("empty", 0.0, np.eye(6), "empty")
    e = Evidence.of(nothing, free, inliers=0, matches=0, score=0.0)
    assert np.isfinite(e.features()).all()
    assert 0 <= confidence(e) < 0.5


def test_fit_gives_back_the_probabilities_of_a_known_model(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(20_000, 3))
    p = 1 / (1 + np.exp(-(2 * x[:, 0] - x[:, 1])))
    fitted = Calibration.fit(x, rng.random(len(x)) < p)
    assert np.abs(fitted.probability(x) - p).mean() < 0.02
    fitted.save(tmp_path / "c.json")
    back = Calibration.load(tmp_path / "c.json")
    np.testing.assert_allclose(back.probability(x), fitted.probability(x), atol=1e-4)
    assert back.poses == 20_000
