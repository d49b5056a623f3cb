"""Spectral matching: weights of correspondences from their pairwise compatibility.

A rigid transformation preserves distances. Correct correspondences are therefore compatible with each other
and form a cluster in the compatibility matrix. Its principal eigenvector measures the membership of each
correspondence in the largest cluster.
"""

from __future__ import annotations

import torch
from torch import Tensor


def spectral_weights(source: Tensor, target: Tensor, *, sigma_d: float = 0.1, iterations: int = 10) -> Tensor:
    """Compute the spectral weights w_sm of the correspondences source[i] ↔ target[i].

    Args:
        source: Points (M, 3).
        target: Their matches (M, 3).
        sigma_d: Difference of lengths, in the unit of the points, from which on two correspondences are not
            compatible.
        iterations: Power iterations.

    Returns:
        Weights (M,) with L2 norm 1, or zeros if no two correspondences are compatible.
    """
    return principal_eigenvector(compatibility(source, target, sigma_d), iterations)


def compatibility(source: Tensor, target: Tensor, sigma_d: float = 0.1) -> Tensor:
    """Compute the compatibility [1 − d²/σ_d²]₊ (M, M) of correspondences, with a zero diagonal.

    d is the difference between the distance of two source points and that of their matches.
    """
    difference = _distances(source) - _distances(target)  # (M, M)
    diagonal = torch.eye(len(source), dtype=torch.bool, device=source.device)
    return torch.relu(1 - (difference / sigma_d).square()).masked_fill(diagonal, 0)


def principal_eigenvector(matrix: Tensor, iterations: int = 10) -> Tensor:
    """Compute the principal eigenvector (M,) by power iteration from ones.

    Args:
        matrix: Symmetric matrix (M, M) without negative entries.
        iterations: Number of iterations.

    Returns:
        A unit vector, or zeros with zero gradient if the matrix is zero.
    """
    vector = matrix.new_ones(len(matrix))
    for _ in range(iterations):
        vector = matrix @ vector
        length = torch.linalg.vector_norm(vector)
        vector = vector / torch.where(length > 0, length, torch.ones_like(length))
    return vector


def _distances(points: Tensor) -> Tensor:
    """Compute all distances (M, M) from differences: coincident points have a zero gradient."""
    return torch.cdist(points, points, compute_mode="donot_use_mm_for_euclid_dist")
