"""Nearest, mutual and one-sided nearest neighbours between two sets of descriptors.

Distances are computed in blocks, by matrix products, so that the memory does not grow with the number of
pairs. Of equal distances, the smallest index wins. Keypoints without neighbours have equal descriptors, which
the rounding of the products would distinguish: all copies are replaced by the first one.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from wsdesc.core.devices import has_triton
from wsdesc.core.errors import InputError
from wsdesc.core.kernels import iterate_each

# Side of a block of the distance matrix: fits into a CPU core's cache, or occupies a GPU (256 MB).
_CPU_CHUNK, _GPU_CHUNK = 1024, 8192
_HASH_FACTOR = 0x1E3779B97F4A7C15  # odd; products wrap around


def nearest(source: Tensor, target: Tensor, chunk: int | None = None) -> tuple[Tensor, Tensor]:
    """Find the nearest target descriptor of each source descriptor.

    Args:
        source: Descriptors (K, C).
        target: Descriptors (L, C), L ≥ 1.
        chunk: Side of the blocks of the distance matrix (default: by device).

    Returns:
        Indices (K,) int64 into `target`, and distances (K,) in the precision of the descriptors.

    Raises:
        InputError: Shapes do not fit, values are not finite, or `target` is empty.
    """
    source, target = _check(source, target)
    if len(target) == 0:
        raise InputError("target has no descriptors, at least one is needed")
    index, _ = _arg_minima(source, target, chunk, columns=False)
    distance = torch.linalg.vector_norm(source - target[index], dim=1)  # (K,)
    return index, distance


def mutual_matches(
    source: Tensor, target: Tensor, chunk: int | None = None, *, allowed: Tensor | None = None
) -> Tensor:
    """Find the pairs of descriptors that are each other's nearest neighbour.

    Args:
        source, target, chunk: As in `nearest`; both sets may be empty.
        allowed: Pairs (K, L) bool among which the nearest ones are searched; None for all.

    Returns:
        Matches (M, 2) int64, pairs of source and target index, sorted by source index.
    """
    source, target = _check(source, target)
    if len(source) == 0 or len(target) == 0:
        return torch.empty(0, 2, dtype=torch.int64, device=source.device)
    to_target, to_source = _arg_minima(source, target, chunk, columns=True, allowed=allowed)
    rows = torch.arange(len(source), device=source.device)
    kept = to_source[to_target] == rows
    if allowed is not None:  # a row without allowed pairs has no nearest neighbour
        kept &= allowed[rows, to_target]
    return torch.stack([rows[kept], to_target[kept]], dim=1)  # (M, 2)


def one_sided_matches(
    source: Tensor, target: Tensor, chunk: int | None = None, *, allowed: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Find the pairs of descriptors of which at least one is the other's nearest neighbour.

    Compared with `mutual_matches`, they have more inliers and many more outliers, for solvers that tolerate
    them. Swapping the sets gives the same pairs. Arguments as in `mutual_matches`.

    Returns:
        Matches (M, 2) int64, sorted by source, then target index; and whether each is mutual, (M,) bool.
    """
    source, target = _check(source, target)
    if len(source) == 0 or len(target) == 0:
        empty = torch.empty(0, 2, dtype=torch.int64, device=source.device)
        return empty, empty[:, 0].bool()
    to_target, to_source = _arg_minima(source, target, chunk, columns=True, allowed=allowed)
    rows, columns = (torch.arange(len(side), device=source.device) for side in (source, target))
    # A pair is encoded as one number; mutual pairs occur twice.
    codes = torch.cat([rows * len(target) + to_target, to_source * len(target) + columns])
    codes, count = codes.unique(return_counts=True)
    if allowed is not None:  # a row or column without allowed pairs has no nearest neighbour
        kept = allowed.flatten()[codes]
        codes, count = codes[kept], count[kept]
    return torch.stack([codes // len(target), codes % len(target)], dim=1), count == 2


def _check(source: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Check both sets, and return them without gradients in their common precision."""
    if source.ndim != 2 or target.ndim != 2 or source.shape[1] != target.shape[1]:
        raise InputError(
            f"descriptors must be (K, C) and (L, C), not {tuple(source.shape)} and {tuple(target.shape)}"
        )
    dtype = torch.promote_types(torch.promote_types(source.dtype, target.dtype), torch.float32)
    source, target = source.detach().to(dtype), target.detach().to(dtype)
    for name, descriptors in (("source", source), ("target", target)):
        if not bool(descriptors.isfinite().all()):
            bad = int((~descriptors.isfinite().all(dim=1)).sum())
            raise InputError(
                f"{bad} of {len(descriptors)} {name} descriptors have values that are not finite"
            )
    return source, target


def _arg_minima(
    source: Tensor, target: Tensor, chunk: int | None, columns: bool, allowed: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Find the minimum of each row and, with `columns`, of each column of the distance matrix.

    Only the `allowed` pairs (K, L) count; without any, the index of a row or column is arbitrary.
    """
    if chunk is None:
        chunk = _CPU_CHUNK if source.device.type == "cpu" else _GPU_CHUNK
    if chunk < 1:
        raise InputError(f"chunk must be at least 1, not {chunk}")
    rows, cols = _Minima(source), _Minima(target)

    def search_rows(i: int) -> _Minima:
        """Find the minima of some rows, and return those of all columns within them."""
        a, own_cols = source[i : i + chunk], _Minima(target)
        for j in range(0, len(target), chunk):
            b = target[j : j + chunk]
            squared = torch.addmm(b.square().sum(1), a, b.T, alpha=-2)  # (chunk, chunk), less ‖a‖²
            if allowed is not None:
                squared.masked_fill_(~allowed[i : i + chunk, j : j + chunk], torch.inf)
            rows.update(i, j, squared, dim=1)
            if columns:
                own_cols.update(j, i, squared.add_(a.square().sum(1, keepdim=True)), dim=0)
        return own_cols

    each: Any = iterate_each if source.device.type == "cpu" else map
    for own_cols in each(search_rows, range(0, len(source), chunk)):
        cols.merge(0, own_cols.value, own_cols.index)
    if allowed is not None:  # the first copy of a descriptor may belong to a pair that is not allowed
        return rows.index, cols.index
    to_target = _first_copy(target)[rows.index]
    return to_target, _first_copy(source)[cols.index] if columns else cols.index


class _Minima:
    """Running minimum of each item and its index; of equal values, the earlier one is kept."""

    def __init__(self, items: Tensor) -> None:
        self.value = items.new_full((len(items),), torch.inf)
        self.index = torch.zeros(len(items), dtype=torch.int64, device=items.device)

    def update(self, at: int, other: int, block: Tensor, dim: int) -> None:
        """Compare the items from `at` on with a block of further values; its first index is `other`."""
        index = block.argmin(dim)  # the first of equal minima
        self.merge(at, block.gather(dim, index.unsqueeze(dim)).squeeze(dim), index + other)

    def merge(self, at: int, value: Tensor, index: Tensor) -> None:
        """Compare the items from `at` on with one further value each, and its index."""
        part = slice(at, at + len(value))
        better = value < self.value[part]
        self.value[part] = torch.where(better, value, self.value[part])
        self.index[part] = torch.where(better, index, self.index[part])


def _first_copy(descriptors: Tensor) -> Tensor:
    """Find the smallest index (K,) among the rows that equal each row.

    Rows with equal hashes are compared with the first of them; different rows have different hashes but for
    one case in 2⁶⁴. This takes fewer launches than `torch.unique`, and two in triton kernels.
    """
    if descriptors.is_cuda and has_triton():
        from wsdesc.matching import cuda

        if cuda.fits(descriptors):
            return cuda.first_copy(descriptors)
    rows = torch.arange(len(descriptors), device=descriptors.device)
    bits = (descriptors + 0.0).view(torch.int64 if descriptors.dtype == torch.float64 else torch.int32)
    mixed = (bits.long() + torch.arange(1, bits.shape[1] + 1, device=bits.device)) * _HASH_FACTOR
    mixed = (mixed ^ (mixed >> 29)) * _HASH_FACTOR
    column = 2 * torch.arange(bits.shape[1], device=bits.device) + 1
    keys, order = torch.sort(((mixed ^ (mixed >> 32)) * column).sum(1), stable=True)
    begins = torch.cat([rows[:1] == 0, keys[1:] != keys[:-1]])
    first = torch.empty_like(rows)
    first[order] = order[torch.where(begins, rows, 0).cummax(0).values]
    return torch.where((descriptors == descriptors[first]).all(1), first, rows)
