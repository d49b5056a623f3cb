"""Validation: figures of pairs with a known answer; the model is left unchanged."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch
from scipy.spatial.transform import Rotation
from torch import Tensor

from wsdesc import WSDesc
from wsdesc.cloud.sampling import random_sample
from wsdesc.core.errors import InputError
from wsdesc.core.geometry import make_pose
from wsdesc.datasets.synthetic import RoomPair
from wsdesc.evaluation import inlier_ratio
from wsdesc.learning.losses import RigidityLoss
from wsdesc.learning.validation import Validation, ValidationPair, validate
from wsdesc.matching import mutual_matches, nearest

KEYPOINTS = 48


@pytest.fixture
def model() -> WSDesc:
    torch.manual_seed(0)
    return WSDesc(width=0.125, resolution=8)


@pytest.fixture
def pairs(room: RoomPair) -> list[ValidationPair]:
    """A pair with a pose, its reverse, and a pair without a pose; two clouds in total."""
    p, q = torch.from_numpy(room.source[::4]), torch.from_numpy(room.target[::4])
    T = room.T_target_source
    return [(p, q, T), (q, p, np.linalg.inv(T)), (p, q, None)]


def rotated(points: Tensor) -> tuple[Tensor, np.ndarray]:
    T = make_pose(Rotation.from_rotvec([0.5, -1, 0.7]).as_matrix(), (1, -2, 0.5))
    return (points.double() @ torch.from_numpy(T[:3, :3]).T + torch.from_numpy(T[:3, 3])).float(), T


def test_rotated_keypoints_are_matched(model: WSDesc) -> None:
    """All points are keypoints, so each has its copy in the other cloud."""
    p = torch.rand(120, 3, generator=torch.Generator().manual_seed(0))
    q, T = rotated(p)
    report = validate(model, [(p, q, T)], keypoints=120)
    assert report.poses is not None
    assert report.poses.inlier_ratio > 0.98
    assert report.poses[1:] == (1, 1, 1)
    rigidity = report.rigidity
    assert min(rigidity.mutual, rigidity.returning, rigidity.consistent) > 0.98
    assert rigidity.well_posed == 1
    assert 0 <= rigidity.loss < 0.05


def test_figures_equal_those_of_the_single_steps(model: WSDesc, pairs: list[ValidationPair]) -> None:
    """The figures of the first pair, computed step by step."""
    report = validate(model, pairs[:1], KEYPOINTS, seed=3)
    generator = torch.Generator().manual_seed(3)
    keys, features = [], []
    with torch.inference_mode():
        for cloud in pairs[0][:2]:
            keys.append(cloud[random_sample(len(cloud), KEYPOINTS, generator)])
            features.append(model(cloud, keys[-1]))
        terms = RigidityLoss()(keys[0], features[0], keys[1], features[1])
    matches = mutual_matches(*features)
    assert report.rigidity[:3] == pytest.approx(
        [terms.loss.item(), terms.orthogonality.item(), terms.cycle.item()]
    )
    assert report.rigidity.mutual == len(matches) / KEYPOINTS
    to_q, to_p = nearest(*features)[0], nearest(*features[::-1])[0]
    returns = [
        (keys[0][to_p[to_q]] - keys[0]).norm(dim=1) <= 0.1,
        (keys[1][to_q[to_p]] - keys[1]).norm(dim=1) <= 0.1,
    ]
    assert report.rigidity.returning == pytest.approx(torch.cat(returns).double().mean().item())
    assert report.poses is not None
    assert report.poses.inlier_ratio == inlier_ratio(*keys, matches, pairs[0][2])


def test_each_cloud_is_described_once(
    model: WSDesc, pairs: list[ValidationPair], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: Counter[int] = Counter()
    forward = WSDesc.forward

    def counting(self: WSDesc, points: Tensor, *rest: object) -> Tensor:
        calls[len(points)] += 1
        return forward(self, points, *rest)

    monkeypatch.setattr(WSDesc, "forward", counting)
    report = validate(model, pairs, KEYPOINTS)
    assert list(calls.values()) == [1, 1]
    assert (report.pairs, report.clouds) == (3, 2)
    assert report.poses is not None
    assert report.poses.pairs == 2


def test_poses_change_only_their_own_figures(model: WSDesc, pairs: list[ValidationPair]) -> None:
    with_poses = validate(model, pairs, KEYPOINTS)
    without = validate(model, [(p, q, None) for p, q, _ in pairs], KEYPOINTS)
    assert without.poses is None
    assert without.rigidity == with_poses.rigidity
    assert "inlier ratio" in str(with_poses)
    assert "inlier ratio" not in str(without)


def test_validation_is_deterministic_and_uses_no_global_generator(
    model: WSDesc, pairs: list[ValidationPair]
) -> None:
    before = torch.random.get_rng_state()
    first = validate(model, pairs, KEYPOINTS, seed=1)
    assert torch.equal(torch.random.get_rng_state(), before)
    torch.manual_seed(99)
    assert validate(model, iter(pairs), KEYPOINTS, seed=1) == first
    assert validate(model, pairs, KEYPOINTS, seed=2) != first


@pytest.mark.parametrize("training", [True, False])
def test_model_is_left_unchanged(model: WSDesc, pairs: list[ValidationPair], training: bool) -> None:
    model.train(training)
    model.support.train(not training)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    validate(model, pairs[:1], KEYPOINTS)
    assert model.training is training
    assert model.network.training is training
    assert model.support.training is not training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    p = pairs[0][0]
    model(p, p[:4]).sum().backward()  # the model can still be trained


def test_mode_is_restored_after_an_error(model: WSDesc, pairs: list[ValidationPair]) -> None:
    with pytest.raises(InputError):
        validate(model.train(), [(pairs[0][0], torch.empty(0, 3), None)], KEYPOINTS)
    assert model.training


def test_unit_scales_every_length(model: WSDesc, pairs: list[ValidationPair]) -> None:
    """The same clouds in quarters of a metre: a factor without rounding."""
    p, q, T = pairs[0]
    scaled = T.copy()
    scaled[:3, 3] *= 4
    metres = validate(model, [(p, q, T)], KEYPOINTS)
    quarters = validate(model, [(4 * p, 4 * q, scaled)], KEYPOINTS, unit=4.0)
    assert quarters.rigidity == pytest.approx(metres.rigidity, rel=1e-5)
    assert quarters.poses == metres.poses


def test_arrays_and_another_loss_are_accepted(
    model: WSDesc, room: RoomPair, pairs: list[ValidationPair]
) -> None:
    arrays = validate(model, [(room.source[::4], room.target[::4], room.T_target_source)], KEYPOINTS)
    assert arrays == validate(model, pairs[:1], KEYPOINTS)
    sums = validate(model, pairs[:1], KEYPOINTS, loss=RigidityLoss(reduction="sum"))
    assert sums.rigidity.cycle == pytest.approx(16 * arrays.rigidity.cycle, rel=1e-5)


def test_clouds_of_one_point(model: WSDesc) -> None:
    """One point per cloud: one match, no pose, and no division by zero."""
    report = validate(model, [(torch.zeros(1, 3), torch.ones(1, 3), np.eye(4))])
    assert isinstance(report, Validation)
    assert report.rigidity.mutual == 1
    assert report.rigidity.consistent == report.rigidity.well_posed == 0
    assert report.poses is not None
    assert report.poses.inlier_ratio == 0
    assert np.isfinite(report.rigidity).all()


def test_missing_pairs_or_keypoints_are_refused(model: WSDesc, pairs: list[ValidationPair]) -> None:
    with pytest.raises(InputError, match="no pairs"):
        validate(model, [])
    with pytest.raises(InputError, match="keypoint"):
        validate(model, pairs, keypoints=0)


@pytest.mark.gpu
def test_model_on_the_cpu_is_validated_on_the_gpu(model: WSDesc, pairs: list[ValidationPair]) -> None:
    cpu, cuda = validate(model, pairs, KEYPOINTS), validate(model, pairs, KEYPOINTS, device="cuda")
    assert next(model.parameters()).device.type == "cpu"
    assert cuda.rigidity.mutual == pytest.approx(cpu.rigidity.mutual, abs=0.05)
    p = pairs[0][0]
    model(p, p[:4]).sum().backward()
