"""Evidence of poses: its features, alone and among the other poses of a pair."""

import math

import numpy as np
import pytest

from wsdesc.alignment.evidence import FEATURES, Evidence, features
from wsdesc.alignment.free_space import FreeSpace
from wsdesc.alignment.free_space.counts import ViewCounts
from wsdesc.alignment.information import Degeneracy
from wsdesc.alignment.patch_gaps import PatchGap
from wsdesc.alignment.verify import PoseScore


def pose_score(**changes):
    shares = (0.5, 0.45, 0.5, 0.45, 0.95, 0.97, 0.93, 0.55, 0.4, 0.75)  # in the order of the fields
    return PoseScore(*shares, rmse_plane=0.01, rmse_point=0.02, misfit=0.004)._replace(**changes)


def evidence(
    inliers=150,
    votes=100.0,
    free_space: FreeSpace | None = None,
    dense_free_space: FreeSpace | None = None,
    patch_gap: PatchGap | None = None,
    **changes,
):
    degeneracy = Degeneracy(None, 0.2, np.zeros((0, 6)), None)
    seen = {"free_space": free_space, "dense_free_space": dense_free_space, "patch_gap": patch_gap}
    score = pose_score(**changes)
    return Evidence.of(score, degeneracy, inliers=inliers, matches=2000, votes=votes, **seen)


def feature(name, *candidates):
    return features(candidates)[0, list(FEATURES).index(name)]


def test_swapping_the_scans_keeps_the_evidence():
    a = evidence(overlap_source=0.2, overlap_target=0.6)
    b = evidence(
        overlap_source=0.6, overlap_target=0.2, weighted_overlap_source=0.45, weighted_overlap_target=0.5
    )
    assert a == b


def test_a_single_pose_has_no_relative_features():
    relative = [feature(name, evidence()) for name in FEATURES if name.startswith("relative")]
    assert len(relative) == 9
    assert np.isnan(relative).all()


def test_poses_are_compared_with_the_best_other_pose():
    a, b, c = (
        evidence(),
        evidence(votes=50.0, detail_similarity=0.32),
        evidence(votes=5.0, detail_similarity=0.1),
    )
    assert feature("relative_votes", a, b, c) == pytest.approx(math.log10(2))
    assert feature("relative_votes", b, a, c) == pytest.approx(-math.log10(2))
    assert feature("relative_score", a, b, c) == pytest.approx(3 * math.log10(0.4 / 0.32))


def test_violations_of_free_space_are_compared():
    def seen(violating):
        return evidence(
            free_space=FreeSpace(
                ViewCounts(in_view=20_000, at_surface=9_970 - violating, violating=violating)
            )
        )

    assert feature("relative_violation", seen(500), seen(50)) == pytest.approx(1.0)
    assert feature("relative_violation", seen(0), seen(5)) == 0.0  # both are noise
    assert math.isnan(feature("relative_violation", seen(500), evidence()))


def test_of_all_points_smaller_shares_count():
    def seen(violating):
        counts = ViewCounts(in_view=20_000, at_surface=9_970 - violating, violating=violating)
        return evidence(dense_free_space=FreeSpace(counts))

    assert feature("dense_violation", seen(10)) == pytest.approx(-3)
    assert feature("dense_violation", seen(0)) < -4
    assert feature("relative_dense_violation", seen(20), seen(2)) == pytest.approx(1.0)
    assert math.isnan(feature("dense_violation", evidence()))


def test_violations_of_poses_with_much_overlap_count_more():
    def seen(overlap, violating):
        counts = ViewCounts(in_view=20_000, at_surface=9_970 - violating, violating=violating)
        shares = {"overlap_source": overlap, "overlap_target": overlap}
        return feature("overlapping_violation", evidence(dense_free_space=FreeSpace(counts), **shares))

    little, medium, much = (seen(overlap, 50) for overlap in (0.2, 0.45, 0.8))
    assert little == 0
    assert 0 < medium < much
    assert seen(0.8, 0) == 0
    assert math.isnan(feature("overlapping_violation", evidence()))


def test_patch_gaps_are_compared_where_noise_explains_the_least():
    def gap(significance):
        return evidence(patch_gap=PatchGap(0.001, significance))

    assert feature("relative_patch_gap", gap(4.0), gap(1.0)) == pytest.approx(math.log10(4))
    assert feature("relative_patch_gap", gap(1.0), gap(4.0)) == pytest.approx(-math.log10(4))
    assert math.isnan(feature("relative_patch_gap", gap(9.0), gap(3.0)))  # bent scans
    assert math.isnan(feature("relative_patch_gap", gap(1.0), evidence()))


def test_only_comparable_poses_are_compared_by_their_misfit():
    """A pose with a much lower score may rest on a few flat points that fit by chance."""
    rival, poor = evidence(misfit=0.002), evidence(misfit=0.002, detail_similarity=0.05)
    assert feature("relative_misfit", evidence(), rival) == pytest.approx(math.log10(2))
    assert math.isnan(feature("relative_misfit", evidence(), poor))


def test_features_are_bounded_without_any_overlap():
    nothing = PoseScore(*[0.0] * 10, np.inf, np.inf, np.inf)
    degeneracy = Degeneracy("empty", 0.0, np.eye(6), "empty")
    empty = Evidence.of(nothing, degeneracy, inliers=0, matches=0, votes=0.0)
    assert not np.isinf(features([empty, empty])).any()
    assert features([]).shape == (0, len(FEATURES))
