"""Which scans look alike as a whole: some numbers a scan, made of its descriptors, quick to compare.

Comparing all descriptors of all pairs of scans would take the time that is to be saved. So the descriptors of
all scans are sorted into a few kinds (k-means), and a scan is known by how its own differ from the mean
of each kind (a vector of locally aggregated descriptors). Scans of one place share kinds and differences.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from wsdesc.core.errors import InputError

KINDS = 32
_SAMPLE = 20_000  # descriptors of all scans that the kinds are found from
_ROUNDS = 15  # of k-means
_ROWS = 512  # scans that are compared with all others at a time


def candidate_pairs(signatures: Tensor, nearest: int) -> list[tuple[int, int]]:
    """Pairs (i, j), i < j, ascending, in which one scan is among the `nearest` most similar of the other.

    signatures: (N, S) of the scans, of length 1 each. Memory grows with N, not with its square.
    """
    if nearest < 1:
        raise InputError(f"the number of similar scans must be at least 1, not {nearest}")
    found = set()
    for start in range(0, len(signatures), _ROWS):
        alike = signatures[start : start + _ROWS] @ signatures.T  # (_ROWS, N) cosines
        alike[torch.arange(len(alike)), torch.arange(start, start + len(alike))] = -np.inf
        best = alike.argsort(dim=1, descending=True, stable=True)[:, : min(nearest, len(signatures) - 1)]
        found |= {(min(i, j), max(i, j)) for i, row in enumerate(best.tolist(), start) for j in row}
    return sorted(found)


def signatures_of(descriptors: Sequence[Tensor], seed: int = 0) -> Tensor:
    """(N, S) what tells scans apart, of length 1, from the descriptors (K, C) of each; K may differ.

    Each scan's descriptors are asked for twice, and none are held: they may be read when they are asked for.
    """
    generator = torch.Generator().manual_seed(seed)
    share = max(1, _SAMPLE // max(1, len(descriptors)))
    sample = torch.cat([d[torch.randperm(len(d), generator=generator)[:share]] for d in descriptors])
    kinds = find_kinds(sample.double(), min(KINDS, len(sample)), generator)
    signatures = torch.stack([signature(d.double(), kinds).float() for d in descriptors])  # (N, KINDS · C)
    # What all scans have in common tells none of them apart.
    return torch.nn.functional.normalize(signatures - signatures.mean(0), dim=1)


def signature(descriptors: Tensor, kinds: Tensor) -> Tensor:
    """(KINDS · C,) sums of the differences from each kind, their sizes evened out, of length 1."""
    kind = torch.cdist(descriptors, kinds).argmin(dim=1)  # (K,)
    sums = torch.zeros_like(kinds).index_add_(0, kind, descriptors - kinds[kind])
    # A frequent kind (wall) would drown the others: direction counts fully, size by its root.
    length = sums.norm(dim=1, keepdim=True)
    evened = torch.where(length > 0, sums / length.clamp(min=1e-12).sqrt(), sums)
    return torch.nn.functional.normalize(evened.flatten(), dim=0)


def find_kinds(sample: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """(count, C) means of k-means, begun with descriptors (M, C) chosen at random far from each other."""
    chosen = [int(torch.randint(len(sample), (1,), generator=generator))]
    nearest = (sample - sample[chosen[0]]).square().sum(1)
    while len(chosen) < count:
        weights = nearest if float(nearest.sum()) > 0 else torch.ones_like(nearest)
        at = torch.rand(1, generator=generator, dtype=torch.float64) * weights.sum()
        chosen.append(min(int(torch.searchsorted(weights.cumsum(0), at)), len(sample) - 1))
        nearest = torch.minimum(nearest, (sample - sample[chosen[-1]]).square().sum(1))
    kinds = sample[chosen]
    for _ in range(_ROUNDS):
        kind = torch.cdist(sample, kinds).argmin(dim=1)
        number = torch.bincount(kind, minlength=count)[:, None]
        sums = torch.zeros_like(kinds).index_add_(0, kind, sample)
        kinds = torch.where(number > 0, sums / number.clamp(min=1), kinds)
    return kinds
