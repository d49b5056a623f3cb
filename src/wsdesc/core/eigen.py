"""Eigenvalues and eigenvectors of many symmetric 3 × 3 matrices, by Jacobi rotations in plain torch.

The batched solver of CUDA needs half a megabyte of memory per matrix. This one needs only the memory of the
result.
"""

from __future__ import annotations

import torch
from torch import Tensor

_SWEEPS = 6  # sweeps over the three pairs of axes; after five, the error is below rounding
_ROTATIONS = ((0, 1, 2), (0, 2, 1), (1, 2, 0))  # axes of the rotation, and the third one


def symmetric_eigen(matrices: Tensor) -> tuple[Tensor, Tensor]:
    """Diagonalise symmetric matrices (N, 3, 3), on any device.

    Returns:
        Eigenvalues (N, 3), ascending, and eigenvectors (N, 3, 3), unit vectors in the columns.
    """
    A = {(i, j): matrices[:, i, j].clone() for i in range(3) for j in range(i, 3)}
    columns = list(torch.eye(3).to(matrices).expand(len(matrices), 3, 3).unbind(-1))  # (N, 3) each
    for i, j, k in _ROTATIONS * _SWEEPS:
        off = A[i, j]
        theta = (A[j, j] - A[i, i]) / (2 * off)
        t = torch.copysign(1 / (theta.abs() + (theta.square() + 1).sqrt()), theta)
        t = torch.where(off == 0, 0.0, t)
        cosine = (t.square() + 1).rsqrt()
        sine = t * cosine
        A[i, i], A[j, j], A[i, j] = A[i, i] - t * off, A[j, j] + t * off, torch.zeros_like(off)
        ik, jk = (min(i, k), max(i, k)), (min(j, k), max(j, k))
        A[ik], A[jk] = cosine * A[ik] - sine * A[jk], sine * A[ik] + cosine * A[jk]
        c, s = cosine[:, None], sine[:, None]
        columns[i], columns[j] = c * columns[i] - s * columns[j], s * columns[i] + c * columns[j]
    values, order = torch.stack([A[0, 0], A[1, 1], A[2, 2]], 1).sort(1)
    vectors = torch.stack(columns, -1)  # (N, 3, 3)
    return values, vectors.gather(2, order[:, None].expand_as(vectors))
