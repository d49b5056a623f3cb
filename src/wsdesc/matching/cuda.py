"""Triton kernels that find equal descriptors: two launches instead of about twenty."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_ROWS, _OTHERS = 16, 128  # descriptors of a program, and candidates that it compares them with at once
_MAX_COUNT, _MAX_LENGTH = 1 << 15, 128  # largest number and length of descriptors for an exhaustive search


def fits(descriptors: Tensor) -> bool:
    """Return whether the kernels take these descriptors (K, C)."""
    count, length = descriptors.shape
    return descriptors.dtype == torch.float32 and count <= _MAX_COUNT and length <= _MAX_LENGTH


def first_copy(descriptors: Tensor) -> Tensor:
    """Find the smallest index (K,) among the rows that equal each row of descriptors (K, C)."""
    count, length = descriptors.shape
    descriptors = descriptors.contiguous()
    keys = torch.empty(count, dtype=torch.int64, device=descriptors.device)
    first = torch.empty_like(keys)
    if count:
        shape = {"ROWS": _ROWS, "LENGTH": triton.next_power_of_2(length), "num_warps": 4}
        programs = (triton.cdiv(count, _ROWS),)
        _hash_rows[programs](descriptors, count, length, keys, **shape)
        _find_first[programs](descriptors, count, length, keys, first, OTHERS=_OTHERS, **shape)
    return first


@triton.jit
def _load_rows(descriptors, row, exists, length, LENGTH: tl.constexpr):
    column = tl.arange(0, LENGTH)
    used = exists[:, None] & (column < length)[None, :]
    return tl.load(descriptors + row[:, None] * length + column[None, :], used, 0.0) + 0.0  # no −0


@triton.jit(do_not_specialize=["count"])
def _hash_rows(descriptors, count, length, keys, ROWS: tl.constexpr, LENGTH: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    exists = row < count
    bits = _load_rows(descriptors, row, exists, length, LENGTH).to(tl.int32, bitcast=True).to(tl.int64)
    column = tl.arange(0, LENGTH)[None, :].to(tl.int64)
    mixed = (bits + column + 1) * 0x1E3779B97F4A7C15  # products wrap around
    mixed = (mixed ^ (mixed >> 29)) * 0x1E3779B97F4A7C15
    tl.store(keys + row, tl.sum((mixed ^ (mixed >> 32)) * (2 * column + 1), 1), exists)


@triton.jit(do_not_specialize=["count"])
def _find_first(
    descriptors, count, length, keys, first, ROWS: tl.constexpr, LENGTH: tl.constexpr, OTHERS: tl.constexpr
):
    """Find the first row with the same hash; a different one with the same hash does not count."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    exists = row < count
    key = tl.load(keys + row, exists, 0)
    best = tl.full((ROWS, OTHERS), 0x7FFFFFFF, tl.int32)
    for begin in range(0, (tl.program_id(0) + 1) * ROWS, OTHERS):
        other = begin + tl.arange(0, OTHERS)
        others = tl.load(keys + other, other < count, 0)
        equal = (others[None, :] == key[:, None]) & (other < count)[None, :]
        best = tl.minimum(best, tl.where(equal, other[None, :], 0x7FFFFFFF))
    index = tl.minimum(tl.min(best, 1), row)
    own = _load_rows(descriptors, row, exists, length, LENGTH)
    differs = (own != _load_rows(descriptors, index, exists, length, LENGTH)).to(tl.int32)
    tl.store(first + row, tl.where(tl.max(differs, 1) > 0, row, index).to(tl.int64), exists)
