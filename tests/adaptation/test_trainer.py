"""`AdaptTrainer`: both losses in one training, the same number of keypoints in every step."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from wsdesc import WSDesc
from wsdesc.adaptation.replay import ReplayPool
from wsdesc.adaptation.sources import TaughtPairs
from wsdesc.adaptation.teachers import find_teachers
from wsdesc.adaptation.trainer import AdaptTrainer, UnmatchedPair
from wsdesc.core.rng import generator_of
from wsdesc.learning.options import TrainOptions


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def trainer(request, tiny_start):
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    model = WSDesc.from_pretrained(tiny_start)
    values = {"descriptor": model.options.model_dump(), "start": str(tiny_start), "self_training": "infonce"}
    options = TrainOptions.read(values | {"keypoints": 48, "steps": 2, "compile": False})
    trainer = AdaptTrainer(options, request.param)
    trainer.load_start(model)
    return trainer


def test_pairs_with_and_without_matches(trainer, scans):
    p, q = scans[0].points, scans[1].points
    few = torch.stack([torch.arange(20), torch.arange(20)], dim=1)
    matched = trainer.prepare(p, q, few, generator_of(1))
    unmatched = trainer.prepare(p, q, few[:0], generator_of(1))
    assert len(matched.p.keypoints) == len(unmatched.q.keypoints) == 48
    assert isinstance(unmatched, UnmatchedPair)
    assert not isinstance(matched, UnmatchedPair)
    result = trainer.step([matched])
    assert result.terms["matches"] > 0 == result.terms["rigidity"]
    result = trainer.step([unmatched])
    assert result.terms["rigidity"] >= 0 == result.terms["matches"]


def test_equal_rows_of_a_matched_pair_match(trainer, scans, reconstruction):
    teachers = find_teachers(scans, reconstruction)
    source = TaughtPairs(scans, teachers, ReplayPool(None, 0, 0), None, synthetic=0, rigidity=0, seed=0)
    pair, matches = source.pairs[0], source.matches[0]
    prepared = trainer.prepare(scans[pair.p].points, scans[pair.q].points, matches, generator_of(3))
    T = torch.from_numpy(pair.T_q_p)
    moved = prepared.p.keypoints.cpu().double() @ T[:3, :3].T + T[:3, 3]
    assert float((moved - prepared.q.keypoints.cpu()).norm(dim=1).max()) < 0.1


def test_low_overlap_is_drawn_more_often(scans, reconstruction):
    teachers = find_teachers(scans, reconstruction)
    source = TaughtPairs(
        scans, teachers, ReplayPool(None, 0, 0), None, synthetic=0.0, rigidity=0.0, seed=0
    )  # fmt: skip
    shares = np.diff([0.0, *source._bounds.tolist()])
    overlaps = [pair.overlap for pair in source.pairs]
    assert shares[np.argmin(overlaps)] > shares[np.argmax(overlaps)]
    first = [source.pair(k)[0] for k in range(10)]
    again = [source.pair(k)[0] for k in range(10)]
    assert all(a is b for a, b in zip(first, again, strict=True))
