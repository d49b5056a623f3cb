"""PointNetLK: twists, poses with the published weights, and clouds it cannot align."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.spatial.transform import Rotation
from torch import Tensor

from peer_weights import published_folder, save_random
from wsdesc import peers
from wsdesc.evaluation import rotation_error_deg
from wsdesc.peers.pointnetlk import PointNetLK, _Network, exponential


def shape(seed: int = 0) -> Tensor:
    """Points on a lopsided body without symmetries."""
    generator = torch.Generator().manual_seed(seed)
    body = torch.nn.functional.normalize(torch.randn(700, 3, generator=generator), dim=1)
    arm = torch.rand(324, 3, generator=generator) * torch.tensor([1.5, 0.2, 0.3])
    return torch.cat([body * torch.tensor([0.9, 0.5, 0.3]), arm + torch.tensor([0.2, 0.3, 0.1])])


def test_exponential_of_twists() -> None:
    twists = torch.tensor([[0.1, -0.2, 0.3, 1.0, 2.0, 3.0], [0, 0, 0, 1, 2, 3], [0, 0, 1e-9, 0, 0, 0]])
    poses = exponential(twists.double())
    expected = Rotation.from_rotvec(twists[:, :3].numpy()).as_matrix()
    np.testing.assert_allclose(poses[:, :3, :3].numpy(), expected, atol=1e-6)
    torch.testing.assert_close(poses[1, :3, 3], torch.tensor([1.0, 2, 3]).double())


def test_random_weights_give_a_pose_or_none(tmp_path: Path) -> None:
    save_random(_Network(), tmp_path / "pointnetlk.safetensors")
    peer = PointNetLK(tmp_path)
    estimate = peer(shape(), shape())
    assert estimate is None or estimate.shape == (4, 4)
    assert peer(shape()[:5], shape()) is None  # too few points
    assert peer(torch.zeros(50, 3), torch.zeros(50, 3)) is None


@pytest.mark.parametrize("norm", [0.4, 0.8])
@pytest.mark.parametrize("unit", [1.0, 1000.0])
def test_published_weights_align_equal_clouds(data_folder: Path, norm: float, unit: float) -> None:
    peer = peers.pose("pointnetlk", weights=published_folder(data_folder))
    target = unit * (shape() + 5)
    generator = torch.Generator().manual_seed(0)
    errors = []
    for _ in range(5):
        twist = torch.nn.functional.normalize(torch.randn(1, 6, generator=generator), dim=1) * norm
        T = exponential(twist.double())[0]
        T[:3, 3] *= unit
        estimate = peer((target.double() - T[:3, 3]) @ T[:3, :3], target, unit)
        assert estimate is not None
        errors.append(float(rotation_error_deg(estimate.numpy(), T.numpy())))
    assert np.median(errors) < 0.1
