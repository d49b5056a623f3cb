"""Soft nearest neighbours: the value is the nearest neighbour, the gradient is the softmax's.

For descriptors f_p and f_q, the shares of a row are softmax(−‖f_p − f_q‖ / temperature) over Q.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class SoftMatches(NamedTuple):
    """Matches of K keypoints of P with keypoints of Q."""

    points: Tensor  # (K, 3) matched keypoints of Q; their gradient is that of the softmax mean
    w_f: Tensor  # (K,) weights: the largest softmax value of the row
    nearest: Tensor  # (K,) int64, indices of the matched keypoints


def soft_nearest(
    features_p: Tensor, features_q: Tensor, points_q: Tensor, temperature: float = 1.0
) -> SoftMatches:
    """Match each descriptor of P with the nearest one of Q, differentiably.

    Args:
        features_p: Descriptors (K, C) of P.
        features_q: Descriptors (L, C) of Q.
        points_q: Keypoints (L, 3) of Q.
        temperature: Temperature of the softmax.
    """
    return soft_nearest_by(descriptor_distances(features_p, features_q), points_q, temperature)


def soft_nearest_by(distances: Tensor, points_q: Tensor, temperature: float = 1.0) -> SoftMatches:
    """Match as `soft_nearest`, from descriptor distances (K, L); their transpose matches Q with P."""
    share = torch.softmax(-distances / temperature, dim=1)  # (K, L)
    nearest = distances.detach().argmin(dim=1)
    mean = share.to(points_q.dtype) @ points_q  # (K, 3)
    # Straight-through: the difference is exactly zero, and its gradient is the softmax's.
    points = points_q.detach()[nearest] + (mean - mean.detach())
    w_f = share.gather(1, nearest[:, None]).squeeze(1)
    return SoftMatches(points, w_f, nearest)


def descriptor_distances(features_p: Tensor, features_q: Tensor) -> Tensor:
    """Compute Euclidean distances (K, L) between descriptors (K, C) and (L, C).

    They are computed from differences: equal descriptors have the distance 0 and a zero gradient.
    """
    dtype = torch.promote_types(torch.promote_types(features_p.dtype, features_q.dtype), torch.float32)
    return torch.cdist(
        features_p.to(dtype), features_q.to(dtype), compute_mode="donot_use_mm_for_euclid_dist"
    )
