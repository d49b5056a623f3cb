"""The descriptor model: invariance, units, gradients and options."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
import torch
from scipy.spatial.transform import Rotation
from torch import Tensor, nn

from wsdesc import RigidityLoss, WSDesc
from wsdesc.cloud.sampling import farthest_points, voxel_downsample
from wsdesc.core.errors import InputError
from wsdesc.datasets.synthetic import RoomPair
from wsdesc.descriptor import model as model_module
from wsdesc.descriptor.network import DescriptorNetwork


def model(**options: object) -> WSDesc:
    """Create an untrained narrow model, always with the same weights."""
    torch.manual_seed(0)
    return WSDesc(**{"width": 0.25, **options})


def transformed(points: Tensor, seed: int = 1) -> Tensor:
    R = torch.from_numpy(Rotation.random(random_state=seed).as_matrix())
    return (points.double() @ R.T + torch.tensor([1.0, -2.0, 3.0], dtype=torch.float64)).float()


@torch.inference_mode()
def describe(net: WSDesc, points: Tensor, chosen: Tensor, unit: float = 1.0) -> Tensor:
    return net(points, points[chosen], unit)


def distance(a: Tensor, b: Tensor) -> Tensor:
    return (a - b).norm(dim=1)


@pytest.fixture(scope="module")
def cloud() -> Tensor:
    """A bent, bumpy sheet of 2 000 points, two metres wide."""
    g = torch.Generator().manual_seed(0)
    x, y = (torch.rand(2, 2000, generator=g) * 2 - 1).unbind()
    return torch.stack([x, y, 0.3 * torch.sin(3 * x) + 0.2 * torch.cos(5 * y + x)], dim=1)


@pytest.fixture(scope="module")
def clouds(room: RoomPair) -> tuple[Tensor, Tensor]:
    """Both scans of a synthetic room, downsampled."""
    source, target = (
        voxel_downsample(torch.from_numpy(points).float(), 0.08) for points in (room.source, room.target)
    )
    return source, target


def test_paper_model(cloud: Tensor) -> None:
    net = WSDesc()
    assert sum(p.numel() for p in net.network.parameters()) == 2_955_584
    assert net.support.size == 1.5
    with torch.inference_mode():
        descriptors = net(cloud, cloud[:7])
    assert descriptors.shape == (7, 32)
    assert descriptors.dtype == torch.float32
    torch.testing.assert_close(descriptors.norm(dim=1), torch.ones(7))
    assert distance(descriptors[1:], descriptors[:1]).amin() > 1e-3


def test_paper_layers() -> None:
    """Convolutions with instance normalization and ReLU, then one full convolution."""
    torch.manual_seed(0)
    net = DescriptorNetwork(width=0.5)
    x = torch.rand(3, 1, 16, 16, 16)
    channels, strides, convolutions = [], [], [m for m in net.modules() if isinstance(m, nn.Conv3d)]
    y = x
    for convolution in convolutions[:6]:
        channels.append(convolution.out_channels)
        strides.append(convolution.stride[0])
        y = torch.relu(nn.functional.instance_norm(convolution(y)))
    assert channels == [16, 16, 32, 32, 64, 64]
    assert strides == [1, 1, 2, 1, 1, 1]
    assert y.shape == (3, 64, 8, 8, 8)
    last = net.head.weight.reshape(32, -1)
    y = nn.functional.normalize(y.flatten(1) @ last.T + net.head.bias, dim=1)
    torch.testing.assert_close(net(x[:, 0]), y, rtol=0, atol=1e-4)


@pytest.mark.parametrize("seed", [1, 2])
def test_descriptors_are_invariant_to_rigid_transformations(seed: int, kitchen: Tensor) -> None:
    net, chosen = model(), farthest_points(kitchen, 150)
    turned = transformed(kitchen, seed)
    both = net.frames(kitchen, kitchen[chosen]).reliable & net.frames(turned, turned[chosen]).reliable
    gap = distance(describe(net, kitchen, chosen), describe(net, turned, chosen))
    assert (gap[both] < 1e-3).double().mean() >= 0.98


def test_the_full_model_is_invariant_to_rigid_transformations(desk: Tensor) -> None:
    net, chosen = model(width=1.0), farthest_points(desk, 40)
    turned = transformed(desk)
    both = net.frames(desk, desk[chosen]).reliable & net.frames(turned, turned[chosen]).reliable
    gap = distance(describe(net, desk, chosen), describe(net, turned, chosen))
    assert (gap[both] < 1e-3).double().mean() >= 0.98


def test_without_frames_descriptors_depend_on_rotation(kitchen: Tensor) -> None:
    net, chosen = model(use_frames=False), farthest_points(kitchen, 40)
    same = describe(net, kitchen, chosen)
    assert distance(same, describe(net, transformed(kitchen), chosen)).median() > 1e-2
    shifted = kitchen + torch.tensor([1.0, 2.0, -4.0])
    assert distance(same, describe(net, shifted, chosen)).amax() < 1e-3


def test_order_of_keypoints(cloud: Tensor) -> None:
    net = model(width=0.125)
    order = torch.randperm(40, generator=torch.Generator().manual_seed(0))
    reordered = describe(net, cloud, order)
    assert distance(reordered, describe(net, cloud, torch.arange(40))[order]).amax() < 1e-5


def test_keypoints_beside_the_points(cloud: Tensor) -> None:
    net = model()
    near = cloud[:5] + 0.01
    with torch.inference_mode():
        assert torch.isfinite(net(cloud, near)).all()
        far = net(cloud, torch.full((2, 3), 90.0))
    torch.testing.assert_close(far.norm(dim=1), torch.ones(2))


def test_chunks_have_no_effect(cloud: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    net, chosen = model(width=0.125), torch.arange(25)
    whole = describe(net, cloud, chosen)
    monkeypatch.setattr(model_module, "_GRIDS_PER_CHUNK", 10)
    monkeypatch.setattr(model_module, "_NETWORK_BATCH", {"cuda": 7, "cpu": 7})
    assert distance(describe(net, cloud, chosen), whole).amax() < 1e-5


@pytest.mark.parametrize("kind", ["local", "global"])
def test_chunks_have_no_effect_with_a_support_per_keypoint(
    kind: str, cloud: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    net, chosen = model(support=kind, width=0.125), torch.arange(12)
    whole = describe(net, cloud, chosen)
    monkeypatch.setattr(model_module, "_GRIDS_PER_CHUNK", 5)
    assert distance(describe(net, cloud, chosen), whole).amax() < 1e-4


def test_unit_of_millimetres(kitchen: Tensor) -> None:
    net, chosen = model(width=0.125), farthest_points(kitchen, 60)
    reliable = net.frames(kitchen, kitchen[chosen]).reliable
    metres = describe(net, kitchen, chosen)
    millimetres = describe(net, kitchen * 1000, chosen, unit=1000.0)
    assert distance(metres, millimetres)[reliable].quantile(0.98) < 1e-4
    assert distance(metres, describe(net, kitchen * 1000, chosen)).median() > 1e-2  # with a wrong unit
    frames = net.frames(kitchen * 1000, kitchen[chosen] * 1000, unit=1000.0)
    assert torch.equal(frames.reliable, reliable)


def test_double_precision_points(cloud: Tensor) -> None:
    """`read_points` returns float64."""
    net, chosen = model(), torch.arange(20)
    exact = cloud.double()
    gap = distance(describe(net, exact, chosen), describe(net, cloud, chosen))
    assert gap.amax() < 1e-3
    offset = torch.tensor([4.5e5, 5.4e6, 300.0], dtype=torch.float64)  # geographic coordinates
    assert distance(describe(net, exact + offset, chosen), describe(net, cloud, chosen)).amax() < 1e-3
    with torch.inference_mode():
        mixed = net(cloud, exact[chosen])
    assert distance(mixed, describe(net, cloud, chosen)).amax() < 1e-5


def test_far_points_have_no_effect(cloud: Tensor) -> None:
    net, chosen = model(), torch.arange(20)
    more = torch.cat([cloud, torch.rand(500, 3) + 40])
    assert distance(describe(net, more, chosen), describe(net, cloud, chosen)).amax() < 1e-4


def biases_before_normalization(net: WSDesc) -> Iterator[nn.Parameter]:
    """Yield the biases that have no effect, because a normalization follows."""
    for m in net.network.modules():
        if isinstance(m, nn.Conv3d) and m is not net.network.head and m.bias is not None:
            yield m.bias


def loss_gradients(net: WSDesc, clouds: tuple[Tensor, Tensor]) -> None:
    keypoints = [points[farthest_points(points, 24)] for points in clouds]
    (p, q), (fp, fq) = keypoints, [net(c, k) for c, k in zip(clouds, keypoints, strict=True)]
    terms = RigidityLoss()(p, fp, q, fq)
    assert torch.isfinite(terms.loss)
    terms.loss.backward()


@pytest.mark.parametrize("kind", ["universal", "fixed", "local", "global"])
def test_the_loss_has_a_gradient_for_every_parameter(kind: str, clouds: tuple[Tensor, Tensor]) -> None:
    net = model(support=kind, width=0.125, resolution=16 if kind == "universal" else 8)
    loss_gradients(net, clouds)
    idle = {id(b) for b in biases_before_normalization(net)}
    assert len(idle) == 6
    for name, parameter in net.named_parameters():
        assert parameter.grad is not None, name
        assert torch.isfinite(parameter.grad).all(), name
        if id(parameter) not in idle:
            assert parameter.grad.abs().amax() > 0, name
    if kind == "universal":
        assert net.support.size.grad.abs() > 1e-6  # type: ignore[union-attr, operator]


def test_gradients_of_the_points(cloud: Tensor) -> None:
    net = model(width=0.125)
    points = cloud.clone().requires_grad_()
    net(points, cloud[:4])[:, 0].sum().backward()
    assert points.grad is not None
    assert torch.isfinite(points.grad).all()
    assert points.grad.abs().amax() > 0


def test_optimization_reduces_the_loss(cloud: Tensor) -> None:
    """Train descriptors of four keypoints towards targets; the support is trained, too."""
    net, keypoints = model(width=0.125), cloud[:4]
    goal = torch.eye(32)[:4]
    optimiser = torch.optim.Adam(net.parameters(), 3e-3)
    losses = []
    for _ in range(8):
        loss = (net(cloud, keypoints) - goal).square().sum()
        losses.append(float(loss.detach()))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        net.support.keep_in_range()  # type: ignore[union-attr, operator]
    assert losses[-1] < 0.7 * losses[0]
    assert net.support.size != 1.5


@pytest.mark.parametrize(
    "options", [{"resolution": 5}, {"resolution": 4, "dimension": 8}, {"resolution": 24}]
)
def test_other_network_sizes(options: dict[str, int], cloud: Tensor) -> None:
    descriptors = describe(model(**options), cloud, torch.arange(3))
    assert descriptors.shape == (3, options.get("dimension", 32))
    torch.testing.assert_close(descriptors.norm(dim=1), torch.ones(3))


def test_without_cutoff(cloud: Tensor) -> None:
    few, chosen = cloud[:300], torch.arange(2)
    exact = describe(model(cutoff=None, resolution=8), few, chosen)
    assert distance(exact, describe(model(resolution=8), few, chosen)).amax() < 0.3


def test_acceleration_has_no_effect_on_the_cpu(cloud: Tensor) -> None:
    net, chosen = model(), torch.arange(5)
    before = describe(net, cloud, chosen)
    assert net.accelerate("bf16", compile=False) is net
    assert torch.equal(describe(net, cloud, chosen), before)
    with pytest.raises(InputError, match="fp8"):
        net.accelerate("fp8")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"points": torch.zeros(3)}, "points"),
        ({"points": torch.empty(0, 3)}, "points"),
        ({"points": torch.full((3, 3), math.nan)}, "points"),
        ({"points": torch.zeros(3, 3, dtype=torch.int64)}, "points"),
        ({"keypoints": torch.zeros(3)}, "keypoints"),
        ({"keypoints": torch.empty(0, 3)}, "keypoints"),
        ({"keypoints": torch.full((3, 3), math.nan)}, "keypoints"),
        ({"unit": 0.0}, "unit"),
        ({"unit": math.nan}, "unit"),
    ],
)
def test_invalid_arguments(change: dict[str, object], message: str) -> None:
    good = {"points": torch.rand(30, 3), "keypoints": torch.rand(2, 3)}
    with pytest.raises(InputError, match=message):
        model(width=0.125)(**{**good, **change})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"resolutoin": 16}, "resolution"),
        ({"suport": "fixed"}, "support"),
        ({"sigma": -1.0}, "sigma"),
        ({"sigma": math.inf}, "sigma"),
        ({"width": math.inf}, "width"),
        ({"cutoff": 0.7}, "cutoff"),
        ({"resolution": 2}, "resolution"),
        ({"support": "elastic"}, "support"),
        ({"support_range": (2.0, 1.0)}, "support_range"),
    ],
)
def test_invalid_options(options: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        WSDesc(**options)


@pytest.mark.gpu
@pytest.mark.parametrize("width", [0.25, 0.4, 1.0])
def test_network_without_gradients_equals_that_with_gradients_on_gpu(width: float) -> None:
    net = model(width=width).cuda().network
    voxels = torch.rand(5, 16, 16, 16, generator=torch.Generator().manual_seed(0)).cuda()
    expected = net(voxels).detach()
    with torch.no_grad():
        torch.testing.assert_close(net(voxels), expected, rtol=0, atol=1e-3)  # convolutions in TF32
        assert torch.equal(net(voxels), net(voxels))
