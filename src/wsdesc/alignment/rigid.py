"""Rigid fit of weighted correspondences (Kabsch), in float64."""

from __future__ import annotations

import torch
from torch import Tensor

from wsdesc.alignment.correspondences import check_matched, cost_shares
from wsdesc.core.errors import InputError


@torch.no_grad()
def fit_rigid(source: Tensor, target: Tensor, weights: Tensor | None = None) -> Tensor:
    """Minimise Σ ‖wᵢ (R sᵢ + t − gᵢ)‖² over rotations R and translations t.

    As in `fit_affine`, the weights multiply residuals; for the cost Σ cᵢ ‖rᵢ‖² give the square roots of c.
    The result always has a proper rotation. Where the points do not determine it (one point, collinear
    points), it is the best one nearest to the identity; without any weight the pose is the identity. No
    gradient passes; `fit_affine` is the differentiable fit.

    Args:
        source, target: Matched points (..., K, 3).
        weights: (..., K), None for equal ones; only their ratios matter.

    Returns:
        T_target_source (..., 4, 4), float64, on the device of the points.
    """
    check_matched(source, target)
    source, target = source.double(), target.double()
    weights = torch.ones_like(source[..., 0]) if weights is None else weights.double()
    if not bool(source.isfinite().all() & target.isfinite().all() & weights.isfinite().all()):
        raise InputError("matched points or their weights contain NaN or infinity")

    if source.shape[-2] == 0:
        return torch.eye(4, dtype=torch.float64, device=source.device).repeat(*source.shape[:-2], 1, 1)
    share = cost_shares(weights)[..., None]  # (..., K, 1)
    mean_source = (share * source).sum(-2, keepdim=True)  # (..., 1, 3)
    mean_target = (share * target).sum(-2, keepdim=True)
    cross = (share * (target - mean_target)).mT @ (source - mean_source)  # (..., 3, 3)
    return rigid_from_moments(mean_source.squeeze(-2), mean_target.squeeze(-2), cross)


def rigid_from_moments(mean_source: Tensor, mean_target: Tensor, cross: Tensor) -> Tensor:
    """Compute the pose T_target_source (..., 4, 4) of a fit from its moments.

    Args:
        mean_source, mean_target: Weighted means (..., 3), float64.
        cross: Weighted mean (..., 3, 3) of the outer products of centred target and source points.
    """
    R = _nearest_rotation(cross + _identity_bias(mean_source, mean_target, cross))
    T = torch.zeros(*cross.shape[:-2], 4, 4, dtype=torch.float64, device=cross.device)
    T[..., :3, :3] = R
    T[..., :3, 3] = mean_target - (R @ mean_source[..., None]).squeeze(-1)
    T[..., 3, 3] = 1
    return T


def _identity_bias(mean_source: Tensor, mean_target: Tensor, cross: Tensor) -> Tensor:
    """Return a small multiple of the identity, above rounding: it decides rotations that are undetermined."""
    eps = torch.finfo(torch.float64).eps
    rounding = (eps * mean_source.abs().amax(-1)) * (eps * mean_target.abs().amax(-1))
    size = 1e-13 * torch.linalg.matrix_norm(cross) + 1e6 * rounding
    size = torch.where(size > 0, size, 1)
    return size[..., None, None] * torch.eye(3, dtype=torch.float64, device=cross.device)


def _nearest_rotation(matrix: Tensor) -> Tensor:
    """Return the rotation R with the largest trace of Rᵀ · matrix."""
    U, _, Vt = torch.linalg.svd(matrix)
    flip = torch.ones_like(matrix[..., 0])  # (..., 3)
    flip[..., 2] = torch.where(torch.linalg.det(U @ Vt) < 0, -1.0, 1.0)
    R: Tensor = U @ (flip[..., None] * Vt)
    return R
