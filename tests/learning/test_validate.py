"""Validation: what it reports on pairs with a known answer, and that it leaves no trace."""

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
from wsdesc.datasets.synthetic import RoomPair
from wsdesc.evaluation import inlier_ratio
from wsdesc.learning.losses import RigidityLoss
from wsdesc.learning.validate import Pair, ValidationReport, validate
from wsdesc.matching import mutual_matches, nearest

KEYPOINTS = 48


@pytest.fixture
def model() -> WSDesc:
    torch.manual_seed(0)
    return WSDesc(width=0.125)


@pytest.fixture
def pairs(room: RoomPair) -> list[Pair]:
    """A pair with a pose, the way back with it, and a pair without; two clouds in all."""
    p, q = torch.from_numpy(room.source), torch.from_numpy(room.target)
    T = room.T_target_source
    return [(p, q, T), (q, p, np.linalg.inv(T)), (p, q, None)]


def turned(points: Tensor) -> tuple[Tensor, np.ndarray]:
    T = np.eye(4)
    T[:3, :3] = Rotation.from_rotvec([0.5, -1, 0.7]).as_matrix()
    T[:3, 3] = 1, -2, 0.5
    return (points.double() @ torch.from_numpy(T[:3, :3]).T + torch.from_numpy(T[:3, 3])).float(), T


def test_the_same_keypoints_turned_are_matched(model: WSDesc) -> None:
    """All points are keypoints, so every one has its copy in the other cloud."""
    p = torch.rand(120, 3, generator=torch.Generator().manual_seed(0))
    q, T = turned(p)
    report = validate(model, [(p, q, T)], keypoints=120)
    assert report.truth is not None
    assert report.truth.inlier_ratio > 0.98
    assert report.truth[1:] == (1, 1, 1)
    rigidity = report.rigidity
    assert min(rigidity.mutual, rigidity.returning, rigidity.consistent) > 0.98
    assert rigidity.well_posed == 1
    assert 0 <= rigidity.loss < 0.05


def test_agrees_with_the_single_steps(model: WSDesc, pairs: list[Pair]) -> None:
    """The first pair again, step by step."""
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
    forth, back = nearest(*features)[0], nearest(*features[::-1])[0]
    returns = [
        (keys[0][back[forth]] - keys[0]).norm(dim=1) <= 0.1,
        (keys[1][forth[back]] - keys[1]).norm(dim=1) <= 0.1,
    ]
    assert report.rigidity.returning == pytest.approx(torch.cat(returns).double().mean().item())
    assert report.truth is not None
    assert report.truth.inlier_ratio == inlier_ratio(*keys, matches, pairs[0][2])


def test_describes_each_cloud_once(model: WSDesc, pairs: list[Pair], monkeypatch: pytest.MonkeyPatch) -> None:
    seen: Counter[int] = Counter()
    forward = WSDesc.forward

    def counting(self: WSDesc, points: Tensor, *rest: object) -> Tensor:
        seen[len(points)] += 1
        return forward(self, points, *rest)

    monkeypatch.setattr(WSDesc, "forward", counting)
    report = validate(model, pairs, KEYPOINTS)
    assert list(seen.values()) == [1, 1]
    assert (report.pairs, report.clouds) == (3, 2)
    assert report.truth is not None
    assert report.truth.pairs == 2


def test_poses_change_nothing_but_their_own_part(model: WSDesc, pairs: list[Pair]) -> None:
    with_poses = validate(model, pairs, KEYPOINTS)
    without = validate(model, [(p, q, None) for p, q, _ in pairs], KEYPOINTS)
    assert without.truth is None
    assert without.rigidity == with_poses.rigidity
    assert "IR" in str(with_poses)
    assert "IR" not in str(without)


def test_is_deterministic_and_draws_from_no_global_generator(model: WSDesc, pairs: list[Pair]) -> None:
    before = torch.random.get_rng_state()
    first = validate(model, pairs, KEYPOINTS, seed=1)
    assert torch.equal(torch.random.get_rng_state(), before)
    torch.manual_seed(99)
    assert validate(model, iter(pairs), KEYPOINTS, seed=1) == first
    assert validate(model, pairs, KEYPOINTS, seed=2) != first


@pytest.mark.parametrize("training", [True, False])
def test_the_model_comes_back_as_it_was(model: WSDesc, pairs: list[Pair], training: bool) -> None:
    model.train(training)
    model.support.train(not training)  # a part that differs stays different
    before = {name: value.clone() for name, value in model.state_dict().items()}
    validate(model, pairs[:1], KEYPOINTS)
    assert model.training is training
    assert model.network.training is training
    assert model.support.training is not training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    p = pairs[0][0]
    model(p, p[:4]).sum().backward()  # and can be trained


def test_the_mode_comes_back_after_an_error(model: WSDesc, pairs: list[Pair]) -> None:
    with pytest.raises(InputError):
        validate(model.train(), [(pairs[0][0], torch.empty(0, 3), None)], KEYPOINTS)
    assert model.training


def test_the_unit_scales_every_length(model: WSDesc, pairs: list[Pair]) -> None:
    """The same clouds in quarters of a metre, a factor without rounding."""
    p, q, T = pairs[0]
    scaled = T.copy()
    scaled[:3, 3] *= 4
    metres = validate(model, [(p, q, T)], KEYPOINTS)
    quarters = validate(model, [(4 * p, 4 * q, scaled)], KEYPOINTS, unit=4.0)
    assert quarters.rigidity == pytest.approx(metres.rigidity, rel=1e-5)
    assert quarters.truth == metres.truth


def test_takes_arrays_and_another_loss(model: WSDesc, room: RoomPair, pairs: list[Pair]) -> None:
    arrays = validate(model, [(room.source, room.target, room.T_target_source)], KEYPOINTS)
    assert arrays == validate(model, pairs[:1], KEYPOINTS)
    sums = validate(model, pairs[:1], KEYPOINTS, loss=RigidityLoss(reduction="sum"))
    assert sums.rigidity.cycle == pytest.approx(16 * arrays.rigidity.cycle, rel=1e-5)


def test_clouds_smaller_than_asked_for(model: WSDesc) -> None:
    """One point a cloud: one match, no motion, and no division by zero."""
    report = validate(model, [(torch.zeros(1, 3), torch.ones(1, 3), np.eye(4))])
    assert isinstance(report, ValidationReport)
    assert report.rigidity.mutual == 1
    assert report.rigidity.consistent == report.rigidity.well_posed == 0
    assert report.truth is not None
    assert report.truth.inlier_ratio == 0
    assert np.isfinite(report.rigidity).all()


def test_refuses_nothing_to_do(model: WSDesc, pairs: list[Pair]) -> None:
    with pytest.raises(InputError, match="no pairs"):
        validate(model, [])
    with pytest.raises(InputError, match="keypoint"):
        validate(model, pairs, keypoints=0)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_model_on_the_cpu_is_validated_on_the_gpu(model: WSDesc, pairs: list[Pair]) -> None:
    here, there = validate(model, pairs, KEYPOINTS), validate(model, pairs, KEYPOINTS, device="cuda")
    assert next(model.parameters()).device.type == "cpu"
    assert there.rigidity.mutual == pytest.approx(here.rigidity.mutual, abs=0.05)
    p = pairs[0][0]
    model(p, p[:4]).sum().backward()
