"""Graph of matches that could belong to one rigid pose.

A rigid transformation preserves distances. Two matches are compatible, an edge of the graph, if the distance
between their source points and that between their target points differ little. Two outliers often are
compatible by chance, but seldom have many compatible partners in common. This number of common partners sorts
the partners of a match. A row of the graph is a row of bits, so that 64 matches are counted in a few
instructions.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wsdesc.core.geometry import Floats
from wsdesc.core.kernels import inline, kernel, run_in_chunks

MAX_PARTNERS = 64  # partners of a match: the bits of one word
_CHUNK = 64  # rows per task of a thread
_ONE = np.uint64(1)


def compatibility_bits(p: Floats, q: Floats, tolerance: float, min_length: float) -> NDArray[np.uint64]:
    """Build the graph of matches p[:, i] ↔ q[:, i], both (3, M), as bits.

    Args:
        tolerance: Largest difference of the two lengths of an edge.
        min_length: Least length of an edge in both scans. Neighbouring matches preserve their distance under
            any pose and do not determine its rotation.

    Returns:
        (M, ⌈M / 64⌉); the bit for i and j is bit j % 64 of word j // 64 in row i.
    """
    count = p.shape[1]
    bits = np.zeros((count, -(-count // 64)), dtype=np.uint64)
    if count:
        run_in_chunks(_fill_bits, count, p, q, tolerance, min_length, bits, chunk=_CHUNK)
    return bits


def best_partners(
    p: Floats, q: Floats, tolerance: float, bits: NDArray[np.uint64]
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Find the compatible partners of each match that have most partners in common with it.

    Returns:
        partners (M, MAX_PARTNERS), most common partners first, −1 where there are no more. Among equals, the
        partner whose lengths differ less comes first, so that the order of matches does not matter.
        common (M, MAX_PARTNERS), the number of common partners.
    """
    count = p.shape[1]
    partners = np.full((count, MAX_PARTNERS), -1, dtype=np.int32)
    common = np.zeros((count, MAX_PARTNERS), dtype=np.int32)
    if count:
        run_in_chunks(_rank_partners, count, p, q, tolerance, bits, partners, common, chunk=_CHUNK)
    return partners, common


@inline
def count_bits(word: Any) -> Any:
    """Count the bits that are set; the compiler turns this pattern into one instruction."""
    word -= (word >> np.uint64(1)) & np.uint64(0x5555555555555555)
    word = (word & np.uint64(0x3333333333333333)) + ((word >> np.uint64(2)) & np.uint64(0x3333333333333333))
    word = (word + (word >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64((word * np.uint64(0x0101010101010101)) >> np.uint64(56))


@inline
def is_set(bits: Any, i: int, j: int) -> Any:
    return (bits[i, j >> 6] >> np.uint64(j & 63)) & _ONE != np.uint64(0)


@inline
def length(x: Any, i: int, j: int) -> Any:
    dx, dy, dz = x[0, j] - x[0, i], x[1, j] - x[1, i], x[2, j] - x[2, i]
    return math.sqrt(dx * dx + dy * dy + dz * dz)


@inline
def stretch(p: Any, q: Any, tolerance: float, i: int, j: int) -> Any:
    """Return the squared change of an edge's length over the tolerance; 0 … 1 for compatible matches."""
    s = (length(p, i, j) - length(q, i, j)) / tolerance
    return s * s


@kernel(types="int64, int64, float64[:, ::1], float64[:, ::1], float64, float64, uint64[:, ::1]")
def _fill_bits(start: int, stop: int, p: Any, q: Any, tolerance: float, min_length: float, bits: Any) -> None:
    count = p.shape[1]
    edge = np.zeros(64 * bits.shape[1], dtype=np.bool_)  # bytes first: the compiler vectorises this loop
    for i in range(start, stop):
        for j in range(count):
            a, b = length(p, i, j), length(q, i, j)
            edge[j] = (abs(a - b) <= tolerance) & (min(a, b) >= min_length)
        edge[i] = False
        for w in range(bits.shape[1]):
            word = np.uint64(0)
            for b in range(64):
                word |= np.uint64(edge[64 * w + b]) << np.uint64(b)
            bits[i, w] = word


@kernel(
    types="int64, int64, float64[:, ::1], float64[:, ::1], float64, uint64[:, ::1], int32[:, ::1], "
    "int32[:, ::1]",
)
def _rank_partners(
    start: int, stop: int, p: Any, q: Any, tolerance: float, bits: Any, partners: Any, common: Any
) -> None:
    count, words = bits.shape
    candidates = np.empty(count, dtype=np.int64)
    shared = np.empty(count, dtype=np.int64)
    frequency = np.zeros(count + 1, dtype=np.int64)  # number of candidates for each number of common partners
    value = np.empty(MAX_PARTNERS)
    for i in range(start, stop):
        edges = 0
        for j in range(count):
            if is_set(bits, i, j):
                total = 0
                for w in range(words):
                    total += count_bits(bits[i, w] & bits[j, w])
                candidates[edges] = j
                shared[edges] = total
                frequency[total] += 1
                edges += 1

        # Candidates with too few common partners are not sorted: in a dense graph this saves most work.
        least, more = count, 0
        while least > 0 and more + frequency[least] < MAX_PARTNERS:
            more += frequency[least]
            least -= 1
        kept = 0
        for c in range(edges):
            frequency[shared[c]] = 0
            if shared[c] < least:
                continue
            rank_value = shared[c] - 0.5 * stretch(p, q, tolerance, i, candidates[c])
            if kept == MAX_PARTNERS and rank_value <= value[kept - 1]:
                continue
            at = min(kept, MAX_PARTNERS - 1)
            while at > 0 and value[at - 1] < rank_value:
                value[at] = value[at - 1]
                partners[i, at], common[i, at] = partners[i, at - 1], common[i, at - 1]
                at -= 1
            value[at] = rank_value
            partners[i, at], common[i, at] = candidates[c], shared[c]
            kept = min(kept + 1, MAX_PARTNERS)
