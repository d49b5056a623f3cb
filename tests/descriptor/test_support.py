"""Support: fixed, one learned size, or one per keypoint."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from wsdesc.cloud.neighbours import NeighbourGrid
from wsdesc.core.errors import InputError
from wsdesc.descriptor.options import DescriptorOptions
from wsdesc.descriptor.support import LocalSupport, UniversalSupport, make_support


def sizes(kind: str, points: Tensor, keypoints: Tensor, **options: object) -> Tensor:
    torch.manual_seed(0)
    support = make_support(DescriptorOptions.read({"support": kind, **options}))
    frames = torch.eye(3).expand(len(keypoints), 3, 3)
    result: Tensor = support(NeighbourGrid.of(points), keypoints, frames)
    return result


@pytest.fixture
def cloud() -> Tensor:
    return torch.rand(3000, 3, generator=torch.Generator().manual_seed(0)) * 2


def test_universal_start(cloud: Tensor) -> None:
    assert sizes("universal", cloud, cloud[:5]) == 1.5
    assert sizes("universal", cloud, cloud[:5], support_start=0.9).detach() == pytest.approx(0.9)


def test_fixed_is_the_inscribed_cube(cloud: Tensor) -> None:
    assert sizes("fixed", cloud, cloud[:5]) == pytest.approx(0.3464, abs=1e-4)
    support = make_support(DescriptorOptions(support="fixed"))
    assert not list(support.parameters())
    assert not support.state_dict()


def test_universal_range() -> None:
    support = UniversalSupport(1.5, 0.3, 3.0)
    for value, kept in ((7.0, 3.0), (-1.0, 0.3), (2.0, 2.0)):
        with torch.no_grad():
            support.size.fill_(value)
        support.keep_in_range()
        assert support.size.detach() == pytest.approx(kept)
    assert support.size.requires_grad


@pytest.mark.parametrize("kind", ["local", "global"])
class TestSupportPerKeypoint:
    def test_start(self, kind: str, cloud: Tensor) -> None:
        result = sizes(kind, cloud, cloud[:50])
        assert result.shape == (50,)
        assert (result - 1.5).abs().amax() < 0.1
        assert result.std() > 0

    def test_range_with_large_weights(self, kind: str, cloud: Tensor) -> None:
        support = make_support(DescriptorOptions(support=kind))  # type: ignore[arg-type]
        with torch.no_grad():
            for p in support.parameters():
                p.mul_(100)
        frames = torch.eye(3).expand(50, 3, 3)
        result = support(NeighbourGrid.of(cloud), cloud[:50], frames)
        assert ((result >= 0.3) & (result <= 3.0)).all()

    def test_order_of_keypoints(self, kind: str, cloud: Tensor) -> None:
        torch.testing.assert_close(
            sizes(kind, cloud, cloud[:20].flip(0)),
            sizes(kind, cloud, cloud[:20]).flip(0),
            rtol=1e-5,
            atol=1e-5,
        )

    def test_invariant_to_translation(self, kind: str, cloud: Tensor) -> None:
        shift = torch.tensor([4.0, -8.0, 2.0])
        torch.testing.assert_close(
            sizes(kind, cloud + shift, cloud[:20] + shift), sizes(kind, cloud, cloud[:20]), rtol=0, atol=1e-4
        )

    def test_keypoints_without_neighbours(self, kind: str, cloud: Tensor) -> None:
        far = torch.full((2, 3), 50.0)
        for keypoints in (far, torch.cat([cloud[:3], far])):
            assert torch.isfinite(sizes(kind, cloud, keypoints)).all()


def test_a_patch_covers_all_neighbours(cloud: Tensor) -> None:
    support = LocalSupport(0.6, 1.5, 0.3, 3.0)
    keypoints = torch.stack([torch.ones(3), torch.full((3,), 30.0)])
    patch, is_point = support._patches(NeighbourGrid.of(cloud), keypoints)
    near = ((cloud - 1).norm(dim=1) <= 0.6).nonzero()[:, 0]
    assert len(near) > 256
    assert patch.shape == (2, 256, 3)
    assert is_point[0].all()
    assert not is_point[1].any()
    chosen = torch.cdist(patch[0] + 1, cloud).argmin(1)
    assert len(set(chosen.tolist())) == 256  # each once
    assert set(chosen.tolist()) <= set(near.tolist())
    assert chosen.max() > near[-10]  # not only the first 256


def test_a_small_patch_has_each_neighbour_once() -> None:
    points = torch.rand(40, 3, generator=torch.Generator().manual_seed(0)) * 0.1
    support = LocalSupport(0.6, 1.5, 0.3, 3.0)
    patch, is_point = support._patches(NeighbourGrid.of(points), points[:1])
    torch.testing.assert_close(patch[0][is_point[0]] + points[0], points)


def test_start_outside_the_range() -> None:
    with pytest.raises(InputError, match="support_start"):
        DescriptorOptions.read({"support_start": 5.0})
    with pytest.raises(InputError, match="support"):
        DescriptorOptions.read({"support": "elastic"})
