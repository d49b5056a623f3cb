"""Affine fit of weighted correspondences, differentiable and in float64.

Training compares this map with a rigid one, so it is not constrained to be rigid.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from wsdesc.alignment.correspondences import check_matched, cost_shares

_FLAT = 1e-8  # relative variance below which source points are flat: a thickness of 1e-4 of the extent
_RIDGE = 1e-6  # share of the variance added in all directions where the points are flat


class AffineFit(NamedTuple):
    """target ≈ A_target_source · source + t_target_source, in float64."""

    A_target_source: Tensor  # (..., 3, 3)
    t_target_source: Tensor  # (..., 3)
    well_posed: Tensor  # (...) bool: the weighted source points are not flat


def fit_affine(source: Tensor, target: Tensor, weights: Tensor | None = None) -> AffineFit:
    """Minimise Σ ‖wᵢ (A sᵢ + t − gᵢ)‖² over A and t; the weights multiply residuals.

    Centring on the weighted means splits the 4×4 normal equations into a 3×3 system for A and an expression
    for t, and large coordinates then cost no precision.

    Flat source points (coplanar, collinear, fewer than four, or so by their weights) do not determine A
    across the plane. A ridge of 1e-6 of their variance then selects the smallest A to about that precision,
    independent of the frames: undetermined directions are mapped to zero. Without any weight the map and its
    gradient are zero. All results are finite, and `well_posed` is False in these cases.

    Args:
        source, target: Matched points (..., K, 3).
        weights: (..., K), None for equal ones; only their ratios matter.
    """
    check_matched(source, target)
    source, target = source.double(), target.double()
    weights = torch.ones_like(source[..., 0]) if weights is None else weights.double()
    share = cost_shares(weights)[..., None]  # (..., K, 1)
    mean_source = (share * source).sum(-2, keepdim=True)  # (..., 1, 3)
    mean_target = (share * target).sum(-2, keepdim=True)
    x, y = source - mean_source, target - mean_target
    spread = (share * x).mT @ x  # (..., 3, 3)
    cross = (share * x).mT @ y

    with torch.no_grad():
        total = spread.diagonal(dim1=-2, dim2=-1).sum(-1)
        adjugate, volume = _adjugate(spread)
        areas = adjugate.diagonal(dim1=-2, dim2=-1).sum(-1)  # volume / areas: about the smallest variance
        well_posed = (volume > _FLAT * total * areas) & volume.isfinite()
        ridge = torch.where(well_posed, 0, torch.where(total > 0, _RIDGE * total, 1))
    adjugate, volume = _adjugate(
        spread + ridge[..., None, None] * torch.eye(3, dtype=spread.dtype, device=spread.device)
    )
    A = (adjugate @ cross / volume[..., None, None]).mT
    t = mean_target.squeeze(-2) - (A @ mean_source.mT).squeeze(-1)
    return AffineFit(A, t, well_posed)


def _adjugate(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Return adjugate and determinant of symmetric matrices (..., 3, 3); their quotient is the inverse."""
    a, b, c = matrix.unbind(-1)
    rows = torch.stack([torch.linalg.cross(b, c), torch.linalg.cross(c, a), torch.linalg.cross(a, b)], -2)
    return rows, (rows[..., 0, :] * a).sum(-1)
