"""Nearest and mutual nearest neighbours between two sets of descriptors.

The distances are computed block by block with matrix products: memory follows the block, not the
product of the two sets. Ties go to the smallest index. Equal descriptors, which keypoints without
surroundings have, would be told apart by the rounding of the products; they count as their first copy.
"""

from __future__ import annotations

import torch
from torch import Tensor

from wsdesc.core.errors import InputError

# Side of a block of the distance matrix: one that stays in a core's cache, one that fills a GPU (256 MB).
_CPU_CHUNK, _GPU_CHUNK = 1024, 8192


def nearest(source: Tensor, target: Tensor, chunk: int | None = None) -> tuple[Tensor, Tensor]:
    """The nearest target descriptor of each source descriptor.

    Args:
        source: descriptors (K, C).
        target: descriptors (L, C), L ≥ 1.
        chunk: side of the blocks the distances are computed in; None: chosen for the device.

    Returns:
        index (K,) int64 into `target`, distance (K,) in the precision of the descriptors.
    """
    source, target = _checked(source, target)
    if len(target) == 0:
        raise InputError("there is no target descriptor to be nearest to")
    index, _ = _arg_minima(source, target, chunk, columns=False)
    distance = torch.linalg.vector_norm(source - target[index], dim=1)  # (K,)
    return index, distance


def mutual(source: Tensor, target: Tensor, chunk: int | None = None) -> Tensor:
    """Pairs (source, target) that are each other's nearest neighbour: (M, 2) int64, by source index."""
    source, target = _checked(source, target)
    if len(source) == 0 or len(target) == 0:
        return torch.empty(0, 2, dtype=torch.int64, device=source.device)
    to_target, to_source = _arg_minima(source, target, chunk, columns=True)
    here = torch.arange(len(source), device=source.device)
    kept = to_source[to_target] == here
    return torch.stack([here[kept], to_target[kept]], dim=1)  # (M, 2)


def one_sided_matches(source: Tensor, target: Tensor, chunk: int | None = None) -> tuple[Tensor, Tensor]:
    """Pairs (source, target) of which at least one is the other's nearest neighbour.

    Returns them, (M, 2) int64, by source, then target index, and which of them are mutual, (M,) bool.
    Swapping the sides gives the same pairs. There are more right ones among them than among the mutual
    ones alone, and many more wrong ones: for solvers that can bear it.
    """
    source, target = _checked(source, target)
    if len(source) == 0 or len(target) == 0:
        nothing = torch.empty(0, 2, dtype=torch.int64, device=source.device)
        return nothing, nothing[:, 0].bool()
    to_target, to_source = _arg_minima(source, target, chunk, columns=True)
    here, there = (torch.arange(len(side), device=source.device) for side in (source, target))
    both = torch.cat([here * len(target) + to_target, to_source * len(target) + there])  # one number a pair
    pairs, count = both.unique(return_counts=True)
    return torch.stack([pairs // len(target), pairs % len(target)], dim=1), count == 2


def _checked(source: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    if source.ndim != 2 or target.ndim != 2 or source.shape[1] != target.shape[1]:
        raise InputError(
            f"descriptors must be (K, C) and (L, C), not {tuple(source.shape)} and {tuple(target.shape)}"
        )
    dtype = torch.promote_types(torch.promote_types(source.dtype, target.dtype), torch.float32)
    source, target = source.detach().to(dtype), target.detach().to(dtype)
    for name, descriptors in (("source", source), ("target", target)):
        if not bool(descriptors.isfinite().all()):
            bad = int((~descriptors.isfinite().all(dim=1)).sum())
            raise InputError(f"{bad} of {len(descriptors)} {name} descriptors hold NaN or infinity")
    return source, target


def _arg_minima(source: Tensor, target: Tensor, chunk: int | None, columns: bool) -> tuple[Tensor, Tensor]:
    """Where each row and, if asked for, each column of the distance matrix is smallest, in one pass."""
    if chunk is None:
        chunk = _CPU_CHUNK if source.device.type == "cpu" else _GPU_CHUNK
    if chunk < 1:
        raise InputError(f"chunk must be at least 1, not {chunk}")
    rows, cols = _Minima(source), _Minima(target)
    for i in range(0, len(source), chunk):
        a = source[i : i + chunk]
        for j in range(0, len(target), chunk):
            b = target[j : j + chunk]
            squared = torch.addmm(b.square().sum(1), a, b.T, alpha=-2)  # (chunk, chunk), less ‖a‖²
            rows.update(i, j, squared, dim=1)
            if columns:
                cols.update(j, i, squared.add_(a.square().sum(1, keepdim=True)), dim=0)
    to_target = _first_copy(target)[rows.index]
    return to_target, _first_copy(source)[cols.index] if columns else cols.index


class _Minima:
    """The smallest value seen so far for each item, and where; the earlier one stays in a tie."""

    def __init__(self, items: Tensor) -> None:
        self.value = items.new_full((len(items),), torch.inf)
        self.index = torch.zeros(len(items), dtype=torch.int64, device=items.device)

    def update(self, at: int, other: int, block: Tensor, dim: int) -> None:
        index = block.argmin(dim)  # torch promises the first of equal minima
        value = block.gather(dim, index.unsqueeze(dim)).squeeze(dim)
        here = slice(at, at + len(value))
        better = value < self.value[here]
        self.value[here] = torch.where(better, value, self.value[here])
        self.index[here] = torch.where(better, index + other, self.index[here])


def _first_copy(descriptors: Tensor) -> Tensor:
    """For each row the smallest index among the rows equal to it: (K,)."""
    distinct, group = torch.unique(descriptors, dim=0, return_inverse=True)
    here = torch.arange(len(descriptors), device=descriptors.device)
    first = here.new_full((len(distinct),), len(descriptors)).scatter_reduce(0, group, here, "amin")
    return first[group]
