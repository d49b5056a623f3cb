"""Self-training: matches that a model finds are right, pairs it does not recognise give place to others."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from wsdesc import WSDesc, WSDescError
from wsdesc.cli import train as cli_learn
from wsdesc.datasets.synthetic import room_scans
from wsdesc.learning.options import TrainOptions
from wsdesc.learning.overlap import OverlapOptions
from wsdesc.learning.run import train
from wsdesc.learning.self_training import FoundPairs
from wsdesc.learning.sources import ScanPairs, drop_sparse

FEW = OverlapOptions(keypoints=300, least_inliers=12, least_overlap=0.15)


@pytest.fixture(scope="module")
def model():
    return WSDesc.from_pretrained("indoor-fast")


@pytest.fixture(scope="module")
def clouds(room):
    """Two overlapping views of a room, and one of another place."""
    stranger = max((f.points for f in room_scans(977, 2)), key=len)
    return [drop_sparse(torch.as_tensor(c), 0.3, 0.45) for c in (room.source, room.target, stranger)]


def truth(room):
    T = room.T_target_source.copy()
    source, target = (np.asarray(c, dtype=np.float64).mean(0) for c in (room.source, room.target))
    T[:3, 3] += T[:3, :3] @ source - target  # clouds are centred
    return T


def test_found_matches_are_right(model, clouds, room):
    p, q, matches = FoundPairs(ScanPairs(clouds, [(0, 1)], 0), model, FEW).pair(5)
    T = torch.as_tensor(truth(room), dtype=torch.float32)
    apart = (p[matches[:, 0]] @ T[:3, :3].T + T[:3, 3] - q[matches[:, 1]]).norm(dim=1)
    assert len(matches) > 500
    assert (apart < 0.15).float().mean() > 0.95


def test_a_pair_that_is_not_recognised_gives_place(model, clouds):
    source = FoundPairs(ScanPairs(clouds, [(0, 1), (0, 2), (2, 1)], 3), model, FEW)
    for number in range(4):
        p, q, _ = source.pair(number)
        assert p is clouds[0]
        assert q is clouds[1]


def test_strangers_alone_are_refused(model, clouds):
    with pytest.raises(WSDescError, match="none was confirmed"):
        FoundPairs(ScanPairs(clouds, [(0, 2)], 0), model, FEW).pair(0)


def test_it_trains_and_goes_on(model, clouds, tmp_path):
    options = TrainOptions.read(
        {
            "descriptor": model.options.model_dump(),
            "start": "indoor-fast",
            "self_training": "infonce",
            "steps": 4,
            "keypoints": 64,
        }
    )
    source = FoundPairs(ScanPairs(clouds, [(0, 1), (1, 0)], 0), model, FEW)
    whole = train(options, source, tmp_path / "whole")
    assert train(options, source, tmp_path / "parts", stop_after=0) is None
    assert train(options, source, tmp_path / "parts", resume=True).read_bytes() == whole.read_bytes()
    before, after = model.state_dict(), WSDesc.from_pretrained(whole).state_dict()
    assert any(not torch.equal(before[name], after[name]) for name in before)


RECIPES = sorted((Path(__file__).parents[2] / "recipes").glob("*.yaml"))


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.stem)
def test_a_recipe_can_be_followed_from_given_weights(recipe, tmp_path, monkeypatch):
    """The command says what a recipe leaves open; here it gets no further than to ask for scans."""

    def asked(scans, options, **more):
        raise LookupError(options)

    monkeypatch.setattr("wsdesc.learning.data.gather", asked)
    with pytest.raises(LookupError) as seen:
        cli_learn.train([tmp_path], config=recipe, start="indoor", steps=7, synthetic=0.25)
    (options,) = seen.value.args
    assert (options.start, options.steps, options.data.synthetic) == ("indoor", 7, 0.25)
    known = TrainOptions.load(recipe, start="indoor")
    assert options.data.window == known.data.window
    assert options.self_training == known.self_training


def test_it_needs_weights_to_start_from():
    with pytest.raises(WSDescError, match="start"):
        TrainOptions.read({"self_training": "infonce"})
    with pytest.raises(WSDescError, match="not both"):
        TrainOptions.read({"self_training": "infonce", "oracle": "infonce", "start": "indoor"})
