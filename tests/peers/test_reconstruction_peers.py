"""PPF-FoldNet, CapsuleNet and S2CNN: what their descriptors must not depend on, and that trainings learn."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from scipy.spatial.transform import Rotation
from torch import Tensor

from wsdesc import peers, write_points
from wsdesc.cloud.neighbours import NeighbourGrid
from wsdesc.cloud.sampling import voxel_downsample
from wsdesc.datasets.synthetic import RoomPair
from wsdesc.evaluation import inlier_ratio
from wsdesc.evaluation.scans import load_scan
from wsdesc.evaluation.scenes import read_scenes
from wsdesc.matching import mutual_matches
from wsdesc.peers.capsulenet import CapsuleDecoder, CapsuleEncoder, route, squash
from wsdesc.peers.folding import FoldingDecoder, chamfer
from wsdesc.peers.ppf_foldnet import PpfEncoder, pair_features
from wsdesc.peers.s2cnn import BANDWIDTH, SphericalSignal
from wsdesc.peers.supports import find_supports, oriented_normals
from wsdesc.peers.training import task_of, train_peer
from wsdesc.peers.training.clouds import TrainingClouds
from wsdesc.peers.training.supports import SupportSampler

NAMES = ("ppf-foldnet", "capsulenet", "s2cnn-512", "s2cnn-32")
LENGTHS = {"s2cnn-32": 32}
R = torch.from_numpy(Rotation.random(random_state=4).as_matrix())


@pytest.fixture(scope="module")
def scan_folder(tmp_path_factory: pytest.TempPathFactory, room: RoomPair) -> Path:
    folder = tmp_path_factory.mktemp("scans")
    for k, points in enumerate((room.source, room.target)):
        write_points(folder / f"scan_{k}.ply", points)
    return folder


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, scan_folder: Path) -> Callable[[str], Path]:
    """Return a function that gives the folder of a peer trained for two steps."""
    out = tmp_path_factory.mktemp("weights")

    def train(name: str) -> Path:
        if not (out / name).exists():
            options = task_of(name).options_type.read({"points": 64, "batch": 4, "steps": 2, "unit": 1.0})
            train_peer(name, scan_folder, out / name, options=options, device="cpu")
        return out / name

    return train


@pytest.fixture(scope="module")
def scan(room: RoomPair) -> Tensor:
    return voxel_downsample(torch.from_numpy(room.source).double(), 0.03)


@pytest.fixture(scope="module")
def keypoints(scan: Tensor) -> Tensor:
    return scan[torch.randperm(len(scan), generator=torch.Generator().manual_seed(0))[:12]]


def relative_change(before: Tensor, after: Tensor) -> float:
    """Median change over the median distance between descriptors of different keypoints."""
    distances = torch.pdist(before)
    return float((before - after).norm(dim=1).median() / distances.median())


@pytest.mark.parametrize(
    "name", ["ppf-foldnet", *(pytest.param(name, marks=pytest.mark.slow) for name in NAMES[1:])]
)
def test_descriptors(name: str, trained: Callable[[str], Path], scan: Tensor, keypoints: Tensor) -> None:
    describe = peers.descriptor(name, weights=trained(name))
    descriptors = describe(scan, keypoints)
    assert descriptors.shape == (12, LENGTHS.get(name, 512))
    assert descriptors.dtype == torch.float32
    assert descriptors.isfinite().all()
    assert torch.pdist(descriptors).median() > 0
    # rotation about the viewpoint, order of the points, one keypoint at a time, unit of length
    assert relative_change(descriptors, describe(scan @ R.T, keypoints @ R.T)) < 0.05
    order = torch.randperm(len(scan), generator=torch.Generator().manual_seed(1))
    assert relative_change(descriptors, describe(scan[order], keypoints)) < 1e-3
    single = torch.cat([describe(scan, keypoint[None]) for keypoint in keypoints[:3]])
    torch.testing.assert_close(single, descriptors[:3], atol=1e-4, rtol=1e-3)
    assert relative_change(descriptors, describe(1000 * scan, 1000 * keypoints, 1000.0)) < 1e-2


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "points",
    [
        torch.tensor([[9.0, 9, 9]]),  # an empty support
        torch.tensor([[0.1, 0, 0]]),
        torch.tensor([[0.1, 0, 0], [0, 0.1, 0.1]]),
        torch.linspace(-0.2, 0.2, 50)[:, None] * torch.tensor([1.0, 1, 0]),  # collinear
        torch.zeros(5, 3),
    ],
)
def test_tiny_supports(name: str, points: Tensor, trained: Callable[[str], Path]) -> None:
    descriptors = peers.descriptor(name, weights=trained(name))(points, torch.zeros(2, 3))
    assert descriptors.isfinite().all()
    torch.testing.assert_close(descriptors[0], descriptors[1])


@pytest.mark.parametrize("name", NAMES)
def test_wrong_weights_name_the_file(name: str, trained: Callable[[str], Path], tmp_path: Path) -> None:
    with pytest.raises(peers.PeerUnavailableError, match=f"wsdesc train --peer {name}"):
        peers.descriptor(name)
    with pytest.raises(peers.PeerUnavailableError, match=rf"{name}\.safetensors: no such file"):
        peers.descriptor(name, weights=tmp_path)
    file = tmp_path / f"{name}.safetensors"
    tensors = load_file(trained(name) / file.name)
    save_file(tensors, file)
    with pytest.raises(peers.PeerUnavailableError, match="its header has no options of a training"):
        peers.descriptor(name, weights=tmp_path)


def test_pair_features_of_a_known_pair() -> None:
    key, normal = torch.zeros(1, 3), torch.tensor([[0.0, 0, 1]])
    features = pair_features(
        key, normal, torch.tensor([[[0.3, 0, 0], [0, 0, 0]]]), torch.tensor([[[1.0, 0, 0], [0, 0, 1]]])
    )
    torch.testing.assert_close(features[0, 0], torch.tensor([0.5, 1.0, 0.5, 0.3]))
    torch.testing.assert_close(features[0, 1], torch.zeros(4))


def test_features_do_not_depend_on_the_rotation(scan: Tensor, keypoints: Tensor) -> None:
    points, keys = scan.float(), keypoints.float()
    normals = oriented_normals(points, 17)
    near = find_supports(NeighbourGrid.of(points), keys, 0.3, 256).indices
    reference = normals[:12]
    turn = R.float()
    before = pair_features(keys, reference, points[near], normals[near])
    after = pair_features(keys @ turn.T, reference @ turn.T, points[near] @ turn.T, normals[near] @ turn.T)
    assert (after - before).abs().median() < 1e-5
    assert ((normals * points).sum(1) <= 1e-6).all()


def test_outward_normals_move_with_the_shape(scan: Tensor) -> None:
    points = scan.float()
    normals = oriented_normals(points, 17, "outward")
    assert ((normals * (points - points.mean(0))).sum(1) >= 0).all()
    moved = oriented_normals(points @ R.float().T + 3, 17, "outward")
    agreement = (moved * (normals @ R.float().T)).sum(1)
    assert (agreement > 0.99).float().mean() > 0.98


def test_supports_against_brute_force(scan: Tensor, keypoints: Tensor) -> None:
    points, keys = scan.float(), keypoints.float()
    distances = torch.cdist(keys.double(), points.double())
    inside = (distances <= 0.3) & (distances > 0)
    near, counts = find_supports(NeighbourGrid.of(points), keys, 0.3, 10**6)
    assert (counts - inside.sum(1)).abs().max() <= 1  # rounding at the radius
    for row, count, expected in zip(near, counts, inside, strict=True):
        assert len(row[:count].unique()) == count
        assert set(row.tolist()) <= set(expected.nonzero()[:, 0].tolist()) | {int(row[-1])}
    few = find_supports(NeighbourGrid.of(points), keys, 0.3, 16)
    assert (few.counts <= 16).all()
    sorted_distances = distances.gather(1, few.indices)
    full = few.counts == 16
    assert (sorted_distances[full].diff(dim=1) >= -1e-6).all()


def test_sampled_supports(scan: Tensor) -> None:
    sampler = SupportSampler(TrainingClouds([scan.float()], False), 0.03, 0.3, 48, torch.device("cpu"))
    supports = sampler.sample(32, torch.Generator().manual_seed(0))
    offsets = (supports.points - supports.keypoints[:, None]).norm(dim=-1)
    assert offsets.max() <= 0.3 + 1e-5
    assert (offsets > 0).float().mean() > 0.9  # only isolated keypoints are in their own support
    again = sampler.sample(32, torch.Generator().manual_seed(0))
    assert torch.equal(supports.points, again.points)
    crowded = supports.points[offsets.min(1).values > 0]
    repeated = [len(torch.unique(row, dim=0)) < 48 for row in crowded]
    assert not all(repeated)  # supports with enough points are drawn without repetition


def test_chamfer_against_brute_force() -> None:
    g = torch.Generator().manual_seed(0)
    x, y = torch.rand(2, 30, 4, generator=g, requires_grad=True), torch.rand(2, 40, 4, generator=g)
    forward, backward = chamfer(x, y)
    squared = torch.cdist(x, y).square()
    torch.testing.assert_close(forward, squared.amin(2).mean(1))
    torch.testing.assert_close(backward, squared.amin(1).mean(1))
    same = chamfer(y, y)
    torch.testing.assert_close(same[0] + same[1], torch.zeros(2))


def test_encoder_equals_the_definition() -> None:
    """The split of the first fused layer is the product with the concatenation."""
    torch.manual_seed(0)
    encoder, features = PpfEncoder().eval(), torch.rand(2, 30, 4)
    x, local = features, []
    for linear, norm in zip(encoder.linear, encoder.norm, strict=True):
        x = torch.relu(norm(linear(x).transpose(1, 2)).transpose(1, 2))
        local.append(x)
    joined = torch.cat([*local, x.amax(1, keepdim=True).expand_as(x)], -1)
    expected = torch.relu(encoder.head(torch.relu(encoder.fuse(joined)))).amax(1)
    torch.testing.assert_close(encoder(features), expected)
    assert expected.shape == (2, 512)
    assert (expected >= 0).all()


def test_capsules() -> None:
    torch.manual_seed(0)
    encoder = CapsuleEncoder().eval()
    latent, coupling = encoder.capsules(torch.rand(2, 20, 4))
    assert latent.shape == (2, 32, 16)
    assert (latent.norm(dim=-1) < 1).all()
    torch.testing.assert_close(coupling.sum(1), torch.ones(2, 1024))
    u = torch.zeros(3, 16, requires_grad=True)
    squash(u).sum().backward()
    assert u.grad is not None
    assert u.grad.isfinite().all()
    points = CapsuleDecoder()(latent.flatten(1), torch.rand(2, 32, 2, 32))
    assert points.shape == (2, 1024, 4)


def test_routing_prefers_agreeing_votes() -> None:
    votes = 0.1 * torch.randn(1, 2, 50, 4, generator=torch.Generator().manual_seed(0))
    votes[0, 0, :40] += torch.tensor([3.0, 0, 0, 0])
    latent, coupling = route(votes)
    assert latent[0, 0].norm() > latent[0, 1].norm()
    assert (coupling[0, 0, :40] > coupling[0, 1, :40]).all()


def test_spherical_signal_against_loops() -> None:
    g = torch.Generator().manual_seed(0)
    offsets = torch.randn(1, 40, 3, generator=g) * 0.4
    valid = torch.arange(40)[None] < 35
    signal = SphericalSignal()(offsets, valid)[0]
    assert signal.shape == (4, 2 * BANDWIDTH, 2 * BANDWIDTH)
    size = 2 * BANDWIDTH
    sums, numbers = np.zeros((4, size, size)), np.zeros((4, size, size))
    for x, y, z in offsets[0, :35].tolist():
        r = float(np.sqrt(x * x + y * y + z * z))
        if r > 1:
            continue
        j = min(round(np.arccos(z / r) * size / np.pi), size - 1)
        a = min(round((np.arctan2(y, x) % (2 * np.pi)) * size / (2 * np.pi)), size - 1)
        for k in range(4):
            weight = 1 - abs(4 * r - (k + 1))
            for i in range(size):
                if weight > 0 and abs(a - i) <= 0.5 / np.sin(np.pi * (2 * j + 1) / (2 * size)):
                    sums[k, j, i] += weight
                    numbers[k, j, i] += 1
    expected = sums / np.maximum(numbers, 1)
    torch.testing.assert_close(signal, torch.from_numpy(expected).float(), atol=1e-4, rtol=1e-3)


def test_folding_shapes() -> None:
    assert FoldingDecoder(32, 3, 100)(torch.rand(2, 32)).shape == (2, 100, 3)


@pytest.mark.gpu
@pytest.mark.parametrize("name", NAMES)
def test_cuda_equals_cpu(name: str, trained: Callable[[str], Path], scan: Tensor, keypoints: Tensor) -> None:
    describe = peers.descriptor(name, weights=trained(name))
    on_cpu, on_cuda = describe(scan, keypoints), describe(scan.cuda(), keypoints.cuda())
    assert on_cuda.is_cuda
    assert relative_change(on_cpu, on_cuda.cpu()) < 0.01


@pytest.mark.gpu
@pytest.mark.parametrize("name", NAMES)
def test_training_on_cuda(name: str, scan_folder: Path, tmp_path: Path) -> None:
    options = task_of(name).options_type.read({"batch": 8, "steps": 3, "unit": 1.0})
    run = train_peer(name, scan_folder, tmp_path / "run", options=options, device="cuda")
    assert run.last is not None
    assert 0 < run.last.loss < 10


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_trainings_learn_to_reconstruct(name: str, scan_folder: Path, tmp_path: Path) -> None:
    reports: list[Any] = []
    kind = task_of(name).options_type
    options = kind.read({"points": 128, "batch": 4, "steps": 150, "unit": 1.0, "seed": 1})
    train_peer(name, scan_folder, tmp_path / "run", options=options, device="cpu", on_step=reports.append)
    assert reports[-1].loss < 0.8 * reports[0].loss


@pytest.mark.parametrize("name", NAMES)
def test_every_weight_gets_a_gradient(name: str, scan: Tensor) -> None:
    options = task_of(name).options_type.read({"points": 128, "batch": 4})
    task = task_of(name)(options, TrainingClouds([scan.float()], False), torch.device("cpu"))
    generator = torch.Generator().manual_seed(0)
    task.loss(task.batch(generator), generator).backward()
    missing = [n for n, p in task.network.named_parameters() if p.grad is None or not p.grad.isfinite().all()]
    assert not missing


@pytest.mark.slow
def test_inlier_ratio_on_a_real_pair(data_folder: Path) -> None:
    """Needs trained weights: WSDESC_PEER_WEIGHTS names their folder. Random matches reach 0.003."""
    weights = os.environ.get("WSDESC_PEER_WEIGHTS")
    if not weights:
        pytest.skip("set WSDESC_PEER_WEIGHTS to a folder of trained weights")
    (scene,) = read_scenes(data_folder / "indoor" / "test")
    pair = scene.pairs[0]
    q, p = (load_scan(scene, k, keypoints=300, voxel=0.025, rotated=False, seed=0) for k in (pair.i, pair.j))
    truth = q.T_work_file @ torch.from_numpy(pair.T_i_j) @ torch.linalg.inv(p.T_work_file)
    for name in NAMES:
        describe = peers.descriptor(name, weights=weights)
        matches = mutual_matches(*(describe(fragment.points, fragment.keypoints) for fragment in (p, q)))
        ratio = inlier_ratio(p.keypoints, q.keypoints, matches, truth)
        assert ratio > 0.1, f"{name}: {ratio:.3f}"
