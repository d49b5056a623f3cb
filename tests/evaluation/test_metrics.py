"""The metrics agree with closed forms and explicit sums."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from poses import pose_of
from seeded import random
from wsdesc.core.errors import InputError
from wsdesc.evaluation import (
    feature_match_recall,
    feature_match_recall_curve,
    information_matrix,
    inlier_ratio,
    pose_rmse,
    r1_counts,
    r1_error,
    r1_success,
    r2_success,
    rotation_error_deg,
    translation_error,
)

EYE = torch.eye(4, dtype=torch.float64)


def pose(rotation: object = (0, 0, 0), shift: object = (0, 0, 0)) -> Tensor:
    """A rotation vector, in radians, and a translation as (4, 4)."""
    return torch.from_numpy(pose_of(rotation, shift))


def transformed(T: Tensor, points: Tensor) -> Tensor:
    return points @ T[:3, :3].T + T[:3, 3]


def identical(count: int) -> Tensor:
    return torch.arange(count)[:, None].expand(count, 2)


class TestInlierRatio:
    def test_counts_matches_under_the_truth(self) -> None:
        T = pose((0.3, -1, 2), (5, 0, -2))
        source = random(10, 3)
        target = transformed(T, source)
        target[:4] += torch.tensor([0.0, 0.11, 0.0])
        assert inlier_ratio(source, target, identical(10), T) == 0.6
        assert inlier_ratio(source, target, identical(10), T.numpy(), tau1=0.2) == 1
        assert inlier_ratio(source, target, identical(10)[:4], T) == 0

    def test_direction_is_source_to_target(self) -> None:
        T = pose(shift=(1, 0, 0))
        source = random(5, 3)
        assert inlier_ratio(source, transformed(T, source), identical(5), T) == 1
        assert inlier_ratio(source, transformed(T, source), identical(5), torch.linalg.inv(T)) == 0

    def test_matches_name_rows(self) -> None:
        source = random(6, 3)
        order = torch.tensor([3, 1, 5])
        matches = torch.stack([order, torch.arange(3)], dim=1)
        assert inlier_ratio(source, source[order], matches, EYE) == 1

    def test_threshold_itself_is_excluded(self) -> None:
        source = torch.zeros(1, 3, dtype=torch.float64)
        assert inlier_ratio(source, source + torch.tensor([0.5, 0, 0]), identical(1), EYE, tau1=0.5) == 0

    def test_zero_without_a_match(self) -> None:
        none = torch.empty(0, 2, dtype=torch.int64)
        assert inlier_ratio(random(3, 3), random(3, 3), none, EYE) == 0
        assert inlier_ratio(torch.empty(0, 3), torch.empty(0, 3), none, EYE) == 0

    def test_float32_at_geographic_coordinates(self) -> None:
        """The truth is applied in float64: in float32 the product alone would be 0.1 m off."""
        source = random(50, 3).float() + torch.tensor([4e5, 5e6, 0])
        T = pose((0, 0, 1))
        assert inlier_ratio(source, transformed(T, source.double()), identical(50), T, tau1=1e-6) == 1

    def test_invalid_arguments_are_refused(self) -> None:
        p = random(3, 3)
        with pytest.raises(InputError, match=r"\(M, 2\)"):
            inlier_ratio(p, p, torch.zeros(2, 3, dtype=torch.int64), EYE)
        with pytest.raises(InputError, match=r"\(\.\.\., 4, 4\)"):
            inlier_ratio(p, p, identical(3), torch.eye(3))
        with pytest.raises(InputError, match="NaN"):
            inlier_ratio(p, p, identical(3), EYE * math.nan)


class TestFeatureMatchRecall:
    def test_share_above_the_threshold(self) -> None:
        assert feature_match_recall([0.04, 0.05, 0.06, 0.5], 0.05) == 0.5
        assert feature_match_recall(torch.tensor([0.3, 0.1]), 0.2) == 0.5

    def test_curve(self) -> None:
        ratios = random(40).abs() * 0.2
        curve = feature_match_recall_curve(ratios)
        assert curve.tau2[0] == 0
        assert curve.tau2[-1] == pytest.approx(0.3)
        assert (curve.recall.diff() <= 0).all()
        assert curve.recall[5].item() == feature_match_recall(ratios, curve.tau2[5].item())

    def test_refuses_no_pairs(self) -> None:
        with pytest.raises(InputError, match="at least one pair"):
            feature_match_recall([], 0.05)


class TestPoseErrors:
    @pytest.mark.parametrize("degrees", [0, 1e-6, 0.1, 45, 179.9, 180])
    def test_rotation(self, degrees: float) -> None:
        truth = pose((1, -0.4, 2), (1, 2, 3))
        axis = np.array([2, -1, 2]) / 3
        T = truth @ pose(math.radians(degrees) * axis, (9, 9, 9))
        assert rotation_error_deg(T, truth).item() == pytest.approx(degrees, abs=2e-6)

    def test_translation(self) -> None:
        assert translation_error(pose((1, 0, 0), (1, 2, 3)), pose((0, 1, 0), (1, 5, 7))).item() == 5

    def test_batches_equal_single_poses(self) -> None:
        truths = torch.stack([pose(random(3, seed=k), random(3, seed=k + 9)) for k in range(4)])
        T = pose((0.2, 0, 0), (1, 0, 0))
        for error in (rotation_error_deg, translation_error):
            together = error(T, truths)
            assert together.shape == (4,)
            torch.testing.assert_close(together, torch.stack([error(T, truth) for truth in truths]))

    def test_rmse(self) -> None:
        points = random(100, 3)
        T, truth = pose((0.1, 0.2, 0), (1, 0, 0)), pose((0, 0.2, 0.4))
        gap = transformed(T, points) - transformed(truth, points)
        assert pose_rmse(T, truth, points).item() == pytest.approx(gap.square().sum(1).mean().sqrt().item())
        assert pose_rmse(pose(shift=(0, 3, 4)), EYE, points).item() == pytest.approx(5)
        assert pose_rmse(torch.stack([T, truth]), truth, points)[1] == 0

    def test_refuses_a_reflection(self) -> None:
        with pytest.raises(InputError, match="rigid"):
            rotation_error_deg(torch.diag(torch.tensor([1.0, 1, -1, 1])), EYE)


class TestR1:
    points = random(200, 3) + torch.tensor([0.5, -0.2, 2.0])

    def test_information_is_the_sum_of_its_definition(self) -> None:
        total = np.zeros((6, 6))
        for x, y, z in self.points.numpy():
            cross = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
            G = np.hstack([np.eye(3), -cross])
            total += G.T @ G
        np.testing.assert_allclose(information_matrix(self.points), total, rtol=1e-12, atol=1e-9)

    def test_information_gives_the_displacement_of_a_small_pose(self) -> None:
        """The sign of −[p]×: with [p]× the mixed term would have the other sign, as the check shows."""
        rotation, shift = np.array([2e-5, -1e-5, 3e-5]), np.array([1e-5, 4e-5, -2e-5])
        displacement = transformed(pose(rotation, shift), self.points) - self.points
        Lambda = information_matrix(self.points)
        mean_square = displacement.square().sum(1).mean().item()
        for sign, agrees in ((1, True), (-1, False)):
            v = torch.from_numpy(np.hstack([shift, sign * rotation]))
            value = (v @ Lambda @ v / Lambda[0, 0]).item()
            assert (value == pytest.approx(mean_square, rel=1e-3)) is agrees

    @pytest.mark.parametrize("truth", [EYE, pose((1, 2, -0.5), (3, 0, 1))])
    def test_of_a_translation_is_its_square(self, truth: Tensor) -> None:
        T = truth.clone()
        T[:3, 3] += torch.tensor([0.1, -0.2, 0.2])
        error = r1_error(T, truth, information_matrix(self.points))
        assert error.item() == pytest.approx(0.09)

    @pytest.mark.parametrize("axis", [(1, 0, 0), (0, 1, 0), (0, 0, 1), (0.6, 0, -0.8)])
    def test_of_a_small_rotation_is_a_quarter_of_the_squared_displacement(
        self, axis: tuple[float, float, float]
    ) -> None:
        """For a quaternion's vector part is half the rotation vector."""
        T = pose(1e-4 * np.array(axis))
        error = r1_error(T, EYE, information_matrix(self.points)).item()
        assert error == pytest.approx(pose_rmse(T, EYE, self.points).item() ** 2 / 4, rel=1e-3)

    def test_mixed_term_has_the_sign_of_the_displacement(self) -> None:
        """A rotation about the points' own centre leaves it in place: translation undoes the lever."""
        centre = self.points.mean(0)
        rotation = np.array([0, 1e-4, 0])
        about_centre = pose(shift=centre) @ pose(rotation) @ pose(shift=-centre)
        doubled = about_centre.clone()
        doubled[:3, :3] = pose(2 * rotation)[:3, :3]  # so that the vector part is the rotation vector
        error = r1_error(doubled, EYE, information_matrix(self.points)).item()
        assert error == pytest.approx(pose_rmse(about_centre, EYE, self.points).item() ** 2, rel=1e-3)

    def test_is_the_published_product(self) -> None:
        """Written out, with a quaternion from the trace."""
        T, truth = pose((0.5, -0.3, 0.2), (0.1, 0.5, 0)), pose((0, 1, 0.3), (1, 0, -1))
        between = np.linalg.inv(truth.numpy()) @ T.numpy()
        R = between[:3, :3]
        w = math.sqrt(1 + np.trace(R)) / 2
        vector = np.array([R[2, 1] - R[1, 2], R[0, 2] - R[2, 0], R[1, 0] - R[0, 1]]) / (4 * w)
        xi = np.hstack([between[:3, 3], vector])
        Lambda = information_matrix(self.points).numpy()
        expected = xi @ Lambda @ xi / Lambda[0, 0]
        assert r1_error(T, truth, Lambda).item() == pytest.approx(expected)
        many = r1_error(torch.stack([T, truth]), truth, np.stack([Lambda, Lambda]))
        assert many.tolist() == pytest.approx([expected, 0], abs=1e-15)

    def test_success_at_a_fifth_of_the_unit(self) -> None:
        Lambda = information_matrix(self.points)
        assert r1_success(pose(shift=(0.199, 0, 0)), EYE, Lambda)
        assert not r1_success(pose(shift=(0.201, 0, 0)), EYE, Lambda)
        assert r1_success(pose(shift=(1.99, 0, 0)), EYE, Lambda, unit=10)
        assert not r1_success(pose(shift=(0.0199, 0, 0)), EYE, Lambda, unit=0.01)

    def test_consecutive_scans_are_not_counted(self) -> None:
        assert [r1_counts(0, j) for j in (1, 2, 3)] == [False, True, True]

    def test_refuses_other_matrices(self) -> None:
        for wrong in (torch.eye(4), torch.zeros(6, 6)):
            with pytest.raises(InputError, match="information"):
                r1_error(EYE, EYE, wrong)


def test_r2_needs_rotation_and_translation() -> None:
    rotation = math.radians(1) * np.array([0, 0, 1])
    T = torch.stack([pose(14 * rotation, (0.29, 0, 0)), pose(16 * rotation), pose(shift=(0.31, 0, 0))])
    assert r2_success(T, EYE).tolist() == [True, False, False]
    assert r2_success(T, EYE, unit=2).tolist() == [True, False, True]
