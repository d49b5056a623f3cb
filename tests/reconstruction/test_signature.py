"""Signatures of scans of one place are similar."""

from collections.abc import Sequence

import pytest
import torch

from wsdesc.core.errors import InputError
from wsdesc.reconstruction.signature import (
    _ROWS,
    aggregate,
    cluster,
    codebook,
    normalize_signatures,
    similar_pairs,
)


def scan_signatures(descriptors, seed=0):
    """Compute signatures (N, S) of scans with descriptors (K, C) each."""
    centres = codebook(descriptors, seed)
    return normalize_signatures(torch.stack([aggregate(d, centres) for d in descriptors]))


def scans_of(places, each, seed=0, keypoints=300):
    """Make descriptors of scans: each place mixes its own clusters with common ones."""
    rng = torch.Generator().manual_seed(seed)
    common = torch.randn(10, 16, generator=rng)
    scans = []
    for _ in range(places):
        clusters = torch.cat([common, torch.randn(12, 16, generator=rng)])
        for _ in range(each):
            seen = clusters[torch.randint(len(clusters), (keypoints,), generator=rng)]
            noisy = seen + 0.4 * torch.randn(keypoints, 16, generator=rng)
            scans.append(torch.nn.functional.normalize(noisy, dim=1))
    return scans


def test_scans_of_one_place_are_paired():
    pairs = similar_pairs(scan_signatures(scans_of(places=10, each=4)), nearest=3)
    same = {(i, j) for i in range(40) for j in range(i + 1, 40) if i // 4 == j // 4}
    assert len(same & set(pairs)) >= 0.9 * len(same)
    assert len(pairs) < 2 * len(same)  # of 780
    assert pairs == sorted(set(pairs))
    assert all(i < j for i, j in pairs)


def test_signatures_are_deterministic():
    scans = scans_of(3, 3)
    assert (scan_signatures(scans, seed=4) == scan_signatures(scans, seed=4)).all()


def test_few_or_equal_descriptors():
    assert scan_signatures([torch.ones(1, 4), torch.ones(2, 4), torch.ones(3, 4)]).isfinite().all()
    equal = scan_signatures([torch.ones(3, 4)] * 3)
    assert similar_pairs(equal, nearest=9) == [(0, 1), (0, 2), (1, 2)]
    with pytest.raises(InputError, match="at least 1"):
        similar_pairs(equal, nearest=0)


def test_blocks_give_the_same_pairs():
    count = _ROWS + 40
    one = torch.nn.functional.normalize(
        torch.randn(count, 6, generator=torch.Generator().manual_seed(1)), dim=1
    )
    cosines = (one @ one.T).fill_diagonal_(-2)
    best = cosines.topk(2, dim=1).indices.tolist()
    assert similar_pairs(one, 2) == sorted(
        {(min(i, j), max(i, j)) for i, row in enumerate(best) for j in row}
    )


def test_descriptors_are_accessed_at_most_twice():
    scans = scans_of(3, 2)

    class Read(Sequence):
        accesses = 0

        def __len__(self):
            return len(scans)

        def __getitem__(self, k):
            Read.accesses += 1
            return scans[k]

    assert (scan_signatures(Read()) == scan_signatures(scans)).all()
    assert Read.accesses <= 2 * (len(scans) + 1)


def test_centres_are_the_means_of_clusters():
    rng = torch.Generator().manual_seed(0)
    centres = 10 * torch.eye(4, dtype=torch.float64)
    sample = centres.repeat(50, 1) + 0.01 * torch.randn(200, 4, generator=rng, dtype=torch.float64)
    result = cluster(sample, 4, rng)
    assert torch.cdist(centres, result).min(dim=1).values.max() < 0.02
