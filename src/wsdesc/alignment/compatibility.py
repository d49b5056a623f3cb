"""Which matches could belong to one rigid motion: a graph over matches, and who shares partners with whom.

A rigid motion keeps distances. Two matches are compatible, an edge of the graph, if the distance between
their source points and that between their target points differ by little. Two wrong matches often are so
by chance; that they have many compatible partners in common as well is rare. This second-order count
therefore sorts the partners of a match. A row of the graph is a row of bits, so that a count is a handful of
instructions for 64 matches.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from wsdesc.core.kernels import inline, kernel, run_in_chunks

CLOSEST = 64  # partners kept of a match: the bits of one word
_CHUNK = 64  # rows a thread takes at a time
_ONE = np.uint64(1)


def compatibility_bits(
    p: NDArray[np.float64], q: NDArray[np.float64], within: float, shortest: float
) -> NDArray[np.uint64]:
    """The graph of matches p[:, i] ↔ q[:, i], both (3, M), as bits.

    Args:
        within: most that the two distances of an edge may differ.
        shortest: an edge must reach this length in both clouds. Matches side by side keep their distance
            whatever the motion does, and tell nothing about its rotation.

    Returns:
        (M, ⌈M / 64⌉); the bit for i and j is bit j % 64 of word j // 64 in row i.
    """
    count = p.shape[1]
    bits = np.zeros((count, -(-count // 64)), dtype=np.uint64)
    if count:
        run_in_chunks(_fill_bits, count, p, q, within, shortest, bits, chunk=_CHUNK)
    return bits


def closest_partners(
    p: NDArray[np.float64], q: NDArray[np.float64], within: float, bits: NDArray[np.uint64]
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """The compatible partners of each match that share most partners with it.

    Returns:
        partners (M, CLOSEST), most in common first, −1 where there are no more; of partners with as many in
        common the one comes first whose distances differ less, so that the order of matches does not matter.
        common (M, CLOSEST), the number of partners in common.
    """
    count = p.shape[1]
    partners = np.full((count, CLOSEST), -1, dtype=np.int32)
    common = np.zeros((count, CLOSEST), dtype=np.int32)
    if count:
        run_in_chunks(_rank_partners, count, p, q, within, bits, partners, common, chunk=_CHUNK)
    return partners, common


@inline
def ones(word: Any) -> Any:
    """The number of bits set; the compiler knows this pattern and makes one instruction of it."""
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
    return np.sqrt(dx * dx + dy * dy + dz * dz)


@inline
def stretch(p: Any, q: Any, within: float, i: int, j: int) -> Any:
    """How far an edge is from keeping its length, 0 … 1 for compatible matches: squared, as a cost is."""
    s = (length(p, i, j) - length(q, i, j)) / within
    return s * s


@kernel
def _fill_bits(start: int, stop: int, p: Any, q: Any, within: float, shortest: float, bits: Any) -> None:
    count = p.shape[1]
    edge = np.zeros(64 * bits.shape[1], dtype=np.bool_)  # bytes first: this loop is done four at a time
    for i in range(start, stop):
        for j in range(count):
            a, b = length(p, i, j), length(q, i, j)
            edge[j] = (abs(a - b) <= within) & (min(a, b) >= shortest)
        edge[i] = False
        for w in range(bits.shape[1]):
            word = np.uint64(0)
            for b in range(64):
                word |= np.uint64(edge[64 * w + b]) << np.uint64(b)
            bits[i, w] = word


@kernel
def _rank_partners(
    start: int, stop: int, p: Any, q: Any, within: float, bits: Any, partners: Any, common: Any
) -> None:
    count, words = bits.shape
    candidates = np.empty(count, dtype=np.int32)
    shared = np.empty(count, dtype=np.int32)
    often = np.zeros(count + 1, dtype=np.int32)  # how many candidates share that many
    value = np.empty(CLOSEST)
    for i in range(start, stop):
        found = 0
        for j in range(count):
            if is_set(bits, i, j):
                total = 0
                for w in range(words):
                    total += ones(bits[i, w] & bits[j, w])
                candidates[found] = j
                shared[found] = total
                often[total] += 1
                found += 1

        # Only those with enough in common are sorted in: in a dense graph that spares most of the work.
        least, more = count, 0
        while least > 0 and more + often[least] < CLOSEST:
            more += often[least]
            least -= 1
        kept = 0
        for c in range(found):
            often[shared[c]] = 0
            if shared[c] < least:
                continue
            worth = shared[c] - 0.5 * stretch(p, q, within, i, candidates[c])
            if kept == CLOSEST and worth <= value[kept - 1]:
                continue
            at = min(kept, CLOSEST - 1)
            while at > 0 and value[at - 1] < worth:
                value[at] = value[at - 1]
                partners[i, at], common[i, at] = partners[i, at - 1], common[i, at - 1]
                at -= 1
            value[at] = worth
            partners[i, at], common[i, at] = candidates[c], shared[c]
            kept = min(kept + 1, CLOSEST)
