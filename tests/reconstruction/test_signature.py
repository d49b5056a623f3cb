"""Scans of one place are alike, those of others less."""

from collections.abc import Sequence

import pytest
import torch

from wsdesc.core.errors import InputError
from wsdesc.reconstruction.signature import _ROWS, candidate_pairs, find_kinds, signatures_of


def scans_of(places, each, seed=0, keypoints=300):
    """Descriptors: every place mixes its own kinds of surroundings, besides those that all have."""
    rng = torch.Generator().manual_seed(seed)
    common = torch.randn(10, 16, generator=rng)
    scans = []
    for _ in range(places):
        kinds = torch.cat([common, torch.randn(12, 16, generator=rng)])
        for _ in range(each):
            seen = kinds[torch.randint(len(kinds), (keypoints,), generator=rng)]
            noisy = seen + 0.4 * torch.randn(keypoints, 16, generator=rng)
            scans.append(torch.nn.functional.normalize(noisy, dim=1))
    return scans


def test_scans_of_one_place_find_each_other():
    pairs = candidate_pairs(signatures_of(scans_of(places=10, each=4)), nearest=3)
    same = {(i, j) for i in range(40) for j in range(i + 1, 40) if i // 4 == j // 4}
    assert len(same & set(pairs)) >= 0.9 * len(same)
    assert len(pairs) < 2 * len(same)  # of 780
    assert pairs == sorted(set(pairs))
    assert all(i < j for i, j in pairs)


def test_same_scans_same_bits():
    scans = scans_of(3, 3)
    assert (signatures_of(scans, seed=4) == signatures_of(scans, seed=4)).all()


def test_few_or_equal_descriptors():
    assert signatures_of([torch.ones(1, 4), torch.ones(2, 4), torch.ones(3, 4)]).isfinite().all()
    equal = signatures_of([torch.ones(3, 4)] * 3)
    assert candidate_pairs(equal, nearest=9) == [(0, 1), (0, 2), (1, 2)]
    with pytest.raises(InputError, match="at least 1"):
        candidate_pairs(equal, nearest=0)


def test_many_scans_are_compared_in_parts_with_the_same_result():
    count = _ROWS + 40
    one = torch.nn.functional.normalize(
        torch.randn(count, 6, generator=torch.Generator().manual_seed(1)), dim=1
    )
    alike = (one @ one.T).fill_diagonal_(-2)
    best = alike.topk(2, dim=1).indices.tolist()
    assert candidate_pairs(one, 2) == sorted(
        {(min(i, j), max(i, j)) for i, row in enumerate(best) for j in row}
    )


def test_descriptors_may_be_read_when_needed():
    scans = scans_of(3, 2)

    class Read(Sequence):
        asked = 0

        def __len__(self):
            return len(scans)

        def __getitem__(self, k):
            Read.asked += 1
            return scans[k]

    assert (signatures_of(Read()) == signatures_of(scans)).all()
    assert Read.asked <= 2 * (len(scans) + 1)


def test_kinds_are_the_means_of_clusters():
    rng = torch.Generator().manual_seed(0)
    centres = 10 * torch.eye(4, dtype=torch.float64)
    sample = centres.repeat(50, 1) + 0.01 * torch.randn(200, 4, generator=rng, dtype=torch.float64)
    kinds = find_kinds(sample, 4, rng)
    assert torch.cdist(centres, kinds).min(dim=1).values.max() < 0.02
