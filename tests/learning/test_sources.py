"""Sources of pairs depend only on index and seed."""

from __future__ import annotations

import pytest
import torch

from wsdesc.core.rng import generator_of, random_rotation
from wsdesc.learning.sources import MixedPairs, RoomPairs, ScanPairs, drop_sparse, shuffled


def test_pair_depends_only_on_its_index(source):
    again = ScanPairs(source.clouds, source.pairs, seed=0)
    for index in (5, 0, 3):
        assert all(torch.equal(a, b) for a, b in zip(source.pair(index), again.pair(index), strict=True))
    epochs = [{id(source.pair(2 * epoch + k)[0]) for k in range(2)} for epoch in range(3)]
    assert all(len(epoch) == 2 for epoch in epochs), "each pair occurs once per epoch"


def test_each_epoch_is_a_permutation():
    epochs = [[shuffled(10 * epoch + k, 10, seed=1) for k in range(10)] for epoch in range(3)]
    assert all(sorted(epoch) == list(range(10)) for epoch in epochs)
    assert epochs[0] != epochs[1]


@pytest.mark.slow
def test_synthetic_rooms_are_equal_in_any_order():
    forward, backward = (
        RoomPairs(3, rooms=2, pairs_per_room=2, min_coverage=0.45, workers=1) for _ in range(2)
    )
    try:
        first = [forward.pair(n) for n in (0, 1)]
        second = [backward.pair(n) for n in (1, 0)][::-1]
        for a, b in zip(first, second, strict=True):
            assert all(torch.equal(x, y) for x, y in zip(a, b, strict=True))
        assert all(len(cloud) > 500 for pair in first for cloud in pair)
    finally:
        forward.close()
        backward.close()


def test_mixture_has_the_given_shares():
    class NamedSource:
        def __init__(self, name):
            self.name = name

        def pair(self, index):
            return self.name

        def close(self):
            self.closed = True

    a, b = NamedSource("a"), NamedSource("b")
    mixed = MixedPairs([a, b], [0.25, 0.75], seed=0)
    drawn = [mixed.pair(n) for n in range(2000)]
    assert 0.22 < drawn.count("a") / 2000 < 0.28
    mixed.close()
    assert a.closed
    assert b.closed


def test_sparse_points_are_dropped_at_any_density():
    generator = torch.Generator().manual_seed(0)
    flat = torch.rand(6000, 3, generator=generator) * torch.tensor([2.0, 2.0, 0.0])
    outliers = torch.tensor([[10.0, 10.0, 10.0], [12.0, 0.0, 3.0]])
    for cloud in (flat, flat[:2000]):
        remaining = drop_sparse(torch.cat([cloud, outliers]), 0.3, 0.45)
        assert 0.8 * len(cloud) < len(remaining) <= len(cloud)
        assert float((remaining - remaining.mean(0)).norm(dim=1).max()) < 2


def test_random_rotations_are_reproducible_and_proper():
    rotations = torch.stack([random_rotation(generator_of(0, n)) for n in range(200)])
    assert torch.equal(rotations[7], random_rotation(generator_of(0, 7)))
    assert torch.allclose(rotations.mT @ rotations, torch.eye(3).expand(200, 3, 3), atol=1e-6)
    assert torch.allclose(torch.linalg.det(rotations), torch.ones(200), atol=1e-6)
    assert float(rotations.mean(0).abs().max()) < 0.15, "no direction is preferred"
