"""The supervised oracle: matches under ground-truth poses, and training on them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from tiny_training import tiny
from wsdesc import WSDesc, WSDescError, learning
from wsdesc.core.rng import generator_of
from wsdesc.learning.match_trainer import MatchTrainer, matches_by_pose
from wsdesc.learning.options import TrainOptions
from wsdesc.learning.oracle import PosedPairs, PosedRooms, make_posed_room
from wsdesc.learning.run import run_training
from wsdesc.learning.sources import MixedPairs, RoomPairs, drop_sparse


@pytest.fixture(scope="module")
def posed(room):
    """Two clouds of a room and their poses; the world frame is that of the target."""
    clouds, poses = [], []
    for points, T in ((room.source, room.T_target_source), (room.target, np.eye(4))):
        points = torch.as_tensor(points)
        T_world_cloud = T.copy()
        T_world_cloud[:3, 3] += T[:3, :3] @ points.mean(0).double().numpy()
        clouds.append(drop_sparse(points, 0.3, 0.45)[::4])
        poses.append(T_world_cloud)
    return clouds, poses


@pytest.fixture
def source(posed):
    return PosedPairs(posed[0], [(0, 1), (1, 0)], posed[1], seed=0)


def test_matches_are_nearest_neighbours_under_the_pose(posed):
    (p, q), (T_world_p, T_world_q) = posed
    T_q_p = np.linalg.inv(T_world_q) @ T_world_p
    matches = matches_by_pose(p, q, T_q_p)
    moved = p @ torch.as_tensor(T_q_p[:3, :3], dtype=torch.float32).T + torch.as_tensor(T_q_p[:3, 3]).float()
    nearest = torch.cdist(moved, q).min(1)
    expected = torch.nonzero(nearest.values < 0.1).squeeze(1)
    assert abs(len(matches) - len(expected)) <= 2, "points at exactly 0.1 m may differ"
    assert (nearest.indices[matches[:, 0]] == matches[:, 1]).float().mean() > 0.999
    assert len(matches) > 0.3 * len(p)


def test_keypoints_of_both_clouds_coincide(source, posed):
    trainer = MatchTrainer(tiny(keypoints=48, oracle="batch-hard"))
    p, q, matches = source.pair(0)
    order = [i for i in (0, 1) if p is source.clouds[i]] + [i for i in (0, 1) if q is source.clouds[i]]
    T = np.linalg.inv(posed[1][order[1]]) @ posed[1][order[0]]
    prepared = trainer.prepare(p, q, matches, generator_of(0))
    moved = prepared.p.keypoints.double() @ torch.as_tensor(T[:3, :3]).T + torch.as_tensor(T[:3, 3])
    assert (moved - prepared.q.keypoints).norm(dim=1).max() < 0.1
    assert len(prepared.p.keypoints) == 48


@pytest.mark.slow
def test_synthetic_rooms_have_matches(monkeypatch):
    scans = make_posed_room(3, 0, 0.45)
    rooms = PosedRooms(RoomPairs(3, 1, 4, 0.45, 1, make_posed_room))
    monkeypatch.setattr(rooms._rooms, "pair", lambda index: (scans[0], scans[1]))  # no processes
    p, q, matches = rooms.pair(0)
    assert p.shape[1] == q.shape[1] == 3
    assert len(matches) >= 64
    a, b = p[matches[:, 0]].double(), q[matches[:, 1]].double()
    a0, b0 = a - a.mean(0), b - b.mean(0)
    U, _, V = torch.linalg.svd(a0.T @ b0)
    R = U @ torch.diag(torch.tensor([1.0, 1, torch.sign(torch.det(U @ V))], dtype=torch.float64)) @ V
    assert (a0 @ R - b0).norm(dim=1).median() < 0.04, "one pose fits all matches"


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["batch-hard", "infonce"])
def test_training_on_matches_lowers_the_loss(source, tmp_path, loss):
    losses = []
    options = tiny(steps=25, keypoints=48, oracle=loss, learning_rate=3e-3)
    run = run_training(
        options, source, tmp_path / loss, on_step=lambda state: losses.append(state.result.loss)
    )
    assert np.mean(losses[-6:]) < 0.97 * np.mean(losses[:6])
    assert WSDesc.from_pretrained(run.weights).support.size.item() != pytest.approx(1.2, abs=1e-6)
    row = json.loads((tmp_path / loss / "log.jsonl").read_text().splitlines()[-1])
    assert {"p_to_q", "q_to_p", "loss"} <= set(row)
    assert TrainOptions.load(tmp_path / loss / "options.yaml").oracle == loss


def test_resumed_oracle_gives_equal_bits(source, tmp_path):
    options = tiny(steps=2, oracle="infonce")
    whole = run_training(options, source, tmp_path / "whole")
    assert not run_training(options, source, tmp_path / "parts", stop_after=0).finished
    parts = run_training(options, source, tmp_path / "parts", resume=True)
    assert whole.weights.read_bytes() == parts.weights.read_bytes()


def test_pairs_without_poses_are_left_out(posed):
    clouds, poses = posed
    posed_pairs = PosedPairs([*clouds, clouds[0]], [(0, 1), (0, 2)], [*poses, None], seed=0)
    assert len(posed_pairs.pairs) == 1
    with pytest.raises(WSDescError, match="poses"):
        PosedPairs(clouds, [(0, 1)], [None, poses[1]], seed=0)


def test_sources_can_be_mixed(source):
    mixed = MixedPairs([source, source], [0.5, 0.5], seed=0)
    assert len(mixed.pair(3)) == 3


def test_no_other_module_of_learning_reads_poses():
    """Only oracle.py imports the reader of poses; it is imported for figures, the oracle and nothing else."""
    folder = Path(learning.__file__).parent
    texts = {path.name: path.read_text() for path in folder.glob("*.py")}
    assert {name for name, text in texts.items() if "read_pose" in text} == {"oracle.py"}
    importers = {name for name, text in texts.items() if "wsdesc.learning.oracle" in text}
    assert importers == {"training.py", "ablations.py"}
