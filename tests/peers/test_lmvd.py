"""LMVD: cameras, depth images, invariances, and the published weights on a real pair."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from scipy.spatial.transform import Rotation
from torch import Tensor

from peer_weights import published_folder, save_random
from surfaces import waves
from wsdesc import peers
from wsdesc.evaluation import inlier_ratio
from wsdesc.evaluation.scans import load_scan
from wsdesc.evaluation.scenes import read_scenes
from wsdesc.matching import mutual_matches
from wsdesc.peers.lmvd import Lmvd
from wsdesc.peers.lmvd.network import Embedding, SoftViewPooling, ViewNetwork
from wsdesc.peers.lmvd.render import cpu, reference

NEAR, FAR = 0.1, 6.0


def camera_tensors() -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    focal = 1 / math.tan(math.pi / 6)
    projection = torch.zeros(4, 4)
    projection[0, 0] = projection[1, 1] = focal
    projection[2, 2], projection[2, 3] = -(FAR + NEAR) / (FAR - NEAR), -2 * FAR * NEAR / (FAR - NEAR)
    projection[3, 2] = -1.0
    return {
        "rho": 0.3 + 0.4 * torch.rand(8, generator=generator),
        "phi": 1.5 * torch.rand(8, generator=generator),
        "theta": 6.0 * torch.rand(8, generator=generator),
        "up": torch.tensor([0.0, -1.0, 0.0]),
        "proj_mat": projection,
    }


@pytest.fixture(scope="module")
def peer(tmp_path_factory: pytest.TempPathFactory) -> Lmvd:
    folder = tmp_path_factory.mktemp("weights")
    save_file(camera_tensors(), folder / "lmvd-renderer.safetensors")
    save_random(ViewNetwork(), folder / "lmvd-cnn.safetensors")
    save_random(SoftViewPooling(), folder / "lmvd-pool.safetensors")
    save_random(Embedding(), folder / "lmvd-embed.safetensors")
    return Lmvd(folder)


def clip_matrices(peer: Lmvd, keypoints: Tensor) -> Tensor:
    normals = torch.tensor([[0.0, 0, -1]]).expand_as(keypoints)
    clip: Tensor = peer.cameras(keypoints, normals, 1.0)
    return clip.flatten(0, 1)


def test_cameras_look_at_the_keypoint(peer: Lmvd) -> None:
    keypoints = waves()[:3]
    clip = clip_matrices(peer, keypoints).view(3, 8, 4, 4)
    centre = clip @ torch.cat([keypoints, torch.ones(3, 1)], dim=1)[:, None, :, None]
    x, y, _, w = centre[..., 0].unbind(-1)
    assert float((x / w).abs().max()) < 1e-5
    assert float((y / w).abs().max()) < 1e-5
    torch.testing.assert_close(w, peer.cameras.rho.expand(3, 8), rtol=1e-4, atol=1e-4)  # depth: the distance


def test_images_of_torch_and_of_the_kernel_agree(peer: Lmvd) -> None:
    cloud = waves()
    clip = clip_matrices(peer, cloud[:3])
    compiled, plain = cpu.render_depth(cloud, clip, 0.025), reference.render_depth(cloud, clip, 0.025)
    assert float((compiled > 0).float().mean()) > 0.1
    assert float(((compiled - plain).abs() > 1e-4).float().mean()) < 1e-3


@pytest.mark.parametrize("render", [cpu.render_depth, reference.render_depth])
def test_the_nearest_disc_wins(peer: Lmvd, render: object) -> None:
    keypoint = torch.tensor([[0.0, 0, 2]])
    clip = clip_matrices(peer, keypoint)[:1]
    eye = -torch.linalg.inv(clip[0, [0, 1, 3], :3]) @ clip[0, [0, 1, 3], 3]
    towards = torch.nn.functional.normalize(eye - keypoint[0], dim=0)
    points = torch.stack([keypoint[0], keypoint[0] + 0.1 * towards])
    (image,) = render(points, clip, 0.03)  # type: ignore[operator]
    depth = float(peer.cameras.rho[0])
    assert float(image[32, 32]) == pytest.approx(depth - 0.1, abs=1e-4)
    assert float(image[0, 0]) == 0.0
    # The near disc has the world radius 0.03, at a depth where the image is 2 · tan 30° · depth wide.
    radius = 0.03 / (2 * math.tan(math.pi / 6) * (depth - 0.1)) * 63
    assert int((image > 0).sum()) == pytest.approx(math.pi * radius**2, rel=0.15)


def test_turns_of_all_images_do_not_matter(peer: Lmvd) -> None:
    images = torch.rand(2, 8, 64, 64, generator=torch.Generator().manual_seed(0))
    turned = images.rot90(1, dims=(-2, -1))
    torch.testing.assert_close(peer._describe(images), peer._describe(turned), rtol=1e-3, atol=1e-4)


def test_rotation_about_up_keeps_descriptors(peer: Lmvd) -> None:
    cloud = waves()
    keypoints = cloud[(cloud[:, :2].abs() < 0.3).all(1)][:6]
    R = torch.from_numpy(Rotation.from_rotvec([0, 0.7, 0]).as_matrix()).float()  # `up` is −y
    before, after = peer(cloud, keypoints), peer(cloud @ R.T, keypoints @ R.T)
    assert float((before - after).norm(dim=1).max()) < 0.03


def test_descriptors_have_unit_length_in_any_batch_and_unit(peer: Lmvd) -> None:
    cloud = waves()
    whole = peer(cloud, cloud[:5])
    torch.testing.assert_close(whole.norm(dim=1), torch.ones(5))
    single = torch.cat([peer(cloud, keypoint[None]) for keypoint in cloud[:5]])
    torch.testing.assert_close(whole, single, rtol=1e-3, atol=1e-4)
    scaled = peer(1024 * cloud, 1024 * cloud[:5], 1024.0)
    torch.testing.assert_close(whole, scaled, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_tiny_clouds_have_finite_descriptors(peer: Lmvd, count: int) -> None:
    line = torch.linspace(0.01, 0.05, count)[:, None] * torch.tensor([[1.0, 0, 0]])
    descriptors = peer(line, torch.tensor([[0.0, 0, 0], [0.0, -2, 0]]))
    assert bool(descriptors.isfinite().all())


@pytest.mark.slow
def test_inlier_ratio_on_a_real_pair(data_folder: Path) -> None:
    peer = peers.descriptor("lmvd", weights=published_folder(data_folder))
    (scene,) = read_scenes(data_folder / "indoor" / "test")
    pair = next(pair for pair in scene.pairs if (pair.i, pair.j) == (0, 1))  # overlap 0.8, 5° apart
    settings = {"keypoints": 500, "voxel": 0.0, "rotated": False, "seed": 0}
    q, p = (load_scan(scene, k, **settings) for k in (pair.i, pair.j))  # type: ignore[arg-type]
    matches = mutual_matches(*(peer(scan.points, scan.keypoints) for scan in (p, q)))
    ratio = inlier_ratio(p.keypoints, q.keypoints, matches, torch.from_numpy(pair.T_i_j))
    assert 0.42 < ratio < 0.54  # FPFH reaches 0.25
