"""The supervised oracle: true matches are true, its losses do what they say, it learns from them."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from wsdesc import WSDesc, WSDescError
from wsdesc.core.rng import generator_of
from wsdesc.learning.match_trainer import InfoNCELoss, MatchedTrainer, coincident
from wsdesc.learning.options import TrainOptions
from wsdesc.learning.oracle import PosedPairs, PosedRooms, make_posed_room
from wsdesc.learning.run import train
from wsdesc.learning.sources import MixedPairs, ScanPairs, drop_sparse
from wsdesc.learning.trainer import Trainer

TINY = {"descriptor": {"width": 0.0625, "support_start": 1.2, "resolution": 8}, "keypoints": 48}


def tiny(**more) -> TrainOptions:
    return TrainOptions.read({**TINY, **more})


@pytest.fixture(scope="module")
def posed(room):
    """Two clouds of a room and their poses; the world is the target's own frame."""
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


def distances(pair, T_q_p):
    p, q, matches = pair
    T = torch.as_tensor(T_q_p, dtype=torch.float32)
    return (p[matches[:, 0]] @ T[:3, :3].T + T[:3, 3] - q[matches[:, 1]]).norm(dim=1)


def test_true_matches_are_the_nearest_within_the_bound(posed):
    (p, q), (T_world_p, T_world_q) = posed
    T_q_p = np.linalg.inv(T_world_q) @ T_world_p
    matches = coincident(p, q, T_q_p)
    moved = p @ torch.as_tensor(T_q_p[:3, :3], dtype=torch.float32).T + torch.as_tensor(T_q_p[:3, 3]).float()
    every = torch.cdist(moved, q).min(1)
    expected = torch.nonzero(every.values < 0.1).squeeze(1)
    assert abs(len(matches) - len(expected)) <= 2, "points on the very bound may differ"
    assert (every.indices[matches[:, 0]] == matches[:, 1]).float().mean() > 0.999
    assert len(matches) > 0.3 * len(p)


def test_keypoints_of_both_clouds_are_the_same_places(source, posed):
    trainer = MatchedTrainer(tiny(rotate=False, oracle="batch-hard"))
    p, q, matches = source.pair(0)
    order = [i for i in (0, 1) if p is source.clouds[i]] + [i for i in (0, 1) if q is source.clouds[i]]
    T = np.linalg.inv(posed[1][order[1]]) @ posed[1][order[0]]
    prepared = trainer.prepare(p, q, matches, generator_of(0))
    moved = prepared.p.keypoints.double() @ torch.as_tensor(T[:3, :3]).T + torch.as_tensor(T[:3, 3])
    assert (moved - prepared.q.keypoints).norm(dim=1).max() < 0.1
    assert len(prepared.p.keypoints) == 48


def test_synthetic_rooms_bring_their_matches(monkeypatch):
    made = make_posed_room(3, 0, 0.45)
    rooms = PosedRooms(3, rooms=1, pairs_per_room=4, share=0.45, workers=1)
    monkeypatch.setattr(rooms._rooms, "pair", lambda number: (made[0], made[1]))  # without processes
    p, q, matches = rooms.pair(0)
    assert p.shape[1] == q.shape[1] == 3
    assert len(matches) >= 64
    a, b = p[matches[:, 0]].double(), q[matches[:, 1]].double()
    a0, b0 = a - a.mean(0), b - b.mean(0)
    U, _, V = torch.linalg.svd(a0.T @ b0)
    turn = U @ torch.diag(torch.tensor([1.0, 1, torch.sign(torch.det(U @ V))], dtype=torch.float64)) @ V
    assert (a0 @ turn - b0).norm(dim=1).median() < 0.04, "one rigid motion brings all matches together"


def test_infonce_is_the_cross_entropy_without_those_nearby():
    positions = torch.tensor([[0.0, 0, 0], [0.05, 0, 0], [1.0, 0, 0]])
    anchor = torch.nn.functional.normalize(torch.randn(3, 8, generator=generator_of(0)), dim=1)
    positive = torch.nn.functional.normalize(torch.randn(3, 8, generator=generator_of(1)), dim=1)
    s = ((anchor @ positive.T) / 0.07).double()
    rows = [[0, 2], [1, 2], [2, 0, 1]]  # who competes in each row, its own match first
    expected = sum(torch.logsumexp(s[k, r], 0) - s[k, k] for k, r in enumerate(rows)) / 3
    assert InfoNCELoss()(anchor, positive, positions).item() == pytest.approx(expected.item(), rel=1e-5)
    with pytest.raises(WSDescError, match="temperature"):
        InfoNCELoss(temperature=0)


@pytest.mark.parametrize("loss", ["batch-hard", "infonce"])
def test_it_learns_to_tell_matches(source, tmp_path, loss):
    seen = []
    options = tiny(steps=25, oracle=loss, learning_rate=3e-3)
    weights = train(options, source, tmp_path / loss, watch=lambda p: seen.append(p.report.loss))
    assert np.mean(seen[-6:]) < 0.97 * np.mean(seen[:6])
    assert WSDesc.from_pretrained(weights).support.size.item() != pytest.approx(1.2, abs=1e-6)
    row = json.loads((tmp_path / loss / "log.jsonl").read_text().splitlines()[-1])
    assert {"there", "back", "loss"} <= set(row)
    assert TrainOptions.load(tmp_path / loss / "options.yaml").oracle == loss


def test_it_stops_and_goes_on(source, tmp_path):
    options = tiny(steps=4, oracle="infonce")
    whole = train(options, source, tmp_path / "whole")
    assert train(options, source, tmp_path / "parts", stop_after=0) is None
    assert whole.read_bytes() == train(options, source, tmp_path / "parts", resume=True).read_bytes()


def test_pairs_without_poses_are_left_out(posed):
    clouds, poses = posed
    kept = PosedPairs([*clouds, clouds[0]], [(0, 1), (0, 2)], [*poses, None], seed=0)
    assert len(kept.pairs) == 1
    with pytest.raises(WSDescError, match="poses"):
        PosedPairs(clouds, [(0, 1)], [None, poses[1]], seed=0)


def test_sources_can_be_mixed(source):
    mixed = MixedPairs([source, source], [0.5, 0.5], seed=0)
    assert len(mixed.pair(3)) == 3


def test_a_training_begins_with_given_weights(posed, tmp_path):
    torch.manual_seed(5)
    given = WSDesc(**{**TINY["descriptor"], "support_start": 1.0})
    given.save(tmp_path / "given.safetensors")
    pairs = ScanPairs(posed[0], [(0, 1)], seed=0)
    options = tiny(steps=1, skip_above=1e-9, start=str(tmp_path / "given.safetensors"))
    begun = WSDesc.from_pretrained(train(options, pairs, tmp_path / "run"))  # its one step is skipped
    assert all(torch.equal(t, begun.state_dict()[name]) for name, t in given.state_dict().items())
    other = tiny(start=options.start, descriptor={**TINY["descriptor"], "width": 0.125})
    with pytest.raises(WSDescError, match="width"):
        train(other, pairs, tmp_path / "other")


def test_without_the_option_no_trainer_sees_a_match(source, tmp_path):
    """The weakly supervised trainer has no place for ground truth: it refuses a source that brings it."""
    assert not hasattr(Trainer(tiny()), "true_loss")
    with pytest.raises(TypeError):
        train(tiny(steps=1), source, tmp_path)
