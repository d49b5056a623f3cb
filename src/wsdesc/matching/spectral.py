"""Spectral matching: how well each correspondence agrees with the others about distances.

A rigid motion keeps the distance of two points. Correspondences that keep each other's distances form a
cluster in the compatibility matrix, and its principal eigenvector says how far each belongs to the
largest one.
"""

from __future__ import annotations

import torch
from torch import Tensor


def spectral_weights(source: Tensor, target: Tensor, *, sigma_d: float = 0.1, iterations: int = 10) -> Tensor:
    """Weights w_sm (M,) of the correspondences source[i] ↔ target[i] (M, 3); their L2 norm is 1.

    `sigma_d` is the difference of lengths, in the unit of the points, at which two correspondences stop
    being compatible. Where no two are, all weights are zero.
    """
    return principal_eigenvector(compatibility(source, target, sigma_d), iterations)


def compatibility(source: Tensor, target: Tensor, sigma_d: float = 0.1) -> Tensor:
    """[1 − d²/σ_d²]₊ (M, M), d the difference of the two sides' distances; the diagonal is zero."""
    stretch = _distances(source) - _distances(target)  # (M, M)
    itself = torch.eye(len(source), dtype=torch.bool, device=source.device)
    return torch.relu(1 - (stretch / sigma_d).square()).masked_fill(itself, 0)


def principal_eigenvector(matrix: Tensor, iterations: int = 10) -> Tensor:
    """Power iteration from ones for a symmetric matrix without negative entries (M, M): unit vector (M,).

    A zero matrix has no direction to offer: zeros, with zero gradient.
    """
    vector = matrix.new_ones(len(matrix))
    for _ in range(iterations):
        vector = matrix @ vector
        length = torch.linalg.vector_norm(vector)
        vector = vector / torch.where(length > 0, length, torch.ones_like(length))
    return vector


def _distances(points: Tensor) -> Tensor:
    """All distances (M, M); by differences, so that points that coincide give 0 and a zero gradient."""
    return torch.cdist(points, points, compute_mode="donot_use_mm_for_euclid_dist")
