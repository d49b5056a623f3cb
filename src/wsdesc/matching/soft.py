"""Soft nearest neighbours: matches that are hard in value and soft in gradient."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class SoftMatches(NamedTuple):
    """For each of K keypoints, its match among the other cloud's."""

    points: Tensor  # (K, 3) the hard neighbour's coordinates; their gradient is that of the softmax mean
    w_f: Tensor  # (K,) the softmax value of the neighbour, the largest of its row
    nearest: Tensor  # (K,) int64, the hard neighbour


def soft_nearest(
    features_p: Tensor, features_q: Tensor, points_q: Tensor, temperature: float = 1.0
) -> SoftMatches:
    """Match each descriptor of P (K, C) to the descriptors (L, C) and points (L, 3) of Q."""
    return soft_nearest_by(descriptor_distances(features_p, features_q), points_q, temperature)


def soft_nearest_by(distances: Tensor, points_q: Tensor, temperature: float = 1.0) -> SoftMatches:
    """The same from a matrix of descriptor distances (K, L), whose transpose serves the way back."""
    share = torch.softmax(-distances / temperature, dim=1)  # (K, L)
    nearest = distances.detach().argmin(dim=1)
    mean = share.to(points_q.dtype) @ points_q  # (K, 3)
    # mean − mean is exactly zero in value and carries the softmax's gradient.
    points = points_q.detach()[nearest] + (mean - mean.detach())
    w_f = share.gather(1, nearest[:, None]).squeeze(1)
    return SoftMatches(points, w_f, nearest)


def descriptor_distances(features_p: Tensor, features_q: Tensor) -> Tensor:
    """Euclidean distances (K, L), by differences: exact for equal descriptors, where the gradient is 0."""
    dtype = torch.promote_types(torch.promote_types(features_p.dtype, features_q.dtype), torch.float32)
    return torch.cdist(
        features_p.to(dtype), features_q.to(dtype), compute_mode="donot_use_mm_for_euclid_dist"
    )
