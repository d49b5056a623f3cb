"""Mixtures of weights before and after an adaptation."""

from __future__ import annotations

import pytest
import torch

from wsdesc import WSDesc
from wsdesc.adaptation.mixing import SHARES, choose_mixture, mix
from wsdesc.adaptation.options import FULL_WEIGHTS
from wsdesc.adaptation.weights import WeightFiles
from wsdesc.descriptor.pretrained import RUN_WEIGHTS


@pytest.fixture
def both(tiny_start, tmp_path):
    """Fast and full weights before an adaptation, and other ones after it."""
    before = WeightFiles(tiny_start / RUN_WEIGHTS, tiny_start / FULL_WEIGHTS)
    after = WeightFiles(tmp_path / RUN_WEIGHTS, tmp_path / FULL_WEIGHTS)
    for old, new in zip(before, after, strict=True):
        network = WSDesc.from_pretrained(old)
        with torch.no_grad():
            for parameter in network.parameters():
                parameter += 1
        network.save(new)
    return before, after


def moved(before, mixed):
    """Return the share of the new weights in a mixture."""
    old, new = (list(WSDesc.from_pretrained(file).parameters()) for file in (before, mixed))
    changes = torch.cat([(b - a).detach().flatten() for a, b in zip(old, new, strict=True)])
    assert float(changes.max() - changes.min()) < 1e-5
    return float(changes.mean())


@pytest.mark.parametrize("share", [0.25, 0.5])
def test_a_mixture_lies_between_both(both, tmp_path, share):
    before, after = both
    assert moved(before.fast, mix(before.fast, after.fast, share, tmp_path / "mixed")) == pytest.approx(share)


@pytest.mark.parametrize(
    ("lost", "share"), [(0.0, 1.0), (0.004, 1.0), (0.006, 0.75), (0.015, 0.25), (0.2, 0.25)]
)
def test_the_largest_share_that_forgets_little_is_chosen(both, tmp_path, lost, share):
    before, after = both
    calls = []

    def measure(weights, step):
        calls.append(step)
        return 0.5 - lost * moved(before.fast, weights)

    mixture = choose_mixture(before, after, tmp_path, measure)
    assert mixture.share == share
    assert len(calls) == 2 + SHARES.index(share)
    assert mixture.synthetic == pytest.approx((0.5, 0.5 - lost * share), abs=1e-4)
    for old, new in zip(before, mixture.files, strict=True):
        assert moved(old, new) == pytest.approx(share)
    assert choose_mixture(before, after, tmp_path, measure) == mixture  # a resumed run measures nothing
    assert len(calls) == 2 + SHARES.index(share)


def test_one_network_alone_is_mixed(both, tmp_path):
    before, after = (WeightFiles(files.fast, None) for files in both)
    mixture = choose_mixture(before, after, tmp_path, lambda weights, step: -moved(before.fast, weights))
    assert mixture.files.full is None
    assert moved(before.fast, mixture.files.fast) == pytest.approx(0.25)
