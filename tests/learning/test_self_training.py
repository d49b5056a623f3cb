"""Self-training: proposed matches are correct, pairs that the model does not register are replaced."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from wsdesc import WSDesc, WSDescError
from wsdesc.datasets.synthetic import room_scans
from wsdesc.learning.options import TrainOptions
from wsdesc.learning.overlap import OverlapOptions
from wsdesc.learning.run import run_training
from wsdesc.learning.self_training import SelfMatchedPairs
from wsdesc.learning.sources import ScanPairs, drop_sparse

FEW_KEYPOINTS = OverlapOptions(keypoints=200, min_inliers=12, min_overlap=0.15)


@pytest.fixture(scope="module")
def model():
    return WSDesc.from_pretrained("indoor-fast")


@pytest.fixture(scope="module")
def clouds(room):
    """Two overlapping scans of a room, and one of another room."""
    other = max((f.points for f in room_scans(977, 2)), key=len)
    return [drop_sparse(torch.as_tensor(c), 0.3, 0.45) for c in (room.source, room.target, other)]


@pytest.fixture(scope="module")
def matched(model, clouds):
    return SelfMatchedPairs(ScanPairs(clouds, [(0, 1)], 0), model, FEW_KEYPOINTS)


def true_pose(room):
    """T_target_source of the centred clouds."""
    T = room.T_target_source.copy()
    source, target = (np.asarray(c, dtype=np.float64).mean(0) for c in (room.source, room.target))
    T[:3, 3] += T[:3, :3] @ source - target
    return T


def test_proposed_matches_are_correct(matched, room):
    p, q, matches = matched.pair(5)
    T = torch.as_tensor(true_pose(room), dtype=torch.float32)
    distances = (p[matches[:, 0]] @ T[:3, :3].T + T[:3, 3] - q[matches[:, 1]]).norm(dim=1)
    assert len(matches) > 500
    assert (distances < 0.15).float().mean() > 0.95


@pytest.mark.slow
def test_rejected_pair_is_replaced(model, clouds):
    source = SelfMatchedPairs(ScanPairs(clouds, [(0, 1), (0, 2), (2, 1)], 3), model, FEW_KEYPOINTS)
    for index in range(4):
        p, q, _ = source.pair(index)
        assert p is clouds[0]
        assert q is clouds[1]


@pytest.mark.slow
def test_scans_of_different_rooms_are_refused(model, clouds):
    with pytest.raises(WSDescError, match="registered none"):
        SelfMatchedPairs(ScanPairs(clouds, [(0, 2)], 0), model, FEW_KEYPOINTS).pair(0)


@pytest.mark.slow
def test_self_training_resumes_bit_for_bit(model, clouds, tmp_path):
    options = TrainOptions.read(
        {
            "descriptor": model.options.model_dump(),
            "start": "indoor-fast",
            "self_training": "infonce",
            "steps": 4,
            "keypoints": 64,
        }
    )
    source = SelfMatchedPairs(ScanPairs(clouds, [(0, 1), (1, 0)], 0), model, FEW_KEYPOINTS)
    whole = run_training(options, source, tmp_path / "whole")
    assert not run_training(options, source, tmp_path / "parts", stop_after=0).finished
    parts = run_training(options, source, tmp_path / "parts", resume=True)
    assert parts.weights.read_bytes() == whole.weights.read_bytes()
    before, after = model.state_dict(), WSDesc.from_pretrained(whole.weights).state_dict()
    assert any(not torch.equal(before[name], after[name]) for name in before)
