"""Covariance of each pose of a pose graph.

Only the diagonal blocks (6, 6) of the inverse of the sparse Hessian are computed, by a block Cholesky
factorization and the recursion of Takahashi: the inverse is needed only where the factor is not zero.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array, eye_array
from scipy.sparse.linalg import splu

from wsdesc.core.geometry import Floats
from wsdesc.core.kernels import kernel

_SIZE = 6  # of a block


def diagonal_blocks_of_inverse(matrix: csc_array) -> Floats:
    """Compute the diagonal blocks (N, 6, 6) of the inverse of a symmetric positive definite (6N, 6N) matrix.

    Raises:
        np.linalg.LinAlgError: The matrix is not positive definite.
    """
    count = matrix.shape[0] // _SIZE
    if count == 0:
        return np.zeros((0, _SIZE, _SIZE))
    blocks = matrix.tobsr((_SIZE, _SIZE))
    rows = np.repeat(np.arange(count), np.diff(blocks.indptr))
    order = _elimination_order(rows, blocks.indices, count)
    position = np.empty(count, np.int64)
    position[order] = np.arange(count)

    i, j = position[rows], position[blocks.indices]
    start, below = _fill_pattern(i, j, count)
    diagonal = np.zeros((count, _SIZE, _SIZE))
    lower = np.zeros((len(below), _SIZE, _SIZE))  # blocks (i, j), i > j, by columns
    diagonal[i[i == j]] = blocks.data[i == j]
    under = i > j
    keys = np.repeat(np.arange(count), np.diff(start)) * count + below  # ascending
    lower[np.searchsorted(keys, j[under] * count + i[under])] = blocks.data[under]

    inverse = np.empty_like(diagonal)  # of the diagonal after elimination
    _factorize(start, below, diagonal, lower, inverse)
    _invert(start, below, lower, inverse)
    return np.asarray(inverse[position])


def _elimination_order(rows: NDArray[np.int64], columns: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Choose an order of the blocks with little fill, by minimum degree."""
    pattern = csc_array((np.full(len(rows), -1e-3), (rows, columns)), shape=(count, count))
    factor = splu(csc_array(pattern + count * eye_array(count)), permc_spec="MMD_AT_PLUS_A")
    return np.argsort(factor.perm_c).astype(np.int64)


def _fill_pattern(
    i: NDArray[np.int64], j: NDArray[np.int64], count: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return where the Cholesky factor has blocks: starts of the columns, and row indices below j."""
    columns: list[set[int]] = [set() for _ in range(count)]
    for row, column in zip(i[i > j].tolist(), j[i > j].tolist(), strict=True):
        columns[column].add(row)
    for column in columns:
        if column:
            parent = min(column)
            columns[parent] |= column - {parent}
    sizes = [len(column) for column in columns]
    start = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    return start, np.array([row for column in columns for row in sorted(column)], dtype=np.int64)


@kernel
def _factorize(start, below, diagonal, lower, inverse):
    """Eliminate block by block; `lower` becomes L with unit diagonal, `inverse` that of the pivots.

    Updates are products L Lᵀ: without that symmetry, rounding errors grow from block to block.
    """
    for j in range(len(diagonal)):
        first, last = start[j], start[j + 1]
        root = np.linalg.inv(np.linalg.cholesky(diagonal[j]))
        for a in range(first, last):
            lower[a] = lower[a] @ root.T
        for b in range(first, last):
            k, at = below[b], start[below[b]]
            diagonal[k] -= lower[b] @ lower[b].T
            for a in range(b + 1, last):  # row indices of both columns ascend
                while below[at] < below[a]:
                    at += 1
                lower[at] -= lower[a] @ lower[b].T
        for a in range(first, last):
            lower[a] = lower[a] @ root
        inverse[j] = root.T @ root


@kernel
def _invert(start, below, lower, inverse):
    """Replace the inverse pivots by the diagonal blocks of the inverse matrix, from the last column on."""
    blocks = np.empty_like(lower)  # of the inverse, where L is not zero
    for j in range(len(inverse) - 1, -1, -1):
        first, last = start[j], start[j + 1]
        for a in range(first, last):
            blocks[a] = -(inverse[below[a]] @ lower[a])
        for b in range(first, last):
            at = start[below[b]]
            for a in range(b + 1, last):
                while below[at] < below[a]:
                    at += 1
                blocks[a] -= blocks[at] @ lower[b]
                blocks[b] -= blocks[at].T @ lower[a]
        for a in range(first, last):
            inverse[j] -= lower[a].T @ blocks[a]
        inverse[j] = 0.5 * (inverse[j] + inverse[j].T)  # rounding errors that are not symmetric would grow
