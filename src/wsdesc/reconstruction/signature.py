"""Compare scans as a whole by short signatures made of their descriptors.

The descriptors of all scans are clustered (k-means). The signature of a scan is the sum of the differences of
its descriptors from their cluster centres: a vector of locally aggregated descriptors (VLAD). Scans of one
place have similar signatures.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from wsdesc.core.errors import InputError

CLUSTERS = 32
_SAMPLE = 20_000  # descriptors of all scans that are clustered
_ITERATIONS = 15  # of k-means
_ROWS = 512  # scans that are compared with all others in one block


def similar_pairs(
    signatures: Tensor,
    nearest: int,
    searching: Sequence[int] | None = None,
    origins: Sequence[int | None] | None = None,
) -> list[tuple[int, int]]:
    """Select pairs of scans in which one is among the `nearest` most similar scans of the other.

    Pairs (i, j), i < j, are in ascending order. Memory grows linearly with the number of scans.

    Args:
        signatures: (N, S) unit vectors.
        nearest: Similar scans per scan, at least 1.
        searching: Scans that look for similar ones; None: all.
        origins: Number of a group per scan, or None. Scans of one group are not paired.
    """
    if nearest < 1:
        raise InputError(f"the number of similar scans must be at least 1, not {nearest}")
    count = len(signatures)
    rows = torch.arange(count) if searching is None else torch.tensor(searching, dtype=torch.int64)
    groups = torch.tensor([-1 - k if g is None else g for k, g in enumerate(origins or [None] * count)])
    pairs = set()
    for part in rows.split(_ROWS):
        cosines = signatures[part] @ signatures.T  # (_ROWS, N)
        cosines[groups[part][:, None] == groups] = -np.inf
        best = cosines.argsort(dim=1, descending=True, stable=True)[:, : min(nearest, count - 1)]
        possible = cosines.gather(1, best).isfinite()
        for i, row, usable in zip(part.tolist(), best.tolist(), possible.tolist(), strict=True):
            pairs |= {(min(i, j), max(i, j)) for j, use in zip(row, usable, strict=True) if use}
    return sorted(pairs)


def codebook(descriptors: Sequence[Tensor], seed: int = 0) -> Tensor:
    """Compute cluster centres (CLUSTERS, C) of the descriptors (K, C) of scans."""
    generator = torch.Generator().manual_seed(seed)
    share = max(1, _SAMPLE // max(1, len(descriptors)))
    sample = torch.cat([d[torch.randperm(len(d), generator=generator)[:share]] for d in descriptors])
    return cluster(sample.double(), min(CLUSTERS, len(sample)), generator)


def aggregate(descriptors: Tensor, centres: Tensor) -> Tensor:
    """Aggregate the differences of descriptors from their nearest centres: a unit vector (CLUSTERS · C,)."""
    descriptors = descriptors.double()
    nearest = torch.cdist(descriptors, centres).argmin(dim=1)  # (K,)
    sums = torch.zeros_like(centres).index_add_(0, nearest, descriptors - centres[nearest])
    # The square root of the length keeps large clusters, such as walls, from dominating.
    length = sums.norm(dim=1, keepdim=True)
    scaled = torch.where(length > 0, sums / length.clamp(min=1e-12).sqrt(), sums)
    return torch.nn.functional.normalize(scaled.flatten(), dim=0).float()


def normalize_signatures(aggregates: Tensor) -> Tensor:
    """Subtract from aggregates (N, S) what all scans have in common, which distinguishes none of them."""
    return torch.nn.functional.normalize(aggregates - aggregates.mean(0), dim=1)


def cluster(sample: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Find cluster centres (count, C) of descriptors (M, C) by k-means, initialized by k-means++."""
    chosen = [int(torch.randint(len(sample), (1,), generator=generator))]
    distance = (sample - sample[chosen[0]]).square().sum(1)  # squared, to the nearest chosen descriptor
    while len(chosen) < count:
        weights = distance if float(distance.sum()) > 0 else torch.ones_like(distance)
        threshold = torch.rand(1, generator=generator, dtype=torch.float64) * weights.sum()
        chosen.append(min(int(torch.searchsorted(weights.cumsum(0), threshold)), len(sample) - 1))
        distance = torch.minimum(distance, (sample - sample[chosen[-1]]).square().sum(1))
    centres = sample[chosen]
    for _ in range(_ITERATIONS):
        nearest = torch.cdist(sample, centres).argmin(dim=1)
        size = torch.bincount(nearest, minlength=count)[:, None]
        sums = torch.zeros_like(centres).index_add_(0, nearest, sample)
        centres = torch.where(size > 0, sums / size.clamp(min=1), centres)
    return centres
