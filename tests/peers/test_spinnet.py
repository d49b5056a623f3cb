"""SpinNet: supports, voxels, invariances, and the published weights on a real pair."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from scipy.spatial.transform import Rotation
from torch import Tensor

from peer_weights import published_folder, save_random
from surfaces import waves
from wsdesc import peers
from wsdesc.evaluation import inlier_ratio
from wsdesc.evaluation.scans import load_scan
from wsdesc.evaluation.scenes import read_scenes
from wsdesc.matching import mutual_matches
from wsdesc.peers.spinnet import SpinNet, SpinNetSettings
from wsdesc.peers.spinnet.network import SpinNetNetwork
from wsdesc.peers.spinnet.patches import align_with_z, gather_patches
from wsdesc.peers.spinnet.point_layer import VoxelGrid, cpu, reference

SMALL = SpinNetSettings(cells=(9, 10, 20), patch=256)  # quick


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("weights")
    save_random(SpinNetNetwork(), folder / "spinnet-3dmatch.safetensors", "module.")
    return folder


@pytest.fixture(scope="module")
def peer(weights: Path) -> SpinNet:
    return SpinNet(weights, SMALL)


def grid_of(settings: SpinNetSettings) -> VoxelGrid:
    return VoxelGrid.of(
        settings.radius, settings.cells, settings.voxel_radius, settings.samples, torch.device("cpu")
    )


def slots_as_specified(patch: Tensor, grid: VoxelGrid, weight: Tensor, bias: Tensor) -> Tensor:
    """Fill the slots of each voxel one by one, as the published ball query does: (16, rad, ele, azi)."""
    cells = (len(grid.distances), len(grid.elevations), len(grid.azimuths))
    result = torch.empty(len(bias), *cells)
    for k, s in enumerate(grid.distances.tolist()):
        for j, beta in enumerate(grid.elevations.tolist()):
            for i, alpha in enumerate(grid.azimuths.tolist()):
                centre = s * torch.tensor(
                    [math.sin(beta) * math.cos(alpha), math.sin(beta) * math.sin(alpha), math.cos(beta)]
                )
                inside = ((patch - centre).norm(dim=1) < grid.voxel_radius).nonzero()[:, 0].tolist()
                first = inside[0] if inside else 0
                slots = (inside + [first] * grid.samples)[: grid.samples]
                offsets = torch.stack([patch[slot] - centre for slot in slots])
                repeated = torch.tensor([n > 0 and slot == slots[0] for n, slot in enumerate(slots)])
                offsets[repeated] = 0.0
                turn = float(grid.turns[i])
                R = torch.tensor(
                    [
                        [math.cos(turn), math.sin(turn), 0],
                        [-math.sin(turn), math.cos(turn), 0],
                        [0, 0, 1],
                    ]
                )
                result[:, k, j, i] = (offsets @ R.T @ weight.T + bias).relu().amax(0)
    return result


@pytest.mark.parametrize("compute", [cpu.point_layer, reference.point_layer])
def test_voxels_are_those_of_the_published_ball_query(peer: SpinNet, compute: object) -> None:
    cloud, keypoint = waves(), torch.tensor([[0.0, 0.0, 2.03]])
    settings = SpinNetSettings(cells=(4, 6, 8), patch=128, samples=5, voxel_radius=0.06)
    patches = align_with_z(gather_patches(cloud, keypoint, settings.radius, settings.patch), -keypoint)
    grid, layer = grid_of(settings), peer.network.point_weights()
    expected = slots_as_specified(patches[0], grid, *layer)
    signal = compute(patches, grid, *layer)[0]  # type: ignore[operator]
    torch.testing.assert_close(signal, expected, rtol=1e-4, atol=1e-5)


def test_torch_and_compiled_voxels_agree(peer: SpinNet) -> None:
    cloud = waves()
    keypoints = torch.cat([cloud[:6], torch.tensor([[5.0, 5, 5]])])  # the last one has no points
    patches = align_with_z(gather_patches(cloud, keypoints, SMALL.radius, SMALL.patch), -keypoints)
    arguments = (grid_of(SMALL), *peer.network.point_weights())
    compiled, plain = cpu.point_layer(patches, *arguments), reference.point_layer(patches, *arguments)
    # A point on the border of a voxel may belong to it or not.
    assert float(((compiled - plain).abs().amax(1) > 1e-3).float().mean()) < 1e-3


def test_patches_repeat_points_and_end_with_the_keypoint() -> None:
    keypoint = torch.tensor([[1.0, 1, 1]])
    cloud = keypoint + torch.tensor([[0.1, 0, 0], [5.0, 0, 0], [0, 0.2, 0], [0, 0, 0.29]])
    (patch,) = gather_patches(cloud, keypoint, 0.3, 8)
    expected = (cloud - keypoint)[[0, 2, 3, 0, 2, 3, 0]]
    torch.testing.assert_close(patch, torch.cat([expected, torch.zeros(1, 3)]))
    (filled,) = gather_patches(cloud, keypoint, 0.3, 8, repeat=False)
    torch.testing.assert_close(filled, torch.cat([expected[:3], torch.zeros(5, 3)]))


def test_patches_draw_distinct_points_where_there_are_many() -> None:
    cloud = 0.1 * torch.rand(500, 3, generator=torch.Generator().manual_seed(0))
    (patch,) = gather_patches(cloud, torch.full((1, 3), 0.05), 0.3, 100)
    assert len(patch[:-1].unique(dim=0)) == 99


@pytest.mark.parametrize("normal", [[0.0, 0, 1], [0.0, 0, -1], [1.0, 2, -3]])
def test_normals_are_turned_to_z(normal: list[float]) -> None:
    direction = torch.nn.functional.normalize(torch.tensor([normal]), dim=1)
    plane = torch.randn(1, 200, 3, generator=torch.Generator().manual_seed(0))
    plane -= (plane @ direction.T) * direction
    turned = align_with_z(plane, towards=direction)
    assert float(turned[..., 2].abs().max()) < 1e-5
    torch.testing.assert_close(turned.norm(dim=-1), plane.norm(dim=-1))


def test_a_turn_by_one_azimuth_cell_moves_the_signal_by_one_cell(peer: SpinNet) -> None:
    cloud, keypoints = waves(), waves()[:5]
    patches = align_with_z(gather_patches(cloud, keypoints, SMALL.radius, SMALL.patch), -keypoints)
    R = torch.from_numpy(Rotation.from_rotvec([0, 0, 2 * math.pi / SMALL.cells[2]]).as_matrix()).float()
    arguments = (grid_of(SMALL), *peer.network.point_weights())
    before, after = (cpu.point_layer(p, *arguments) for p in (patches, patches @ R.T))
    assert float(((before.roll(1, dims=-1) - after).abs().amax(1) > 1e-3).float().mean()) < 1e-3
    torch.testing.assert_close(
        peer.network(before), peer.network(before.roll(1, dims=-1)), rtol=1e-4, atol=1e-5
    )


def test_rotation_about_the_viewpoint_keeps_descriptors(peer: SpinNet) -> None:
    cloud = waves()
    keypoints = cloud[(cloud[:, :2].abs() < 0.3).all(1)][:12]
    R = torch.from_numpy(Rotation.random(random_state=1).as_matrix()).float()
    before, after = peer(cloud, keypoints), peer(cloud @ R.T, keypoints @ R.T)
    # The azimuth is divided into cells, so a free rotation about z changes the maximum a little.
    assert float(((before - after).norm(dim=1) / before.norm(dim=1)).max()) < 0.02


def test_descriptors_do_not_depend_on_batch_unit_or_far_points(peer: SpinNet) -> None:
    cloud = waves()
    keypoints = cloud[:10]
    whole = peer(cloud, keypoints)
    single = torch.cat([peer(cloud, keypoint[None]) for keypoint in keypoints])
    torch.testing.assert_close(whole, single, rtol=1e-4, atol=1e-4)
    scaled = peer(1024 * cloud, 1024 * keypoints, 1024.0)
    torch.testing.assert_close(whole, scaled, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_tiny_supports_have_finite_descriptors(peer: SpinNet, count: int) -> None:
    line = torch.linspace(0.01, 0.05, count)[:, None] * torch.tensor([[1.0, 0, 0]])
    descriptors = peer(line, torch.tensor([[0.0, 0, 0], [9.0, 9, 9]]))
    assert descriptors.shape == (2, 32)
    assert bool(descriptors.isfinite().all())


def test_published_weights_are_complete(data_folder: Path) -> None:
    folder = published_folder(data_folder)
    for name in ("spinnet", "spinnet-eth", "spinnet-kitti"):
        peers.descriptor(name, weights=folder)


@pytest.mark.slow
def test_inlier_ratio_on_a_real_pair(data_folder: Path) -> None:
    """The published weights reach 53 % where FPFH reaches 14 %; rotation changes descriptors by < 5 %."""
    peer = peers.descriptor("spinnet", weights=published_folder(data_folder))
    (scene,) = read_scenes(data_folder / "indoor" / "test")
    pair = next(pair for pair in scene.pairs if (pair.i, pair.j) == (0, 5))  # overlap 0.45, 21° apart
    settings = {"keypoints": 500, "voxel": 0.0, "rotated": False, "seed": 0}
    q, p = (load_scan(scene, k, **settings) for k in (pair.i, pair.j))  # type: ignore[arg-type]
    descriptors = [peer(scan.points, scan.keypoints) for scan in (p, q)]
    matches = mutual_matches(*descriptors)
    ratio = inlier_ratio(p.keypoints, q.keypoints, matches, torch.from_numpy(pair.T_i_j))
    assert 0.47 < ratio < 0.60
    R = torch.from_numpy(Rotation.random(random_state=3).as_matrix()).float()
    unit = torch.nn.functional.normalize
    turned = unit(peer(p.points @ R.T, p.keypoints[:40] @ R.T), dim=1)
    change = (turned - unit(descriptors[0][:40], dim=1)).norm(dim=1).median()
    assert float(change) < 0.05 * float(torch.pdist(unit(descriptors[0], dim=1)).median())


def test_the_order_of_the_points_hardly_matters(peer: SpinNet) -> None:
    """It changes which points are drawn, not the surface."""
    cloud = waves()
    order = torch.randperm(len(cloud), generator=torch.Generator().manual_seed(0))
    before, after = peer(cloud, cloud[:8]), peer(cloud[order], cloud[:8])
    assert float(((before - after).norm(dim=1) / before.norm(dim=1)).max()) < 0.02
