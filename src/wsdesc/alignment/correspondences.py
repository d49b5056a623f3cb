"""Matched points and their weights: checks for the fits, and arrays (3, M) for the pose solvers."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from wsdesc.core.errors import InputError
from wsdesc.core.geometry import Floats


def check_matched(source: Tensor, target: Tensor) -> None:
    """Raise an InputError unless the matched points have one shape (..., K, 3)."""
    if source.shape != target.shape or source.shape[-1] != 3:
        raise InputError(
            "matched points must both have the shape (..., K, 3), "
            f"not {tuple(source.shape)} and {tuple(target.shape)}"
        )


def cost_shares(weights: Tensor) -> Tensor:
    """Return the share of each match in the cost: squared weights (..., K) with the sum 1, or zeros."""
    if weights.shape[-1] == 0:
        return weights
    largest = weights.detach().abs().amax(-1, keepdim=True)
    squared = (weights / torch.where(largest > 0, largest, 1)).square()  # scaled, so that not all underflow
    total = squared.sum(-1, keepdim=True)
    return squared / torch.where(total > 0, total, 1)


def matched_points(source: Tensor, target: Tensor) -> tuple[Floats, Floats]:
    """Return matched points (M, 3) as (3, M) arrays, which the counting loops read fastest."""
    source, target = torch.as_tensor(source), torch.as_tensor(target)
    if source.shape != target.shape or source.ndim != 2 or source.shape[1] != 3:
        raise InputError(
            "matched points must both have the shape (M, 3), "
            f"not {tuple(source.shape)} and {tuple(target.shape)}"
        )
    p, q = (
        np.ascontiguousarray(side.detach().to("cpu", torch.float64).numpy().T) for side in (source, target)
    )
    if not (np.isfinite(p).all() and np.isfinite(q).all()):
        raise InputError("matched points contain NaN or infinity")
    return p, q


def match_weights(weights: Tensor | None, count: int) -> Floats:
    """Return the weights (M,) of matches as float64; ones without any."""
    if weights is None:
        return np.ones(count)
    weights = torch.as_tensor(weights)
    if weights.shape != (count,):
        raise InputError(f"weights of {count} matches must be ({count},), not {tuple(weights.shape)}")
    w: Floats = weights.detach().to("cpu", torch.float64).numpy()
    if not (np.isfinite(w).all() and (w >= 0).all()):
        raise InputError("weights must be finite and not negative")
    return w


def most_weighted(w: Floats, limit: int) -> NDArray[np.int64]:
    """Choose at most `limit` matches of positive weight, in order: the largest weights, or evenly spaced."""
    positive = np.flatnonzero(w)
    if len(positive) <= limit:
        return positive
    if w[positive].min() == w[positive].max():
        return positive[np.arange(limit) * len(positive) // limit]
    return np.sort(positive[np.argsort(-w[positive], kind="stable")[:limit]])


def centred(p: Floats, q: Floats) -> tuple[Floats, ...]:
    """Return both sides (3, M) less their means, and the means (3, 1); large coordinates lose digits."""
    means = [x.mean(axis=1, keepdims=True) if x.shape[1] else np.zeros((3, 1)) for x in (p, q)]
    return p - means[0], q - means[1], *means


def squared_residuals(poses: Floats, p: Floats, q: Floats) -> Floats:
    """Compute squared residuals (S, M) of poses (S, 4, 4) and matches (3, M)."""
    residual = np.einsum("sij,jk->sik", poses[:, :3, :3], p) + poses[:, :3, 3:] - q
    squared: Floats = np.einsum("sik,sik->sk", residual, residual)
    return squared
