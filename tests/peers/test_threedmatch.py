"""3DMatch's network: exact fields, matches of true poses, a training, and bad input."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from scipy.spatial.transform import Rotation
from torch import Tensor

from wsdesc import peers, write_points
from wsdesc.core.errors import InputError
from wsdesc.core.geometry import inverse, make_pose, transform
from wsdesc.peers.threedmatch import (
    CELL,
    SIDE,
    TRUNCATION,
    TdfNetwork,
    TdfOptions,
    ThreeDMatchTask,
    distance_fields,
    match_scans,
)
from wsdesc.peers.training import read_clouds, train_peer


def bumps(seed: int = 0, points: int = 4000) -> Tensor:
    """Points of a wavy surface of 1 m², 1 m in front of the camera."""
    g = torch.Generator().manual_seed(seed)
    xy = torch.rand(points, 2, generator=g) - 0.5
    z = 1 + 0.1 * torch.sin(9 * xy[:, :1]) * torch.cos(7 * xy[:, 1:])
    return torch.cat([xy, z], 1)


@pytest.fixture
def posed(tmp_path: Path) -> Path:
    """Write three scans of one surface in different frames, with their poses."""
    folder = tmp_path / "scans"
    folder.mkdir()
    world = bumps().double().numpy()
    for k in range(3):
        T_world_scan = make_pose(Rotation.from_rotvec([0, 0, 0.2 * k]).as_matrix(), [0.1 * k, 0, 0.05 * k])
        write_points(folder / f"cloud_bin_{k}.ply", transform(world[k::3], inverse(T_world_scan)))
        np.savetxt(folder / f"cloud_bin_{k}.info.txt", T_world_scan, header="scene 0 0", comments="")
    return folder


def test_fields_agree_with_brute_force() -> None:
    points = bumps()
    keys = points[[0, 17]]
    fields = distance_fields(points, keys)
    axis = torch.arange(SIDE) - SIDE // 2.0
    centres = torch.stack(torch.meshgrid(axis, axis, axis, indexing="ij"), -1).reshape(-1, 3)
    for key, field in zip(keys, fields, strict=True):
        cells = ((points - key) / CELL).floor()
        cells = cells[(cells.abs() <= SIDE).all(1)]
        expected = (1 - torch.cdist(centres, cells).amin(1) / TRUNCATION).clamp(min=0)
        torch.testing.assert_close(field, expected.view(SIDE, SIDE, SIDE), atol=1e-5, rtol=0)


def test_a_keypoint_far_from_all_points_has_an_empty_field() -> None:
    fields = distance_fields(bumps(), torch.tensor([[5.0, 5.0, 5.0]]))
    assert float(fields.abs().max()) == 0


def test_descriptors_follow_translations_and_not_rotations(tmp_path: Path) -> None:
    torch.manual_seed(0)
    save_file(TdfNetwork().state_dict(), tmp_path / "3dmatch.safetensors")
    describe = peers.descriptor("3dmatch", weights=tmp_path)
    points = bumps()
    keys = points[:3]
    descriptors = describe(points, keys)
    assert descriptors.shape == (3, 512)
    shift = torch.tensor([0.5, -1.0, 2.0])  # exact in float32: the cells stay the same
    moved = describe(points + shift, keys + shift)
    feet = describe(points / 0.3048, keys / 0.3048, 1 / 0.3048)
    R = torch.from_numpy(Rotation.from_rotvec([0.5, 0, 0]).as_matrix()).float()
    turned = describe(points @ R.T, keys @ R.T)
    apart = float((descriptors[0] - descriptors[1]).norm())
    assert float((moved - descriptors).norm(dim=1).max()) < 0.2 * apart
    assert float((feet - descriptors).norm(dim=1).max()) < 0.2 * apart
    assert float((turned - descriptors).norm(dim=1).max()) > 0.2 * apart


def test_matches_are_the_same_place_of_the_world(posed: Path) -> None:
    clouds = read_clouds([posed], 1.0, poses=True)
    matches = match_scans(clouds, 0.03, 50)
    assert {(match.p, match.q) for match in matches} == {(p, q) for p in range(3) for q in range(3) if p != q}
    for match in matches:
        p = transform(match.points_p.double().numpy(), clouds.poses[match.p])
        q = transform(match.points_q.double().numpy(), clouds.poses[match.q])
        assert np.linalg.norm(p - q, axis=1).max() <= 0.03


def test_a_batch_holds_matched_fields(posed: Path) -> None:
    clouds = read_clouds([posed], 1.0, poses=True)
    task = ThreeDMatchTask(TdfOptions(batch=16, least_matches=50), clouds, torch.device("cpu"))
    a, b = task.batch(torch.Generator().manual_seed(0))
    again, _ = task.batch(torch.Generator().manual_seed(0))
    assert a.shape == b.shape == (16, SIDE, SIDE, SIDE)
    assert torch.equal(a, again)
    assert float(a.amax((1, 2, 3)).min()) == 1.0  # a keypoint is a point of the scan


@pytest.mark.slow
def test_a_trained_network_is_a_peer(posed: Path, tmp_path: Path) -> None:
    run = train_peer("3dmatch", posed, tmp_path / "run", options=TdfOptions(batch=8), steps=1, device="cpu")
    points = bumps()
    assert peers.descriptor("3dmatch", weights=run.folder)(points, points[:2]).shape == (2, 512)


def test_a_scan_without_a_pose_is_named(posed: Path, tmp_path: Path) -> None:
    (posed / "cloud_bin_1.info.txt").unlink()
    with pytest.raises(InputError, match=r"cloud_bin_1\.info\.txt"):
        train_peer("3dmatch", posed, tmp_path / "run", device="cpu")
